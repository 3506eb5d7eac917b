//! Seals the files of a space again with its present key. Donors never see a key and the manager never sees content, so
//! a client does it: it reads what is sealed with earlier keys and stores the same bytes, which take the place of the
//! earlier ones if nothing else has changed (promise X6).

use crate::attributes::Attributes;
use crate::fetch::Fetcher;
use crate::file::File;
use crate::pool::Pool;
use crate::progress::Progress;
use crate::recipe;
use crate::write::options::PutOptions;
use crate::write::session::Session;
use futures_util::stream::{self, StreamExt};
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_core::policy::{Cutting, Override, Redundancy};
use potluck_core::recipe::unpack_page;
use potluck_wire::control::{Condition, OldFiles, OpenFile, OpenedOldFiles};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most files that are sealed again at the same time. Small ones share commits.
const FILES_AT_ONCE: usize = 32;

/// The result of one walk over all that is sealed with earlier keys of a space.
#[derive(Debug, Clone, Default)]
pub struct SealedAgain {
    /// The number of files, and of parts of large files, that are sealed with the present key now.
    pub files: u64,
    /// The size of these in bytes.
    pub bytes: u64,
    /// What could not be sealed again in this walk, with the reasons: it is open, or changed meanwhile, or cannot be
    /// read or stored now. Nothing of it is lost.
    pub later: Vec<(String, Failure)>,
}

/// The way in which some files are stored, by which they share a write session.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Stored {
    redundancy: String,
    chunk_size: u32,
    by_content: bool,
}

impl Pool {
    /// Seals all files of a space again that are sealed with earlier keys, old versions included, each in the way in
    /// which it is stored. What another client seals again at the same time, or changes, is left as it is.
    ///
    /// Errors: those of [`Pool::call`], such as that the caller does not manage the space.
    pub async fn seal_again(
        &self,
        space: &str,
        progress: Arc<dyn Progress>,
    ) -> Result<SealedAgain, Failure> {
        let root = PoolPath::space_root(space)
            .map_err(|why| Failure::new(ErrorKind::Usage, code::BAD_PATH, why.to_string()))?;
        let mut done = SealedAgain::default();
        let mut after = Some(VersionId(0));
        while let Some(from) = after {
            let call = OldFiles { space: space.into(), after: from };
            let OpenedOldFiles { opened, kept, next } = self.call_retrying(&call).await?;
            let mut alike: BTreeMap<Stored, (Override, Vec<OpenFile>)> = BTreeMap::new();
            for (file, redundancy) in opened.files.iter().cloned().zip(kept) {
                let (stored, over) = how(&file, redundancy);
                alike.entry(stored).or_insert_with(|| (over, Vec::new())).1.push(file);
            }
            let largest = opened.files.iter().map(recipe::largest);
            let (chunk, unit) =
                largest.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1))).unwrap_or_default();
            let memory = self.memory_for_reading(chunk, unit, opened.donors.len());
            let fetcher = Fetcher::new(self, memory);
            fetcher.learn(opened.donors);
            for (policy, files) in alike.into_values() {
                let options = PutOptions { policy, ..PutOptions::default() };
                let session = self.session(&root, &options).await?;
                let mut sealing = stream::iter(files)
                    .map(|file| {
                        let name = file.path.clone();
                        let (session, root, progress) = (&session, &root, &progress);
                        let keys = &opened.space_keys;
                        let opened = File::new(self, root, file, keys, fetcher.clone(), None);
                        async move {
                            let sealed = match opened {
                                Ok(file) => seal_one(session, root, &file, progress).await,
                                Err(failure) => Err(failure),
                            };
                            (name, sealed)
                        }
                    })
                    .buffer_unordered(FILES_AT_ONCE);
                while let Some((name, sealed)) = sealing.next().await {
                    match sealed {
                        Ok(bytes) => {
                            done.files += 1;
                            done.bytes += bytes;
                        }
                        Err(failure) => done.later.push((name, failure)),
                    }
                }
                drop(sealing);
                // What this tells of was told by the writers.
                if let Err(failure) = session.finish().await {
                    tracing::debug!(%failure, "the session in which files were sealed again");
                }
            }
            after = next;
        }
        Ok(done)
    }
}

/// Returns how a file is stored, and the policy by which it is stored so again.
fn how(file: &OpenFile, redundancy: Redundancy) -> (Stored, Override) {
    let first = file.pages.first().and_then(|page| unpack_page(&page.0).ok()).unwrap_or_default();
    let others = first.chunks.split_last().map_or(&[][..], |(_, others)| others);
    let by_content = file.ec.is_none() && others.iter().any(|entry| entry.len != file.chunk_size);
    let (copies, ec) = match redundancy {
        Redundancy::Copies(copies) => (Some(copies), None),
        Redundancy::Ec(ec) => (None, Some(ec)),
    };
    let cut = if by_content { Cutting::Content } else { Cutting::Fixed };
    let (chunk_size, cut) = (Some(file.chunk_size), Some(cut));
    let over = Override { copies, ec, chunk_size, cut, ..Override::default() };
    let stored =
        Stored { redundancy: redundancy.to_string(), chunk_size: file.chunk_size, by_content };
    (stored, over)
}

/// Stores the content of a file again in its place, and returns its bytes that are in no hole.
async fn seal_one(
    session: &Session,
    root: &PoolPath,
    file: &File,
    progress: &Arc<dyn Progress>,
) -> Result<u64, Failure> {
    let name = format!("version-{}", file.version());
    let path = root
        .join(&name)
        .map_err(|why| Failure::new(ErrorKind::Usage, code::BAD_PATH, why.to_string()))?;
    let mut writer = session.create(path.clone(), Attributes::default());
    writer.set_place(path, Condition::SealsAgain(file.version()));
    let mut at = 0;
    while at < file.size() {
        let data = file.data_from(at).await?.unwrap_or(file.size()..file.size());
        writer.write_zeros(data.start - at).await?;
        at = data.end;
        let mut reader = file.read(data);
        while let Some(part) = reader.next().await {
            let part = part?;
            writer.write(&part).await?;
            progress.advance(part.len() as u64);
        }
    }
    writer.make_visible().await?;
    Ok(file.data())
}
