//! The trees that a user has added, in the order in which they are looked up, and what each has saved.

use crate::index::{IndexError, LookasideIndex, Looked};
use potluck_client::ChunkSource;
use potluck_core::chunk::Digest;
use potluck_core::clock::SharedClock;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

/// The weight of what was measured before, when a part is read: about twenty parts are remembered.
const REMEMBERED: f64 = 0.95;

/// What looking into a tree has come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TreeCounts {
    /// The chunks that were found.
    pub hits: u64,
    /// The chunks that the index does not have.
    pub misses: u64,
    /// The chunks that the index has, and whose files were changed or removed since.
    pub stale: u64,
    /// The bytes that were found.
    pub bytes: u64,
}

/// A tree that was added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedTree {
    /// The path of the index.
    pub index: PathBuf,
    /// True if it is looked into.
    pub enabled: bool,
    /// What that has come to.
    #[serde(flatten)]
    pub counts: TreeCounts,
}

/// The list of added trees, in a file of the user's.
#[derive(Debug)]
pub struct TreeList {
    place: PathBuf,
}

impl TreeList {
    /// Returns the list in the file at `place`, which need not be there.
    pub fn at(place: PathBuf) -> Self {
        Self { place }
    }

    /// Returns the trees, in the order in which they are looked up.
    pub fn read(&self) -> io::Result<Vec<AddedTree>> {
        match fs::read(&self.place) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            text => serde_json::from_slice(&text?).map_err(io::Error::from),
        }
    }

    /// Changes the list, which no other process does at the same time; returns what `change` does.
    pub fn change<T>(&self, change: impl FnOnce(&mut Vec<AddedTree>) -> T) -> io::Result<T> {
        let dir = self.place.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(dir)?;
        let lock = File::create(self.place.with_extension("lock"))?;
        lock.lock()?;
        let mut trees = self.read()?;
        let changed = change(&mut trees);
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        file.write_all(&serde_json::to_vec_pretty(&trees)?)?;
        file.persist(&self.place).map_err(|failed| failed.error)?;
        Ok(changed)
    }

    /// Adds what was counted since it was added last to the trees of the list that are still there.
    pub fn add_counts(&self, trees: &LookasideTrees) -> io::Result<()> {
        let counted: Vec<_> = trees
            .take_counts()
            .into_iter()
            .filter(|(_, counts)| *counts != TreeCounts::default())
            .collect();
        if counted.is_empty() {
            return Ok(());
        }
        self.change(|list| {
            for (index, counts) in counted {
                for tree in list.iter_mut().filter(|tree| tree.index == index) {
                    tree.counts.hits += counts.hits;
                    tree.counts.misses += counts.misses;
                    tree.counts.stale += counts.stale;
                    tree.counts.bytes += counts.bytes;
                }
            }
        })
    }
}

/// The trees that are looked into, of those that are there.
pub struct LookasideTrees {
    clock: SharedClock,
    trees: RwLock<Vec<Arc<OpenTree>>>,
    /// The bytes that were found in all trees.
    found: AtomicU64,
    /// The seconds that a byte took lately, as the bits of a number; 0 before the first.
    seconds_per_byte: AtomicU64,
}

#[derive(Debug)]
struct OpenTree {
    index: LookasideIndex,
    hits: AtomicU64,
    misses: AtomicU64,
    stale: AtomicU64,
    bytes: AtomicU64,
}

impl OpenTree {
    fn of(index: LookasideIndex) -> Self {
        let zero = || AtomicU64::new(0);
        Self { index, hits: zero(), misses: zero(), stale: zero(), bytes: zero() }
    }
}

impl LookasideTrees {
    /// Opens the enabled trees of a list. One whose device is absent is passed over.
    pub fn open(list: &[AddedTree], clock: SharedClock) -> Self {
        let new = Self {
            clock,
            trees: RwLock::default(),
            found: AtomicU64::new(0),
            seconds_per_byte: AtomicU64::new(0),
        };
        new.look_into(list);
        new
    }

    /// Looks into the enabled trees of another list from now on; those that are open stay so. What was counted of others
    /// is forgotten.
    pub fn look_into(&self, list: &[AddedTree]) {
        let before = self.trees();
        let open = |tree: &AddedTree| {
            if let Some(open) = before.iter().find(|open| open.index.place() == tree.index) {
                return Some(Arc::clone(open));
            }
            match LookasideIndex::open(&tree.index) {
                Ok(index) => Some(Arc::new(OpenTree::of(index))),
                Err(IndexError::Missing(place)) => {
                    tracing::debug!("{} is absent", place.display());
                    None
                }
                Err(why) => {
                    tracing::warn!("not looked into: {why}");
                    None
                }
            }
        };
        let trees = list.iter().filter(|tree| tree.enabled).filter_map(open).collect();
        *self.trees.write().expect("no holder panics") = trees;
    }

    fn trees(&self) -> Vec<Arc<OpenTree>> {
        self.trees.read().expect("no holder panics").clone()
    }

    /// Returns the bytes that were found in all trees so far.
    pub fn found(&self) -> u64 {
        self.found.load(Ordering::Relaxed)
    }

    /// Returns what was counted since this was called last, by the paths of the indexes.
    pub fn take_counts(&self) -> Vec<(PathBuf, TreeCounts)> {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        let counts = |tree: &OpenTree| TreeCounts {
            hits: take(&tree.hits),
            misses: take(&tree.misses),
            stale: take(&tree.stale),
            bytes: take(&tree.bytes),
        };
        let trees = self.trees();
        trees.iter().map(|tree| (tree.index.place().to_owned(), counts(tree))).collect()
    }

    /// Notes how long the reading of a part took.
    fn took(&self, bytes: u32, time: Duration) {
        let new = time.as_secs_f64() / f64::from(bytes.max(1));
        let blend = |bits| {
            let before = f64::from_bits(bits);
            let next = if bits == 0 { new } else { REMEMBERED * before + (1.0 - REMEMBERED) * new };
            Some(next.to_bits())
        };
        let _ = self.seconds_per_byte.fetch_update(Ordering::Relaxed, Ordering::Relaxed, blend);
    }
}

impl ChunkSource for LookasideTrees {
    fn is_empty(&self) -> bool {
        self.trees.read().expect("no holder panics").is_empty()
    }

    fn read(&self, digest: &Digest, len: u32, is_right: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        for tree in self.trees() {
            let began = self.clock.now();
            let counter = match tree.index.read(digest, len, is_right) {
                Looked::Found(bytes) => {
                    self.took(len, self.clock.now().saturating_sub(began));
                    tree.hits.fetch_add(1, Ordering::Relaxed);
                    tree.bytes.fetch_add(len.into(), Ordering::Relaxed);
                    self.found.fetch_add(len.into(), Ordering::Relaxed);
                    return Some(bytes);
                }
                Looked::Missing => &tree.misses,
                Looked::Stale => &tree.stale,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
        None
    }

    fn expected(&self, len: u32) -> Option<Duration> {
        let bits = self.seconds_per_byte.load(Ordering::Relaxed);
        (bits != 0).then(|| Duration::from_secs_f64(f64::from_bits(bits) * f64::from(len)))
    }
}
