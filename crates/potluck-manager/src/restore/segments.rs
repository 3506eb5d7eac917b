//! The segments that donors have, fetched and replayed.

use super::collect::Collecting;
use super::fetch::Fetch;
use crate::error::ManagerError;
use crate::log::chain::{Chain, Seen};
use crate::log::segment;
use potluck_catalog::OpenError;
use potluck_catalog::rebuild::Rebuild;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Segments on this machine, opened, for the time of a restore.
pub struct Segments {
    dir: PathBuf,
    /// What each says of itself.
    pub seen: Vec<Seen>,
    /// Segments that no donor gave, or that did not open.
    pub unread: u64,
}

impl Segments {
    /// Fetches all segments that donors have into files in `dir`.
    pub async fn fetch(
        fetch: &mut Fetch<'_>,
        collecting: &Collecting,
        dir: &Path,
    ) -> Result<Self, ManagerError> {
        let io = |source| ManagerError::Io { path: dir.into(), source };
        fs::create_dir_all(dir).map_err(io)?;
        let mut segments = Self { dir: dir.into(), seen: Vec::new(), unread: 0 };
        for found in collecting.segments() {
            let name = found.name;
            let opened = fetch.segment(&found).await;
            let header = opened.as_ref().map(|(number, text)| segment::header(*number, text));
            match (opened, header) {
                (Some((_, text)), Some(Ok(header))) => {
                    let seen = Seen { name, header };
                    keep(&segments.path(&seen), &text).map_err(io)?;
                    segments.seen.push(seen);
                }
                _ => segments.unread += 1,
            }
        }
        Ok(segments)
    }

    fn path(&self, segment: &Seen) -> PathBuf {
        self.dir.join(segment.name.to_string())
    }

    /// Applies the segments of `chain`.
    pub fn replay(&self, chain: &Chain, rebuild: &mut Rebuild) -> Result<(), ManagerError> {
        for segment in &chain.segments {
            let path = self.path(segment);
            let text = fs::read(&path)
                .map_err(|source| ManagerError::Io { path: path.clone(), source })?;
            let applied = rebuild.apply(segment::records(&text));
            applied.map_err(|why| OpenError::Unusable { path, detail: why.to_string() })?;
        }
        Ok(())
    }
}

/// Keeps a segment, for its owner only: it holds the keys of sealed spaces. Nobody asks for it after a
/// crash, so nothing waits for the disk.
fn keep(path: &Path, text: &[u8]) -> io::Result<()> {
    File::options().write(true).create_new(true).mode(0o600).open(path)?.write_all(text)
}
