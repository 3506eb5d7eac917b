//! The quarantine: files that are no chunk, and chunks whose bytes were found wrong or could not be read. A cable, a
//! controller or memory that fails for a while says nothing of the bytes on the disk, so each quarantined chunk is
//! looked at again, at growing intervals. A chunk that is sound is taken out of quarantine. If it is found bad once
//! more, its intervals go on from where they were, so that a chunk on a disk that fails now and then does not come and
//! go all the time. A quarantined chunk is removed only when the manager says that it has another good copy or is not
//! needed (the catalog's `dispensable`), or when it was stored here again.

use super::copy_health::CopyHealth;
use super::{HeldChange, Store};
use potluck_core::chunk::ChunkName;
use potluck_core::chunk_file::{disk_bytes, stored_len};
use potluck_core::clock::Tick;
use potluck_wire::control::Holding;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Quarantined files may take one part in so many of the lent space: enough to find out what happened, while a bad
/// cable that spoils a whole disk costs the pool little room.
const PART: u64 = 20;
/// The most chunks that one heartbeat asks about.
const ASKED: usize = 256;
/// The time from the first look at a quarantined chunk, which is due at once, to the second.
const SHORTEST_WAIT: Duration = Duration::from_secs(2);
/// The most files that are looked at in one turn.
const PER_TURN: usize = 16;
/// The most chunks taken out of quarantine whose looks are remembered.
const REMEMBERED: usize = 1024;
/// The longest time between two looks; each look doubles the time until it is reached.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// The files in quarantine.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    /// The files in the order in which they were quarantined or found at the start. A file goes to the end when a look
    /// found it bad again, or when the manager did not let it go.
    files: VecDeque<Quarantined>,
    /// The number of bytes that the quarantined files take on the disk.
    bytes: u64,
    /// The chunks that were taken out of quarantine last, with the looks at each.
    restored: VecDeque<(ChunkName, Looks)>,
}

/// The looks at a quarantined chunk: how many were made, and when the next is due.
#[derive(Debug, Clone, Copy, Default)]
struct Looks {
    made: u32,
    next: Tick,
}

impl Looks {
    /// Returns these looks with one more, which is made at `now`.
    fn and(self, now: Tick) -> Self {
        let wait = SHORTEST_WAIT.saturating_mul(2_u32.saturating_pow(self.made));
        Self { made: self.made + 1, next: now + wait.min(LONGEST_WAIT) }
    }
}

#[derive(Debug)]
struct Quarantined {
    path: PathBuf,
    len: u64,
    /// The chunk that the file was, by its name; `None` for a file that never was one.
    chunk: Option<ChunkName>,
    looks: Looks,
}

impl Quarantined {
    fn is_due(&self, now: Tick) -> bool {
        self.chunk.is_some() && self.looks.next <= now
    }
}

impl Quarantine {
    /// Removes the file at the position `at` from the list.
    fn take(&mut self, at: usize) -> Option<Quarantined> {
        let file = self.files.remove(at)?;
        self.bytes = self.bytes.saturating_sub(disk_bytes(file.len));
        Some(file)
    }

    fn add(&mut self, file: Quarantined) {
        self.bytes += disk_bytes(file.len);
        self.files.push_back(file);
    }

    /// Removes and returns the remembered looks at `name`.
    fn take_looks(&mut self, name: &ChunkName) -> Option<Looks> {
        let at = self.restored.iter().position(|(restored, _)| restored == name)?;
        self.restored.remove(at).map(|(_, looks)| looks)
    }

    fn restored(&mut self, name: ChunkName, looks: Looks) {
        self.restored.push_back((name, looks));
        if self.restored.len() > REMEMBERED {
            self.restored.pop_front();
        }
    }

    #[cfg(test)]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.files.iter().map(|file| file.path.clone()).collect()
    }

    #[cfg(test)]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Store {
    /// Adds a file of `len` bytes to the quarantined ones; the room that it takes is counted already.
    pub(crate) fn count_quarantined(&self, path: PathBuf, len: u64) {
        let chunk = chunk_of(&path);
        let mut quarantine = self.quarantine();
        let looks = chunk.and_then(|name| quarantine.take_looks(&name)).unwrap_or_default();
        quarantine.add(Quarantined { path, len, chunk, looks });
    }

    /// Returns the number of bytes of quarantined files that should go, because the owner's limits do not hold, or
    /// because the files take more than their part of the lent space.
    fn too_much_quarantined(&self) -> u64 {
        let more = self.quarantine().bytes.saturating_sub(self.usage().limits().max / PART);
        self.excess().max(more)
    }

    /// Removes quarantined files that never were chunks, the oldest first, while too much is in quarantine. Returns
    /// whether any was removed.
    pub(crate) fn trim_quarantine(&self) -> bool {
        let mut left = self.too_much_quarantined();
        let mut removed = false;
        while left > 0 {
            let mut quarantine = self.quarantine();
            let odd = quarantine.files.iter().position(|file| file.chunk.is_none());
            let Some(file) = odd.and_then(|at| quarantine.take(at)) else { break };
            drop(quarantine);
            left = left.saturating_sub(disk_bytes(file.len));
            if !self.remove_quarantined(file) {
                break; // tried again at the next check of the disk
            }
            removed = true;
        }
        removed
    }

    /// Returns the chunks whose quarantined files should go, at most `ASKED`, in the order of the list; all count
    /// when the owner is `leaving`. The manager is asked whether they may go.
    pub(crate) fn to_discard(&self, leaving: bool) -> Vec<ChunkName> {
        let mut left = if leaving { u64::MAX } else { self.too_much_quarantined() };
        let mut chunks = Vec::new();
        for file in &self.quarantine().files {
            if left == 0 || chunks.len() == ASKED {
                break;
            }
            chunks.extend(file.chunk);
            left = left.saturating_sub(disk_bytes(file.len));
        }
        chunks
    }

    /// Removes the quarantined files of the chunks of `asked` that are in `granted`: they have good copies, or are not
    /// needed. The other chunks of `asked` go to the end of the list, so that others are asked about first next time.
    pub(crate) fn discard(&self, asked: &[ChunkName], granted: &[ChunkName]) {
        let asked: BTreeSet<_> = asked.iter().collect();
        let granted: BTreeSet<_> = granted.iter().filter(|name| asked.contains(name)).collect();
        let is_in = |names: &BTreeSet<_>, file: &Quarantined| {
            file.chunk.as_ref().is_some_and(|chunk| names.contains(chunk))
        };
        let mut quarantine = self.quarantine();
        let files = std::mem::take(&mut quarantine.files);
        quarantine.bytes = 0;
        let (gone, kept): (VecDeque<_>, VecDeque<_>) =
            files.into_iter().partition(|file| is_in(&granted, file));
        let (needed, others): (VecDeque<_>, VecDeque<_>) =
            kept.into_iter().partition(|file| is_in(&asked, file));
        others.into_iter().chain(needed).for_each(|file| quarantine.add(file));
        drop(quarantine);
        for file in gone {
            self.remove_quarantined(file);
        }
    }

    fn remove_quarantined(&self, file: Quarantined) -> bool {
        let removal = self.usage().removal(file.len);
        match self.disk().remove(&file.path) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("cannot remove {}: {why}", file.path.display());
                self.quarantine().add(file);
                false
            }
            _ => {
                removal.done();
                true
            }
        }
    }

    /// Returns whether a quarantined chunk is due to be looked at again.
    pub(crate) fn is_look_due(&self, now: Tick) -> bool {
        self.quarantine().files.iter().any(|file| file.is_due(now))
    }

    /// Looks again at quarantined chunks that are due; returns the number of those that are sound after all.
    pub(crate) fn look_at_quarantined(&self, now: Tick) -> usize {
        let mut sound = 0;
        for _ in 0..PER_TURN {
            if self.is_missing() {
                break; // another store may be mounted there
            }
            let mut quarantine = self.quarantine();
            let at = quarantine.files.iter().position(|file| file.is_due(now));
            let Some(file) = at.and_then(|at| quarantine.take(at)) else { break };
            drop(quarantine);
            let (chunk, looks) = (file.chunk, file.looks.and(now));
            match self.look_at(file) {
                Ok(()) => {
                    sound += 1;
                    chunk.into_iter().for_each(|name| self.quarantine().restored(name, looks));
                }
                Err(file) => self.quarantine().add(Quarantined { looks, ..file }),
            }
        }
        sound
    }

    /// Makes a quarantined file its chunk again if it is sound, or removes it if the chunk was stored again meanwhile.
    /// Returns the file as an error if it stays in quarantine.
    fn look_at(&self, file: Quarantined) -> Result<(), Quarantined> {
        let opened = self.disk().open(&file.path);
        let (Some(name), Some(len), Ok(opened)) = (file.chunk, stored_len(file.len), opened) else {
            return Err(file);
        };
        if self.health_of(&*opened, &name) != CopyHealth::Sound {
            return Err(file);
        }
        let path = self.layout().chunk(&name);
        let _alone = self.lock_name(&name);
        if self.is_missing() {
            return Err(file);
        }
        if self.disk().len(&path).is_ok() {
            self.remove_quarantined(file); // the chunk was stored again meanwhile
            return Ok(());
        }
        // A recount may list the bucket before the rename and the quarantine after it. The file stays counted.
        let _unlisted = self.usage().removal(file.len);
        if let Err(why) = self.rename(&file.path, &path) {
            tracing::warn!("cannot take {} out of quarantine: {why}", file.path.display());
            return Err(file);
        }
        tracing::info!("chunk {name} can be read again, and is as it should be");
        // The manager will rely on the chunk from now on, so no earlier tombstone may delete it.
        self.write_sequence().wrote(&name);
        self.changes().push(HeldChange::Added(Holding { name, len }.into()));
        Ok(())
    }
}

/// Returns the chunk that a quarantined file was, by the file's name ([`super::layout::StoreLayout::quarantined`]).
fn chunk_of(path: &Path) -> Option<ChunkName> {
    let (name, _) = path.file_name()?.to_str()?.split_once('.')?;
    name.parse().ok()
}
