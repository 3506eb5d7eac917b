//! Which files cannot be read from the chunks that donors listed.

use crate::units::{self, Met, Root};
use crate::{Error, PageLimit, engine};
use potluck_core::chunk::ChunkName;
use potluck_core::path::SYSTEM_SPACE;
use potluck_pool::redundancy::Unit;
use serde::Serialize;
use std::collections::{BTreeSet, HashSet};
use std::path::Path;

/// Names of chunks that donors listed: eight bytes of each, for there may be very many. A name that was not
/// listed is taken for one that was by a chance of one in 2^64 for each that was.
#[derive(Debug, Default)]
pub struct ListedNames(HashSet<u64>);

impl ListedNames {
    /// Takes note of a chunk.
    pub fn insert(&mut self, name: &ChunkName) {
        self.0.insert(start(name));
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    fn contains(&self, name: &ChunkName) -> bool {
        self.0.contains(&start(name))
    }
}

/// The first eight bytes of a name, as a number.
pub(crate) fn start(name: &ChunkName) -> u64 {
    name.0.iter().take(8).fold(0, |start, byte| start << 8 | u64::from(*byte))
}

/// Paths that a report names.
const NAMED: usize = 100;

/// Files of which too few chunks were listed by the donors that answered. Others may have them.
/// Files whose own records are damaged are among them, with no size.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Unlisted {
    /// The number of files.
    pub files: u64,
    /// Size of these files together, in bytes of plaintext.
    pub bytes: u64,
    /// The first of them.
    pub first: Vec<String>,
    /// The one that was found last.
    #[serde(skip)]
    last: String,
}

/// Looks at all files of the catalog at `path`.
pub fn unlisted(path: &Path, listed: &ListedNames) -> Result<Unlisted, Error> {
    let db = &engine::open_reader(path)?;
    let mut found = Unlisted::default();
    for root in units::roots(db)?.into_iter().filter(|root| root.name != SYSTEM_SPACE) {
        let mut after: Option<String> = None;
        loop {
            let page = units::page(db, root.dir, after.as_deref(), PAGE)?;
            page.files.into_iter().for_each(|(path, met)| found.look(&root, &path, met, listed));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(found)
}

/// What is looked at at once.
const PAGE: PageLimit = PageLimit { chunks: 20_000, entries: 5000 };

impl Unlisted {
    /// Looks at a file. One that is made of parts counts once, with the bytes of the parts that are not there.
    fn look(&mut self, root: &Root, path: &str, met: Met, listed: &ListedNames) {
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
                version.size
            }
        };
        self.bytes += bytes;
        let path = format!("pot://{}/{path}", root.name);
        if self.last != path {
            self.files += 1;
            if self.first.len() < NAMED {
                self.first.push(path.clone());
            }
            self.last = path;
        }
    }
}
