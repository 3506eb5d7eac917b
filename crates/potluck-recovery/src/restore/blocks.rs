//! The blocks that donors have, fetched and replayed.

use super::collect::Collecting;
use super::fetch::{BlockFetch, FetchedBlock};
use crate::error::StateError;
use crate::log::block;
use crate::log::chain::{Chain, SeenBlock};
use potluck_catalog::{OpenError, Rebuild};
use potluck_wire::private_dir;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The opened blocks of the log, in files of this machine for the time of a restore.
pub struct Blocks {
    dir: PathBuf,
    /// The name and the header of each block.
    pub seen: Vec<SeenBlock>,
    /// The number of blocks that no donor gave, or that say nothing.
    pub unread: u64,
    /// The number of blocks that another key sealed, such as that of the authority before this one.
    pub foreign: u64,
}

impl Blocks {
    /// Fetches all blocks that donors have into files in `dir`.
    pub async fn fetch(
        fetch: &mut BlockFetch<'_>,
        collecting: &Collecting,
        dir: &Path,
    ) -> Result<Self, StateError> {
        let io = |source| StateError::Io { path: dir.into(), source };
        private_dir::make(dir).map_err(io)?;
        let mut blocks = Self { dir: dir.into(), seen: Vec::new(), unread: 0, foreign: 0 };
        for found in collecting.blocks() {
            let name = found.name;
            let (number, text) = match fetch.block(&found).await {
                FetchedBlock::Opened(number, text) => (number, text),
                FetchedBlock::NotGiven => {
                    blocks.unread += 1;
                    continue;
                }
                FetchedBlock::Foreign => {
                    blocks.foreign += 1;
                    continue;
                }
            };
            let Ok(header) = block::header(number, &text) else {
                blocks.unread += 1;
                continue;
            };
            let seen = SeenBlock { name, header };
            keep(&blocks.path(&seen), &text).map_err(io)?;
            blocks.seen.push(seen);
        }
        Ok(blocks)
    }

    fn path(&self, block: &SeenBlock) -> PathBuf {
        self.dir.join(block.name.to_string())
    }

    /// Applies the blocks of `chain`.
    pub fn replay(&self, chain: &Chain, rebuild: &mut Rebuild) -> Result<(), StateError> {
        for block in &chain.blocks {
            let path = self.path(block);
            let text =
                fs::read(&path).map_err(|source| StateError::Io { path: path.clone(), source })?;
            let applied = rebuild.apply(block::records(&text));
            applied.map_err(|why| OpenError::Unusable { path, detail: why.to_string() })?;
        }
        Ok(())
    }
}

/// Keeps a block in a file, readable only by its owner: the block holds the keys of sealed spaces. The file is of no
/// use after a crash, so nothing waits for the disk.
fn keep(path: &Path, text: &[u8]) -> io::Result<()> {
    File::options().write(true).create_new(true).mode(0o600).open(path)?.write_all(text)
}
