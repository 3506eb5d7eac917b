//! Reads chunks back and compares them with their names (promise R1).

use super::{HeldChange, Store, StoreRefusal};
use crate::disk::{OldFile, is_broken, is_no_file, read_exact_at};
use potluck_core::chunk::{ChunkName, Verifier};
use potluck_core::chunk_file::{TRAILER, stored_len, tail_len};
use potluck_wire::bulk::PIECE;
use std::io;

/// The number of times that a verification is tried while the chunk is put or deleted meanwhile, and that a file is
/// read while reads fail.
const TRIES: usize = 3;

/// The health of a copy that was read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyHealth {
    /// The bytes are those of the chunk's name.
    Sound,
    /// The bytes are not those of the chunk's name; the file is quarantined.
    Spoiled,
    /// The bytes could not be read in several tries; the file is quarantined.
    Unreadable,
    /// The chunk is not here.
    Missing,
}

impl Store {
    /// Reads the whole chunk `name`, compares it with its name, and quarantines it if it is spoiled or unreadable. The
    /// result is reported by heartbeat. A sound chunk counts as put again: the manager relies on it from now on, so no
    /// earlier tombstone deletes it, not even one that waits here already.
    pub fn verify(&self, name: &ChunkName) -> Result<CopyHealth, StoreRefusal> {
        self.judge(name, |health| match health {
            CopyHealth::Sound => {
                self.write_sequence().wrote(name);
                Some(HeldChange::Sound(*name))
            }
            CopyHealth::Missing => Some(HeldChange::Removed(*name)),
            CopyHealth::Spoiled | CopyHealth::Unreadable => None, // reported when it is quarantined
        })
    }

    /// Verifies a chunk although the manager did not ask: only a spoiled or unreadable one is reported.
    pub fn scrub(&self, name: &ChunkName) -> Result<CopyHealth, StoreRefusal> {
        self.judge(name, |_| None)
    }

    fn judge(
        &self,
        name: &ChunkName,
        news: impl Fn(CopyHealth) -> Option<HeldChange>,
    ) -> Result<CopyHealth, StoreRefusal> {
        for _ in 0..TRIES {
            let written = self.write_sequence().latest_of(name);
            let health = self.read_back(name)?;
            let _alone = self.lock_name(name);
            if self.is_missing() {
                return Err(StoreRefusal::Disk); // another store may be there, or the store is being counted
            }
            // The chunk was deleted meanwhile, so the bytes that were read say nothing of the present state.
            if health != CopyHealth::Missing && self.disk().len(&self.layout().chunk(name)).is_err()
            {
                continue;
            }
            // The chunk was put meanwhile, so there may be another file now.
            if health != CopyHealth::Sound && self.write_sequence().latest_of(name) != written {
                continue;
            }
            if matches!(health, CopyHealth::Spoiled | CopyHealth::Unreadable) {
                return self.quarantine_chunk(name, health);
            }
            news(health).into_iter().for_each(|change| self.changes().push(change));
            return Ok(health);
        }
        Err(StoreRefusal::Lost)
    }

    fn read_back(&self, name: &ChunkName) -> Result<CopyHealth, StoreRefusal> {
        match self.disk().open(&self.layout().chunk(name)) {
            Ok(file) => Ok(self.health_of(&*file, name)),
            Err(why) if why.kind() == io::ErrorKind::NotFound && self.present() => {
                Ok(CopyHealth::Missing)
            }
            // The check of each second finds out whether the store is missing.
            Err(why) if why.kind() == io::ErrorKind::NotFound => Err(StoreRefusal::Disk),
            Err(why) if is_no_file(&why) => Ok(CopyHealth::Spoiled),
            // This process lacks file descriptors or memory, which says nothing of the chunk.
            Err(why) if !is_broken(&why) => {
                Err(self.refuse(&format!("opening chunk {name}"), &why))
            }
            Err(why) => {
                tracing::warn!("cannot open chunk {name}: {why}");
                Ok(CopyHealth::Unreadable)
            }
        }
    }

    /// Compares a file with the chunk `name`, and reads it again if a read fails: most faults of a cable pass at once.
    pub(super) fn health_of(&self, file: &dyn OldFile, name: &ChunkName) -> CopyHealth {
        let Some(len) = stored_len(file.len()) else { return CopyHealth::Spoiled };
        for _ in 0..TRIES {
            // The bytes are read from the disk, not from the page cache; and the pages of a chunk that nobody reads are
            // not worth keeping there.
            forget_pages(file);
            let hashed = hash(file, len, name);
            forget_pages(file);
            match hashed {
                Ok(true) => return CopyHealth::Sound,
                Ok(false) => return CopyHealth::Spoiled,
                Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => {
                    return CopyHealth::Spoiled; // the file was cut off
                }
                Err(why) => tracing::warn!("cannot read chunk {name}: {why}"),
            }
        }
        CopyHealth::Unreadable
    }

    /// Drops the marker from the page cache, so that the next check reads it from the disk.
    pub(super) fn forget_marker(&self) {
        if let Ok(file) = self.disk().open(self.layout().marker()) {
            forget_pages(&*file);
        }
    }

    fn quarantine_chunk(
        &self,
        name: &ChunkName,
        health: CopyHealth,
    ) -> Result<CopyHealth, StoreRefusal> {
        let (incarnation, serial) = (self.incarnation(), self.next_serial());
        let path = self.layout().quarantined(&name.to_string(), incarnation, serial);
        self.open_chunks.close(name);
        match self.rename(&self.layout().chunk(name), &path) {
            Ok(()) => {
                let (how, change) = match health {
                    CopyHealth::Unreadable => ("cannot be read", HeldChange::Unreadable(*name)),
                    _ => ("is spoiled", HeldChange::Spoiled(*name)),
                };
                tracing::warn!("chunk {name} {how}; quarantined as {}", path.display());
                self.changes().push(change);
                let len = self.disk().len(&path).unwrap_or(0);
                self.count_quarantined(path, len);
                Ok(health)
            }
            Err(why) => Err(self.refuse("quarantining a chunk", &why)),
        }
    }
}

fn forget_pages(file: &dyn OldFile) {
    if let Some(file) = file.as_file() {
        let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed); // only advice
    }
}

fn hash(file: &dyn OldFile, len: u32, name: &ChunkName) -> io::Result<bool> {
    let mut verifier = Verifier::new(*name);
    let mut piece = vec![0; PIECE.min(len as usize)];
    let mut at = 0;
    while at < len as usize {
        let want = piece.len().min(len as usize - at);
        match file.read_at(&mut piece[..want], at as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                verifier.update(&piece[..n]);
                at += n;
            }
        }
    }
    // The stored hashes are compared, too: with wrong ones no part of the chunk could be proved to a reader.
    let mut table = vec![0; tail_len(len) - TRAILER];
    read_exact_at(file, &mut table, len.into())?;
    Ok(verifier.finish().is_ok_and(|hashes| hashes.as_bytes() == table))
}
