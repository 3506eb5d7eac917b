//! The removal of files from a store: leftovers of earlier incarnations at the start, and chunks on a tombstone.
//! Quarantined chunks are removed by a file of their own. Nothing is ever removed for being absent from a list (promise
//! D5).

use crate::store::{HeldChange, Store, chunk_of};
use potluck_core::chunk::ChunkName;
use potluck_core::chunk_file::stored_len;
use potluck_core::ids::Incarnation;
use std::ffi::OsString;
use std::io;

/// The length in bytes of the longest file name that is kept in quarantine, where names get a suffix.
const LONGEST_KEPT: usize = 128;

/// The outcome of a tombstone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// The chunk is not here any more.
    Deleted,
    /// The tombstone names another incarnation of this donor.
    OtherLife,
    /// The chunk was put after the tombstone was written, or may have been, so a file may use it.
    WrittenSince,
    /// The file could not be deleted: the disk failed, or the store is missing.
    Failed,
}

impl Store {
    /// Deletes `name` unless it was put after `write_sequence` of `incarnation`. The caller reports it by
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
            return Deletion::Failed; // another store may be there, or the store is being counted
        }
        let len = match self.disk().len(&path) {
            Ok(len) => len,
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                if !self.present() {
                    return Deletion::Failed; // the check of each second finds out whether the store is lost
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

    /// Reports deleted chunks to the manager once no power cut can bring them back: the manager forgets a chunk that is
    /// reported, and nobody would reclaim one that came back. A chunk that was put again meanwhile is not reported.
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

/// Makes missing directories, removes the files in `temp`, quarantines files in the buckets that are no chunks, and
/// counts chunks and quarantined files.
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

/// Counts the chunks of one bucket and quarantines its other files; returns the two numbers.
fn look_through(store: &Store, first: u8) -> io::Result<(u64, u64)> {
    let (disk, layout) = (store.disk(), store.layout());
    let bucket = layout.bucket(first);
    let (mut chunks, mut odd) = (0, Vec::new());
    let listed = disk.list(&bucket, &mut |entry| {
        let Some(len) = entry.file else { return }; // this is no regular file, and not the donor's
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
