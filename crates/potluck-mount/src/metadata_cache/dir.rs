//! One directory of the metadata cache.

use potluck_core::attributes::FileTime;
use potluck_core::entry_stamp::EntryStamp;
use potluck_core::kept_place::is_reserved;
use potluck_core::path::PoolPath;
use potluck_wire::control::{DirDigest, KnownDir, KnownName, ListedEntry, MAX_REFRESHED};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

/// The number of bytes that a directory counts in addition to its names.
pub const BYTES: usize = 400;
/// The number of bytes that a name counts in addition to itself; an entry behind it counts [`OF_ENTRY`] more.
const OF_NAME: usize = 80;
const OF_ENTRY: usize = 240;
/// The number of looks for single names at which a directory is listed: a program that makes many files in it looks for
/// each of them.
const LISTED_AFTER: u32 = 4;
/// The most unknown names that are asked for with one that a program looks for, and the most names among which they are
/// looked for.
const NEXT_ASKED: usize = 63;
const NEXT_LOOKED_AT: usize = 256;
/// The most names of a whole directory that are compared with the manager one by one, so that it tells what differs.
/// For a larger directory only the digest is compared, and it is listed anew if that differs.
const COMPARED_BY_NAME: usize = 512;

/// A directory, or some of its names.
#[derive(Debug, Default)]
pub struct CachedDir {
    names: BTreeMap<String, Behind>,
    /// True if names that are not kept do not exist; otherwise they are unknown.
    is_whole: bool,
    /// The number of kept names that are unknown, or whose attributes are.
    unknown: usize,
    bytes: usize,
    /// The number of looks for a single name that was unknown.
    misses: u32,
    /// The number that orders directories by their last use.
    pub used: u64,
}

/// The entry behind a name.
#[derive(Debug)]
pub enum Behind {
    Entry(Box<ListedEntry>),
    /// The entry is as before, but its attributes may be out of date.
    Touched(Box<ListedEntry>),
    Nothing,
    Unknown,
}

impl Behind {
    /// Returns whether the manager has to be asked for the entry, or for its attributes.
    fn is_unknown(&self) -> bool {
        matches!(self, Self::Touched(_) | Self::Unknown)
    }
}

/// Makes a question about a name of which nothing is known.
pub fn unknown(name: impl Into<String>) -> KnownName {
    KnownName { name: name.into(), stamp: None }
}

impl CachedDir {
    /// Returns what is behind a name: an entry, or `Some(None)` for nothing; `None` if that is not known. The
    /// attributes of the entry may be out of date.
    pub fn get(&self, name: &str) -> Option<Option<&ListedEntry>> {
        match self.names.get(name) {
            Some(Behind::Entry(entry) | Behind::Touched(entry)) => Some(Some(entry)),
            Some(Behind::Nothing) => Some(None),
            Some(Behind::Unknown) => None,
            // A listing never has reserved names, so such a name may be there.
            None => (self.is_whole && !is_reserved(name)).then_some(None),
        }
    }

    /// Returns whether the attributes of the entry behind a name may be out of date.
    pub fn is_touched(&self, name: &str) -> bool {
        matches!(self.names.get(name), Some(Behind::Touched(_)))
    }

    /// Notes that attributes of the entry behind a name were set.
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

    /// Sets the modification time of the entry behind a name, if the entry is known with its attributes. A time earlier
    /// than the known one is ignored.
    pub fn modified(&mut self, name: &str, modified: FileTime) {
        if let Some(Behind::Entry(entry)) = self.names.get_mut(name) {
            entry.mtime = entry.mtime.max(modified);
            entry.changed = entry.changed.max(modified);
        }
    }

    /// Sets the modification time of the directory behind a name, as the manager told it. If a later time is known,
    /// from this mount's own changes or because somebody set it, the attributes are unknown instead.
    pub fn was_modified(&mut self, name: &str, at: FileTime) {
        match self.names.get_mut(name) {
            Some(Behind::Entry(entry)) if entry.mtime <= at => {
                (entry.mtime, entry.changed) = (at, at);
            }
            _ => self.touch(name),
        }
    }

    /// Counts one more look for a name that is not known; returns true once, when it is better to ask for all names.
    pub fn is_worth_listing(&mut self) -> bool {
        self.misses = self.misses.saturating_add(1);
        !self.is_whole && self.misses == LISTED_AFTER
    }

    /// Returns all entries, if they are known with their attributes.
    pub fn listing(&self) -> Option<Vec<ListedEntry>> {
        let entries = self.names.iter().filter_map(|(name, behind)| match behind {
            Behind::Entry(entry) if !is_reserved(name) => Some(ListedEntry::clone(entry)),
            Behind::Entry(_) | Behind::Touched(_) | Behind::Nothing | Behind::Unknown => None,
        });
        (self.is_whole && self.unknown == 0).then(|| entries.collect())
    }

    /// Returns the unknown names of the listing; `None` if the directory has to be listed anew.
    pub fn names_to_complete(&self) -> Option<Vec<String>> {
        let unknown = self.names.iter().filter(|(_, behind)| behind.is_unknown());
        self.is_whole.then(|| unknown.map(|(name, _)| name.clone()).collect())
    }

    /// Returns a name, and unknown ones that come soon after it: a program that looks at one looks at the next, too.
    pub fn with_next_unknown(&self, name: &str) -> Vec<String> {
        let next = self.names.range::<str, _>((Excluded(name), Unbounded)).take(NEXT_LOOKED_AT);
        let unknown = next.filter(|(name, it)| it.is_unknown() && !is_reserved(name));
        let unknown = unknown.map(|(name, _)| name.clone()).take(NEXT_ASKED);
        std::iter::once(name.to_owned()).chain(unknown).collect()
    }

    /// Forgets all names, and notes that all entries of the directory are going to be put.
    pub fn begin_listing(&mut self) {
        *self = Self { is_whole: true, used: self.used, misses: self.misses, ..Self::default() };
    }

    /// Notes that the directory may have entries that are not kept.
    pub fn is_partial(&mut self) {
        self.is_whole = false;
        let unknown = self.names.extract_if(.., |_, behind| behind.is_unknown());
        self.bytes -= unknown.map(|(name, behind)| bytes_of(&name, &behind)).sum::<usize>();
        self.unknown = 0;
    }

    /// Keeps what is behind a name, unless that follows from the name not being kept.
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

    /// Returns the number of bytes that the names count.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns what is known, for the manager to compare; `None` if one call cannot ask for so much, or if the digest
    /// of a large directory is unknown.
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
