//! Objects that are read, and what is told of them.

use super::metadata::{BINARY, ReadConditions, etag, timestamp};
use super::{checksums, errors};
use crate::body::FileBody;
use potluck_client::Pool;
use potluck_core::attributes::FileTime;
use potluck_core::chunk::Digest;
use potluck_core::file_metadata::FileMetadata;
use potluck_core::path::PoolPath;
use potluck_wire::control::{EntryKind, ListedEntry};
use s3s::dto::{
    Checksum, ContentRange, ETag, GetObjectOutput, HeadObjectOutput, Metadata, Range, StreamingBlob,
};
use s3s::{S3Error, S3ErrorCode, S3Result};

/// The facts that answers tell of an object.
pub struct ObjectFacts {
    size: u64,
    modified: FileTime,
    tag: ETag,
    metadata: FileMetadata,
}

impl ObjectFacts {
    /// Returns what is told of a file that was listed or looked at.
    pub fn of(entry: &ListedEntry) -> Self {
        let tag = etag(entry.metadata.as_ref(), entry.digest);
        let metadata = entry.metadata.clone().unwrap_or_default();
        Self { size: entry.size, modified: entry.mtime, tag, metadata }
    }

    /// Returns what is told of a directory that is asked about as an object: nothing is in it.
    fn of_dir(entry: &ListedEntry) -> Self {
        let tag = etag(None, Some(Digest::of(b"")));
        let metadata = FileMetadata::default();
        Self { size: 0, modified: entry.mtime, tag, metadata }
    }

    fn user(&self) -> Option<Metadata> {
        Some(self.metadata.user.clone().into_iter().collect())
    }

    fn header(&self, name: &str) -> Option<String> {
        self.metadata.headers.get(name).cloned()
    }
}

/// A part of an object that is asked for.
pub struct ReadRequest {
    /// The range of bytes, if not all are asked for.
    pub range: Option<Range>,
    /// The conditions of the request.
    pub conditions: ReadConditions,
    /// True if the checksums that were noted are asked for.
    pub checksums: bool,
}

impl ReadRequest {
    /// Returns the bytes that are asked for of an object, and the header that tells of a part.
    fn bytes(&self, told: &ObjectFacts) -> S3Result<(std::ops::Range<u64>, Option<ContentRange>)> {
        self.conditions.check(&told.tag, told.modified)?;
        let Some(range) = &self.range else { return Ok((0..told.size, None)) };
        let bytes = range.check(told.size).map_err(|_| S3Error::new(S3ErrorCode::InvalidRange))?;
        let header = format!("bytes {}-{}/{}", bytes.start, bytes.end - 1, told.size);
        Ok((bytes, Some(header)))
    }

    /// Returns the checksums that are told with the whole object.
    fn checksum(&self, told: &ObjectFacts) -> Checksum {
        let all = self.checksums && self.range.is_none();
        if all { checksums::noted(&told.metadata) } else { Checksum::default() }
    }
}

/// Reads an object.
pub async fn get(pool: &Pool, path: &PoolPath, asked: &ReadRequest) -> S3Result<GetObjectOutput> {
    // A large object takes its time, and stays readable when it is replaced meanwhile.
    let file = pool.open_leased(path).await.map_err(errors::of)?;
    let metadata = file.metadata().clone();
    let told = ObjectFacts {
        size: file.size(),
        modified: file.attributes().mtime,
        tag: etag(Some(&metadata), Some(file.digest())),
        metadata,
    };
    let (bytes, content_range) = asked.bytes(&told)?;
    let checksum = asked.checksum(&told);
    let length = bytes.end - bytes.start;
    Ok(GetObjectOutput {
        accept_ranges: Some("bytes".into()),
        body: Some(StreamingBlob::wrap(FileBody::new(file.read(bytes)))),
        cache_control: told.header(super::metadata::CACHE_CONTROL),
        content_disposition: told.header(super::metadata::CONTENT_DISPOSITION),
        content_encoding: told.header(super::metadata::CONTENT_ENCODING),
        content_language: told.header(super::metadata::CONTENT_LANGUAGE),
        content_length: Some(length as i64),
        content_range,
        content_type: told.header(super::metadata::CONTENT_TYPE).or(Some(BINARY.into())),
        checksum_crc32: checksum.checksum_crc32,
        checksum_crc32c: checksum.checksum_crc32c,
        checksum_crc64nvme: checksum.checksum_crc64nvme,
        checksum_sha1: checksum.checksum_sha1,
        checksum_sha256: checksum.checksum_sha256,
        last_modified: Some(timestamp(told.modified)),
        metadata: told.user(),
        e_tag: Some(told.tag),
        ..GetObjectOutput::default()
    })
}

/// Tells of an object without its bytes.
pub async fn head(
    pool: &Pool,
    path: &PoolPath,
    is_dir: bool,
    asked: &ReadRequest,
) -> S3Result<HeadObjectOutput> {
    let entry = pool.stat_unjudged(path).await.map_err(errors::of)?.entry;
    let told = match (entry.kind, is_dir) {
        (EntryKind::File, false) => ObjectFacts::of(&entry),
        (EntryKind::Dir, true) => ObjectFacts::of_dir(&entry),
        _ => return Err(S3Error::new(S3ErrorCode::NoSuchKey)),
    };
    let (bytes, content_range) = asked.bytes(&told)?;
    let checksum = asked.checksum(&told);
    Ok(HeadObjectOutput {
        accept_ranges: Some("bytes".into()),
        cache_control: told.header(super::metadata::CACHE_CONTROL),
        content_disposition: told.header(super::metadata::CONTENT_DISPOSITION),
        content_encoding: told.header(super::metadata::CONTENT_ENCODING),
        content_language: told.header(super::metadata::CONTENT_LANGUAGE),
        content_length: Some((bytes.end - bytes.start) as i64),
        content_range,
        content_type: told.header(super::metadata::CONTENT_TYPE).or(Some(BINARY.into())),
        checksum_crc32: checksum.checksum_crc32,
        checksum_crc32c: checksum.checksum_crc32c,
        checksum_crc64nvme: checksum.checksum_crc64nvme,
        checksum_sha1: checksum.checksum_sha1,
        checksum_sha256: checksum.checksum_sha256,
        last_modified: Some(timestamp(told.modified)),
        metadata: told.user(),
        e_tag: Some(told.tag),
        ..HeadObjectOutput::default()
    })
}
