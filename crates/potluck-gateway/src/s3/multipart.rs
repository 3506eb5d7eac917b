//! Uploads in parts. The parts are files of a checkpoint, which nobody sees, and which expires when nobody goes on with
//! it; its identifier is that of the upload, so that any gateway goes on with any upload. When it is completed, the
//! object takes the chunks of the parts over by their names, and the checkpoint ends.
//!
//! Chunks are taken over where the parts before fill whole chunks, or groups of an erasure code; bytes of other parts
//! are read and stored once more.

use super::checksums::{BodyChecked, SaidOfBody, etag_of_parts};
use super::writing::{Arriving, store};
use super::{errors, metadata};
use futures_util::StreamExt;
use potluck_client::{Attributes, Checkpoint, File, Pool, PutOptions};
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::file_metadata::FileMetadata;
use potluck_core::path::PoolPath;
use potluck_wire::control::{Condition, ListedEntry};
use potluck_wire::error::{Failure, code};
use s3s::dto::{CompletedPart, ETag, Part, StreamingBlob};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

/// The number of the last part that an upload may have.
const LAST_PART: i32 = 10_000;
/// The name of the empty file that has what is noted of the object, in the directory of the parts.
const NOTED: &str = "noted";
/// The beginning of the names of parts, before their numbers.
const PART: &str = "part-";
/// The most parts that are opened at a time.
const OPENED_AT_ONCE: usize = 8;

/// An upload in parts that is open.
pub struct Upload<'a> {
    pool: &'a Pool,
    path: PoolPath,
    checkpoint: Checkpoint,
}

/// A part that was stored.
struct StoredPart {
    number: i32,
    md5: [u8; 16],
    entry: ListedEntry,
}

impl<'a> Upload<'a> {
    /// Begins an upload of the object at a path, of which `metadata` is noted.
    pub async fn begin(pool: &'a Pool, path: PoolPath, metadata: FileMetadata) -> S3Result<Self> {
        let id = CheckpointId(pool.random());
        let upload = Self::join(pool, path, id).await?;
        let noted = upload.staged(NOTED)?;
        let writer = pool.create(&noted, &PutOptions::default(), Attributes::default()).await;
        let mut writer = writer.map_err(errors::of)?;
        writer.set_metadata(metadata);
        writer.finish().await.map_err(errors::of)?;
        Ok(upload)
    }

    /// Goes on with an upload by its identifier.
    ///
    /// Errors: `NoSuchUpload`.
    pub async fn open(pool: &'a Pool, path: PoolPath, id: &str) -> S3Result<Self> {
        let unknown = || S3Error::new(S3ErrorCode::NoSuchUpload);
        let id: CheckpointId = id.parse().map_err(|_| unknown())?;
        let upload = Self::join(pool, path, id).await?;
        // To join makes a checkpoint where none is. One that this upload did not begin has nothing noted.
        match upload.noted().await {
            Ok(_) => Ok(upload),
            Err(failure) if failure.code == code::NO_ENTRY => {
                upload.end().await?;
                Err(unknown())
            }
            Err(failure) => Err(errors::of(failure)),
        }
    }

    async fn join(pool: &'a Pool, path: PoolPath, id: CheckpointId) -> S3Result<Self> {
        let target = path.parent().unwrap_or_else(|| path.clone());
        let checkpoint = pool.join_checkpoint(id, &target, CommitStyle::Merge).await;
        Ok(Self { pool, path, checkpoint: checkpoint.map_err(errors::of)? })
    }

    /// Returns the identifier of the upload.
    pub fn id(&self) -> String {
        self.checkpoint.id().to_string()
    }

    fn staged(&self, name: &str) -> S3Result<PoolPath> {
        self.checkpoint.staging().join(name).map_err(errors::of_key)
    }

    async fn noted(&self) -> Result<FileMetadata, Failure> {
        let noted = self.checkpoint.staging().join(NOTED).map_err(|why| {
            Failure::new(potluck_wire::error::ErrorKind::Usage, code::BAD_PATH, why.to_string())
        })?;
        Ok(self.pool.stat_unjudged(&noted).await?.entry.metadata.unwrap_or_default())
    }

    /// Stores a part, in the place of one that had its number.
    pub async fn put(
        &self,
        number: i32,
        body: Option<StreamingBlob>,
        bytes: Option<u64>,
        said: &SaidOfBody,
    ) -> S3Result<BodyChecked> {
        if !(1..=LAST_PART).contains(&number) {
            return Err(s3_error!(InvalidArgument, "parts have numbers from 1 to {}", LAST_PART));
        }
        let path = self.staged(&format!("{PART}{number:05}"))?;
        let (condition, metadata) = (Condition::Always, FileMetadata::default());
        store(self.pool, Arriving { path, condition, body, bytes, said, metadata }).await
    }

    async fn stored(&self) -> S3Result<Vec<StoredPart>> {
        let listed = self.pool.list(self.checkpoint.staging(), false).await.map_err(errors::of)?;
        let part = |entry: ListedEntry| {
            let number = entry.path.strip_prefix(PART)?.parse().ok()?;
            let md5 = md5_of(entry.metadata.as_ref()?.etag.as_ref()?)?;
            Some(StoredPart { number, md5, entry })
        };
        let mut parts: Vec<_> = listed.into_iter().filter_map(part).collect();
        parts.sort_by_key(|part| part.number);
        Ok(parts)
    }

    /// Lists at most `most` of the parts that were stored, after the part with the number `after`; the flag says
    /// whether there are more.
    pub async fn parts(&self, after: i32, most: usize) -> S3Result<(Vec<Part>, bool)> {
        let mut stored = self.stored().await?;
        stored.retain(|part| part.number > after);
        let more = stored.len() > most;
        let about = |part: StoredPart| Part {
            e_tag: Some(metadata::etag(part.entry.metadata.as_ref(), None)),
            last_modified: Some(metadata::timestamp(part.entry.mtime)),
            part_number: Some(part.number),
            size: Some(part.entry.size as i64),
            ..Part::default()
        };
        Ok((stored.into_iter().take(most).map(about).collect(), more))
    }

    /// Makes the object of the parts that the client names, and ends the upload. Returns the object's entity tag.
    pub async fn complete(
        &self,
        condition: Condition,
        named: Vec<CompletedPart>,
    ) -> S3Result<ETag> {
        let parts = chosen(self.stored().await?, &named)?;
        let mut noted = self.noted().await.map_err(errors::of)?;
        let tag = etag_of_parts(parts.iter().map(|part| &part.md5).collect::<Vec<_>>().into_iter());
        noted.etag = Some(tag.clone());
        let options = PutOptions { condition, ..PutOptions::default() };
        let writer = self.pool.create(&self.path, &options, Attributes::default()).await;
        let mut writer = writer.map_err(errors::of)?;
        let staging = self.checkpoint.staging();
        let open = |part: StoredPart| async move {
            let path = staging.join(&part.entry.path).map_err(errors::of_key)?;
            self.pool.open(&path).await.map_err(errors::of)
        };
        let files = futures_util::stream::iter(parts).map(open).buffered(OPENED_AT_ONCE);
        let mut files = std::pin::pin!(files);
        while let Some(file) = files.next().await {
            let file: File = file?;
            writer.append(&file).await.map_err(errors::of)?;
        }
        writer.set_metadata(noted);
        writer.finish().await.map_err(errors::of)?;
        self.end().await?;
        Ok(ETag::Strong(tag))
    }

    /// Ends the upload; nothing of its parts is left.
    pub async fn end(&self) -> S3Result<()> {
        let ended = self.pool.abort_checkpoint(self.path.space(), self.checkpoint.id()).await;
        ended.map_err(errors::of)
    }
}

/// Returns the parts of an object in order: those that were stored, as the client names them.
///
/// Errors: `InvalidPart`, `InvalidPartOrder`, `MalformedXML` where none is named.
fn chosen(stored: Vec<StoredPart>, named: &[CompletedPart]) -> S3Result<Vec<StoredPart>> {
    if named.is_empty() {
        return Err(s3_error!(MalformedXML, "no parts are named"));
    }
    let numbers: Vec<i32> = named.iter().map(|part| part.part_number.unwrap_or_default()).collect();
    if !numbers.is_sorted_by(|one, next| one < next) {
        return Err(S3Error::new(S3ErrorCode::InvalidPartOrder));
    }
    let mut stored: std::collections::BTreeMap<i32, StoredPart> =
        stored.into_iter().map(|part| (part.number, part)).collect();
    let choose = |(number, named): (i32, &CompletedPart)| {
        let part = stored.remove(&number)?;
        let tag = named.e_tag.as_ref().map(|tag| md5_of(tag.value()));
        (tag == Some(Some(part.md5))).then_some(part)
    };
    let chosen: Option<Vec<_>> = numbers.iter().copied().zip(named).map(choose).collect();
    chosen
        .ok_or_else(|| s3_error!(InvalidPart, "a part was not uploaded, or has another entity tag"))
}

/// Returns the MD5 that an entity tag is.
fn md5_of(tag: &str) -> Option<[u8; 16]> {
    let pair = |at: usize| u8::from_str_radix(tag.get(2 * at..2 * at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..16).map(pair).collect();
    bytes?.try_into().ok().filter(|_| tag.len() == 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_wire::control::EntryKind;

    fn part(number: i32) -> StoredPart {
        let entry =
            serde_json::json!({ "path": format!("{PART}{number:05}"), "kind": EntryKind::File });
        let entry = serde_json::from_value(entry).expect("an entry");
        StoredPart { number, md5: [number as u8; 16], entry }
    }

    fn named(number: i32, md5: u8) -> CompletedPart {
        let tag = ETag::Strong(super::super::checksums::hex(&[md5; 16]));
        CompletedPart { part_number: Some(number), e_tag: Some(tag), ..CompletedPart::default() }
    }

    #[test]
    fn parts_are_those_that_the_client_names() {
        let stored = || vec![part(1), part(2), part(7)];
        let chosen_numbers = |named: &[CompletedPart]| {
            let chosen = chosen(stored(), named).map_err(|why| why.code().as_str().to_owned());
            chosen.map(|parts| parts.iter().map(|part| part.number).collect::<Vec<_>>())
        };
        assert_eq!(chosen_numbers(&[named(1, 1), named(7, 7)]), Ok(vec![1, 7]));
        assert_eq!(chosen_numbers(&[named(7, 7), named(1, 1)]), Err("InvalidPartOrder".into()));
        assert_eq!(chosen_numbers(&[named(1, 2)]), Err("InvalidPart".into()));
        assert_eq!(chosen_numbers(&[named(3, 3)]), Err("InvalidPart".into()));
        assert_eq!(chosen_numbers(&[]), Err("MalformedXML".into()));
    }
}
