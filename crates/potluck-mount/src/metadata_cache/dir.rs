//! One directory of the metadata cache.

use potluck_core::attributes::FileTime;
use potluck_core::entry_stamp::EntryStamp;
use potluck_core::kept_place::is_reserved;
use potluck_core::path::PoolPath;
use potluck_wire::control::{DirDigest, KnownDir, KnownName, ListedEntry, MAX_REFRESHED};
use std::collections::BTreeMap;

/// The bytes that a directory is counted with in addition to its names.
pub const BYTES: usize = 400;
/// The bytes that a name is counted with in addition to itself, and those that an entry behind it is.
const OF_NAME: usize = 80;
const OF_ENTRY: usize = 240;
/// The number of names that are looked for one by one before the directory is listed: a program that makes many files
/// in it looks for each of them.
const LISTED_AFTER: u32 = 4;
/// The most names of a whole directory that are compared with the manager one by one, so that it tells what differs.
/// Of a larger one the digest is compared, and it is listed anew if that differs.
const COMPARED_BY_NAME: usize = 512;

/// A directory, or some of its names.
#[derive(Debug, Default)]
pub struct CachedDir {
    names: BTreeMap<String, Behind>,
    /// Whether nothing is behind names that are not kept; otherwise they are not known.
    is_whole: bool,
    /// How many names are not known, or are not known in full.
    unknown: usize,
    bytes: usize,
    /// How often a single name was looked for that was not known.
    misses: u32,
    /// The number that orders directories by their last use.
    pub used: u64,
}

/// The entry behind a name.
#[derive(Debug)]
pub enum Behind {
    Entry(Box<ListedEntry>),
    /// An entry that is there as before, with other attributes.
    Touched(Box<ListedEntry>),
    Nothing,
    Unknown,
}

impl Behind {
    /// Whether the manager has to be asked what is behind the name, or what its attributes are.
    fn is_unknown(&self) -> bool {
        matches!(self, Self::Touched(_) | Self::Unknown)
    }
}

/// Makes a question about a name of which nothing is known.
pub fn unknown(name: impl Into<String>) -> KnownName {
    KnownName { name: name.into(), stamp: None }
}

impl CachedDir {
    /// Returns what is behind a name: an entry, or `Some(None)` for nothing; `None` where that is not known. The
    /// attributes of the entry are what they were.
    pub fn get(&self, name: &str) -> Option<Option<&ListedEntry>> {
        match self.names.get(name) {
            Some(Behind::Entry(entry) | Behind::Touched(entry)) => Some(Some(entry)),
            Some(Behind::Nothing) => Some(None),
            Some(Behind::Unknown) => None,
            // A listing never has reserved names, so such a name may be there.
            None => (self.is_whole && !is_reserved(name)).then_some(None),
        }
    }

    /// Whether the attributes behind a name are others by now.
    pub fn is_touched(&self, name: &str) -> bool {
        matches!(self.names.get(name), Some(Behind::Touched(_)))
    }

    /// Notes that attributes of what is behind a name were set.
    pub fn touch(&mut self, name: &str) {
        match self.names.remove(name) {
            Some(Behind::Entry(entry)) => {
                self.names.insert(name.into(), Behind::Touched(entry));
                self.unknown += 1;
            }
            Some(other) => drop(self.names.insert(name.into(), other)),
            None => {}
        }
    }

    /// Notes that the entry behind a name was modified at a time, and that nothing else of it has changed, if all is
    /// known that there is to know.
    pub fn modified(&mut self, name: &str, modified: FileTime) {
        if let Some(Behind::Entry(entry)) = self.names.get_mut(name) {
            entry.mtime = entry.mtime.max(modified);
        }
    }

    /// Counts one more look for a name that is not known; tells, once, that it is better to ask for all names.
    pub fn is_worth_listing(&mut self) -> bool {
        self.misses = self.misses.saturating_add(1);
        !self.is_whole && self.misses == LISTED_AFTER
    }

    /// Returns all entries, if they are known.
    pub fn listing(&self) -> Option<Vec<ListedEntry>> {
        let entries = self.names.iter().filter_map(|(name, behind)| match behind {
            Behind::Entry(entry) if !is_reserved(name) => Some(ListedEntry::clone(entry)),
            Behind::Entry(_) | Behind::Touched(_) | Behind::Nothing | Behind::Unknown => None,
        });
        (self.is_whole && self.unknown == 0).then(|| entries.collect())
    }

    /// Returns the names that are missing in the listing; `None` where all of it is.
    pub fn names_to_complete(&self) -> Option<Vec<String>> {
        let unknown = self.names.iter().filter(|(_, behind)| behind.is_unknown());
        self.is_whole.then(|| unknown.map(|(name, _)| name.clone()).collect())
    }

    /// Notes that all entries that are there are going to be put.
    pub fn begin_listing(&mut self) {
        *self = Self { is_whole: true, used: self.used, misses: self.misses, ..Self::default() };
    }

    /// Notes that there may be entries that are not kept.
    pub fn is_partial(&mut self) {
        self.is_whole = false;
        let unknown = self.names.extract_if(.., |_, behind| behind.is_unknown());
        self.bytes -= unknown.map(|(name, behind)| bytes_of(&name, &behind)).sum::<usize>();
        self.unknown = 0;
    }

    /// Keeps what is behind a name.
    pub fn put(&mut self, name: &str, behind: Behind) {
        if let Some((name, before)) = self.names.remove_entry(name) {
            self.bytes -= bytes_of(&name, &before);
            self.unknown -= usize::from(before.is_unknown());
        }
        let is_kept = match behind {
            Behind::Entry(_) | Behind::Touched(_) => true,
            Behind::Nothing => !self.is_whole || is_reserved(name),
            Behind::Unknown => self.is_whole,
        };
        if is_kept {
            self.bytes += bytes_of(name, &behind);
            self.unknown += usize::from(behind.is_unknown());
            self.names.insert(name.into(), behind);
        }
    }

    /// Returns how many bytes the names take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns what is known, for the manager to compare; `None` where that is more than one call asks.
    pub fn known(&self, path: PoolPath) -> Option<KnownDir> {
        let mut known = KnownDir::new(path);
        if self.is_whole && self.names.len() > COMPARED_BY_NAME {
            let mut digest = DirDigest::default();
            for (name, behind) in self.names.iter().filter(|(name, _)| !is_reserved(name)) {
                let Behind::Entry(entry) = behind else { return None };
                digest.add(name, &entry.stamp());
            }
            known.digest = Some(digest.finish());
            return Some(known);
        }
        let stamp = |behind: &Behind| match behind {
            Behind::Entry(entry) => Some(entry.stamp()),
            Behind::Nothing => Some(EntryStamp::NOTHING),
            Behind::Touched(_) | Behind::Unknown => None,
        };
        let names = self.names.iter();
        let names = names.map(|(name, it)| KnownName { name: name.clone(), stamp: stamp(it) });
        known.names = names.collect();
        known.whole = self.is_whole;
        (known.names.len() < MAX_REFRESHED).then_some(known)
    }
}

fn bytes_of(name: &str, behind: &Behind) -> usize {
    let of_entry = match behind {
        Behind::Entry(entry) | Behind::Touched(entry) => {
            OF_ENTRY + name.len() + entry.target.as_ref().map_or(0, |target| target.as_str().len())
        }
        Behind::Nothing | Behind::Unknown => 0,
    };
    name.len() + OF_NAME + of_entry
}
