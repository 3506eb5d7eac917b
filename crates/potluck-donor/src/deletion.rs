//! Removes files from a store for these reasons: leftovers of earlier incarnations at the start, and chunks
//! on a tombstone; what is in quarantine has its own file. Nothing is ever removed for being absent from a
//! list (promise D5).

use crate::store::{HeldChange, Store, chunk_of, stored_len};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::Incarnation;
use std::ffi::OsString;
use std::io;

/// The longest file name that is kept in quarantine, where names get longer still.
const LONGEST_KEPT: usize = 128;

/// The outcome of a tombstone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// The chunk is not here any more.
    Deleted,
    /// The tombstone names another incarnation of this donor.
    OtherLife,
    /// The chunk was put later, or may have been: somebody needs it.
    WrittenSince,
    /// The disk refused to delete the file.
    Failed,
}

impl Store {
    /// Deletes `name` unless it was put after `write_sequence` of `incarnation`. To be told by
    /// [`Store::tell_deleted`].
    pub fn delete(
        &self,
        name: &ChunkName,
        incarnation: Incarnation,
        write_sequence: u64,
    ) -> Deletion {
        if incarnation != self.incarnation() {
            return Deletion::OtherLife;
        }
        let path = self.layout().chunk(name);
        let _alone = self.lock_name(name);
        if self.is_missing() {
            return Deletion::Failed; // what is there may be another store, or is being counted
        }
        let len = match self.disk().len(&path) {
            Ok(len) => len,
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                if !self.present() {
                    return Deletion::Failed; // the check of each second finds out what that means
                }
                return Deletion::Deleted;
            }
            Err(why) => {
                self.refuse("deleting a chunk", &why);
                return Deletion::Failed;
            }
        };
        if self.write_sequence().latest_of(name) > write_sequence {
            return Deletion::WrittenSince;
        }
        let removal = self.usage().removal(len);
        self.close(name);
        if let Err(why) = self.disk().remove(&path) {
            self.refuse("deleting a chunk", &why);
            return Deletion::Failed;
        }
        removal.done();
        Deletion::Deleted
    }

    /// Tells the manager of chunks that were deleted, once no power cut brings them back: by then it may have
    /// forgotten that they ever were, and nobody would reclaim them. One that was put again meanwhile is there.
    pub fn tell_deleted(&self, names: &[ChunkName]) {
        let mut dirs: Vec<_> = names.iter().map(|name| self.layout().chunk_dir(name)).collect();
        dirs.sort_unstable();
        dirs.dedup();
        for dir in dirs {
            if let Err(why) = self.disk().sync_dir(&dir) {
                self.refuse("syncing a directory", &why);
                return; // the manager gives the order again
            }
        }
        for name in names {
            let _alone = self.lock_name(name);
            let found = self.disk().len(&self.layout().chunk(name));
            let is_gone = found.is_err_and(|why| why.kind() == io::ErrorKind::NotFound);
            if is_gone && self.present() {
                self.changes().push(HeldChange::Removed(*name));
            }
        }
    }
}

/// Empties `temp`, makes missing directories, quarantines what is no chunk, counts the rest.
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
        let (found, quarantined) = look_through(store, first)?;
        chunks += found;
        odd += quarantined;
    }
    disk.sync_dir(layout.chunks())?;
    disk.sync_dir(layout.root())?;
    disk.list(layout.quarantine(), &mut |entry| {
        let Some(len) = entry.file else { return };
        store.usage().found(len);
        store.count_quarantined(layout.quarantine().join(entry.name), len);
    })?;
    store.usage().found(disk.len(layout.marker())?);
    if !unfinished.is_empty() || odd > 0 {
        let removed = unfinished.len();
        tracing::info!(
            "an earlier incarnation left {removed} unfinished chunks (removed) and {odd} damaged files (quarantined)"
        );
    }
    tracing::info!("the store in {} holds {chunks} chunks", layout.root().display());
    Ok(())
}

/// Counts the chunks of one bucket; gives their number and how many other files were quarantined.
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
        let path = layout.quarantined(text, store.incarnation(), store.next_serial());
        disk.rename(&bucket.join(name), &path)?;
    }
    Ok((chunks, odd.len() as u64))
}
