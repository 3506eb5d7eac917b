//! The files that cannot be read from the chunks that donors listed.

use crate::chunks::units::{self, Met};
use crate::pool_records::spaces::{self, Space};
use crate::{Error, PageLimit, engine};
use potluck_core::chunk::ChunkName;
use potluck_pool::redundancy::Unit;
use serde::Serialize;
use std::collections::{BTreeSet, HashSet};
use std::path::Path;

/// The names of chunks that donors listed. Only eight bytes of each are kept, because there may be very many: a name
/// that was not listed is taken for a given listed one with a probability of 2^-64.
#[derive(Debug, Default)]
pub struct ListedNames(HashSet<u64>);

impl ListedNames {
    /// Takes note of a chunk.
    pub fn insert(&mut self, name: &ChunkName) {
        self.0.insert(start(name));
    }

    /// Returns the number of names.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    fn contains(&self, name: &ChunkName) -> bool {
        self.0.contains(&start(name))
    }
}

/// Returns the first eight bytes of a name as a number.
pub(crate) fn start(name: &ChunkName) -> u64 {
    name.0.iter().take(8).fold(0, |start, byte| start << 8 | u64::from(*byte))
}

/// The most paths that a report names.
const NAMED: usize = 100;

/// The files of which the donors that answered listed too few chunks; other donors may have these. Files whose own
/// records are damaged are among them, with no size.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Unlisted {
    /// The number of files.
    pub files: u64,
    /// The size of these files together, in bytes of plaintext; of a file in parts, only the parts that cannot be read.
    pub bytes: u64,
    /// The paths of the first of these files.
    pub first: Vec<String>,
    /// The path of the file that was found last.
    #[serde(skip)]
    last: String,
}

/// Looks at all files of the catalog at `path` but those of the pool's own metadata.
pub fn unlisted(path: &Path, listed: &ListedNames) -> Result<Unlisted, Error> {
    let db = &engine::open_reader(path)?;
    let mut found = Unlisted::default();
    for space in spaces::all(db)?.into_iter().filter(|space| !space.is_system()) {
        let mut after: Option<String> = None;
        loop {
            let page = units::page(db, space.root, after.as_deref(), PAGE)?;
            page.files.into_iter().for_each(|(path, met)| found.look(&space, &path, met, listed));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(found)
}

/// The most chunks and entries that are looked at at once.
const PAGE: PageLimit = PageLimit { chunks: 20_000, entries: 5000 };

impl Unlisted {
    /// Looks at a file or a part. A file made of parts counts once, with the bytes of the parts that cannot be read.
    fn look(&mut self, space: &Space, path: &str, met: Met, listed: &ListedNames) {
        let bytes = match met {
            Met::Damaged(_) => 0,
            Met::File(version, layout) | Met::Part(version, layout) => {
                let there = |unit: &Unit| {
                    let shards: BTreeSet<usize> = unit.shards.iter().copied().collect();
                    let have = |shard: &&usize| listed.contains(&layout.pieces[**shard].name);
                    shards.iter().filter(have).count() >= unit.need()
                };
                if layout.units.iter().all(there) {
                    return;
                }
                version.data()
            }
        };
        self.bytes += bytes;
        let path = format!("pot://{}/{path}", space.name);
        if self.last != path {
            self.files += 1;
            if self.first.len() < NAMED {
                self.first.push(path.clone());
            }
            self.last = path;
        }
    }
}
