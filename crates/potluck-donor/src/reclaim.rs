//! What is removed from a store, and why: leftovers of earlier lives at the start, chunks on a
//! tombstone, and what was set aside when its room is needed. Nothing is ever removed for being
//! absent from a list (promise D5).

use crate::store::{Change, Store, chunk_of, stored_len, taken};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::Incarnation;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// Longer file names are not kept in quarantine, where they get longer still.
const LONGEST_KEPT: usize = 128;
/// One part in so many of what is lent is for what is set aside: enough to look into what happened,
/// while a bad cable that spoils a whole disk costs the pool little of it.
const ASIDE_PART: u64 = 20;

/// What became of a tombstone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Buried {
    /// The chunk is not here any more; reported by heartbeat.
    Gone,
    /// It was counted in another life.
    OtherLife,
    /// The chunk was put later, or may have been: somebody needs it.
    WrittenSince,
    /// The disk refused.
    Failed,
}

impl Store {
    /// Deletes `name` unless it was put after `write_sequence` of the life `incarnation`.
    pub fn bury(&self, name: &ChunkName, incarnation: Incarnation, write_sequence: u64) -> Buried {
        if incarnation != self.incarnation() {
            return Buried::OtherLife;
        }
        let path = self.layout().chunk(name);
        let _alone = self.lock_name(name);
        if self.gone() {
            return Buried::Failed; // what is there may be another store, or is being counted
        }
        let len = match self.disk().len(&path) {
            Ok(len) => len,
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                if !self.present() {
                    return Buried::Failed; // what that means, the look of each second finds out
                }
                self.changes().push(Change::Removed(*name));
                return Buried::Gone;
            }
            Err(why) => {
                self.refuse("deleting a chunk", &why);
                return Buried::Failed;
            }
        };
        if self.write_sequence().latest_of(name) > write_sequence {
            return Buried::WrittenSince;
        }
        let leaving = self.usage().going(len);
        if let Err(why) = self.disk().remove(&path) {
            self.refuse("deleting a chunk", &why);
            return Buried::Failed;
        }
        leaving.gone();
        self.changes().push(Change::Removed(*name));
        Buried::Gone
    }

    /// Counts a file of `len` bytes among those set aside; what it takes is counted already.
    pub(crate) fn is_aside(&self, path: PathBuf, len: u64) {
        let mut aside = self.aside();
        aside.bytes += taken(len);
        aside.files.push_back((path, len));
    }

    /// Removes what was set aside, the oldest first, while the owner's limits do not hold or
    /// there is more of it than its part of what is lent. Whether anything was removed.
    pub(crate) fn shed(&self) -> bool {
        let more = self.aside().bytes.saturating_sub(self.usage().limits().max / ASIDE_PART);
        self.remove_aside(self.excess().max(more))
    }

    /// Removes all that was set aside: the owner takes everything back.
    pub fn clear_aside(&self) {
        self.remove_aside(u64::MAX);
    }

    fn remove_aside(&self, bytes: u64) -> bool {
        let mut gone = 0;
        while gone < bytes {
            let mut aside = self.aside();
            let Some((path, len)) = aside.files.pop_front() else { break };
            aside.bytes = aside.bytes.saturating_sub(taken(len));
            drop(aside);
            let leaving = self.usage().going(len);
            match self.disk().remove(&path) {
                Err(why) if why.kind() != io::ErrorKind::NotFound => {
                    // Tried again at the next look, after the others.
                    tracing::warn!("cannot remove {}: {why}", path.display());
                    self.is_aside(path, len);
                    break;
                }
                _ => {
                    leaving.gone();
                    gone += taken(len);
                }
            }
        }
        gone > 0
    }
}

/// Empties `temp`, makes missing directories, sets aside what is no chunk, counts the rest.
pub(crate) fn leftovers(store: &Store) -> io::Result<()> {
    let (disk, layout) = (store.disk(), store.layout());
    for dir in [layout.chunks(), layout.temp(), layout.quarantine()] {
        disk.make_dir(dir)?;
    }
    let mut unfinished: Vec<OsString> = Vec::new();
    disk.list(layout.temp(), &mut |entry| {
        unfinished.extend(entry.file.map(|_| entry.name.to_owned()));
    })?;
    for name in &unfinished {
        disk.remove(&layout.temp().join(name))?;
    }
    let mut chunks = 0;
    let mut odd = 0;
    for first in 0..=u8::MAX {
        let (found, aside) = look_through(store, first)?;
        chunks += found;
        odd += aside;
    }
    disk.sync_dir(layout.chunks())?;
    disk.sync_dir(layout.root())?;
    disk.list(layout.quarantine(), &mut |entry| {
        let Some(len) = entry.file else { return };
        store.usage().found(len);
        store.is_aside(layout.quarantine().join(entry.name), len);
    })?;
    store.usage().found(disk.len(layout.marker())?);
    if !unfinished.is_empty() || odd > 0 {
        let removed = unfinished.len();
        tracing::info!(
            "an earlier life left {removed} unfinished chunks (removed) and {odd} damaged files (kept aside)"
        );
    }
    tracing::info!("the store in {} holds {chunks} chunks", layout.root().display());
    Ok(())
}

/// Counts the chunks of one bucket; gives their number and how many other files were set aside.
fn look_through(store: &Store, first: u8) -> io::Result<(u64, u64)> {
    let (disk, layout) = (store.disk(), store.layout());
    let bucket = layout.bucket(first);
    let (mut chunks, mut odd) = (0, Vec::new());
    let listed = disk.list(&bucket, &mut |entry| {
        let Some(len) = entry.file else { return }; // not ours, and nothing to serve
        if chunk_of(first, entry.name).is_some() && stored_len(len).is_some() {
            store.usage().found(len);
            chunks += 1;
        } else {
            odd.push(entry.name.to_owned());
        }
    });
    match listed {
        Err(why) if why.kind() == io::ErrorKind::NotFound => disk.make_dir(&bucket)?,
        listed => listed?,
    }
    for name in &odd {
        let text = name.to_str().filter(|text| text.len() <= LONGEST_KEPT).unwrap_or("odd");
        let aside = layout.set_aside(text, store.incarnation(), store.next_serial());
        disk.rename(&bucket.join(name), &aside)?;
    }
    Ok((chunks, odd.len() as u64))
}
