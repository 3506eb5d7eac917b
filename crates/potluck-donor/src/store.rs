//! Where chunks lie: one file per chunk below the lent directory, and nothing outside it.
//!
//! # On disk, format 1
//! ```text
//! DIR/potluck-store.json   what makes the directory a store: {"format": 1, "store": "<32 hex>"}
//! DIR/chunks/aa/<name>     a chunk: its stored bytes, 32 for the hash of each segment, a trailer of 64
//! DIR/temp/                chunks on their way in; emptied at every start
//! DIR/quarantine/          what was no chunk, or no longer the chunk it should be; never served.
//!                          Looked at again, and removed when the manager says that it may be
//! ```
//! `<name>` is the chunk's name in 64 lower-case hex digits and `aa` the first two of them; the 256
//! directories are made with the store, so that storing a chunk never has to make one durable.
//! Directories are 0700, files 0600. A chunk file is complete or not there: it is written in `temp`,
//! synced if the writer asked for ack level *disk*, renamed, and then its directory is synced.
//! The trailer is described at `trailer::Trailer`. A chunk's length follows from its file's (docs/format/chunk.md).
//!
//! The directory is locked (`flock`) while a donor runs and it is there. The marker is written
//! before anything else and never again; the donor's own state remembers its id. A directory that
//! should be a store and has lost its marker is a disk that is not mounted: the donor refuses to
//! start there, because an empty store in its place would hide the real one; one that is running
//! waits until it is back.

mod changes;
mod copy_health;
mod found;
mod incoming;
mod inventory;
mod layout;
pub(crate) mod marker;
mod open_chunks;
mod presence;
mod quarantine;
mod removal;
pub(crate) mod trailer;
mod usage;
mod write_sequence;

pub(crate) use changes::{HeldChange, HeldChanges};
pub(crate) use copy_health::CopyHealth;
pub(crate) use found::FoundChunk;
pub(crate) use incoming::{IncomingChunk, NotPlaced};
pub(crate) use inventory::{Cursor, ListedAhead};
pub(crate) use layout::{StoreLayout, chunk_of};
pub(crate) use marker::{ClaimRequest, KnownStore, StoreClaim, StoreId, claim, make_dirs};
pub use marker::{Claiming, Owner, StoreError};
pub use removal::{StoreRemoved, remove, stored_chunks};
pub(crate) use trailer::{ChunkOrigin, TRAILER, file_len, stored_len, tail_len};
pub(crate) use usage::{StoreUsage, taken};

use crate::disk::{Disk, OldFile, is_broken, is_full, read_exact_at};
use open_chunks::OpenChunks;
use potluck_core::chunk::{ChunkKind, ChunkName};
use potluck_core::ids::Incarnation;
use potluck_core::owner_limits::{DiskState, Limits};
use potluck_core::policy::AckLevel;
use potluck_wire::control::Holding;
use quarantine::Quarantine;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use trailer::Trailer;
use usage::DiskTrouble;
use write_sequence::WriteSequence;

/// The number of locks over names: enough that two connections seldom meet at one.
const NAME_LOCKS: usize = 64;

/// The chunks of one donor. Every call may block on the disk.
pub(crate) struct Store {
    disk: Arc<dyn Disk>,
    layout: StoreLayout,
    usage: StoreUsage,
    /// Locks that are held while a name is judged and its file made, removed or quarantined, so that a put that finds
    /// its chunk and a tombstone for it see each other.
    names: [Mutex<()>; NAME_LOCKS],
    write_sequence: Mutex<WriteSequence>,
    changes: Mutex<HeldChanges>,
    quarantine: Mutex<Quarantine>,
    open_chunks: OpenChunks,
    /// The number of the incarnation; another one when a store comes back that was away.
    incarnation: AtomicU64,
    /// Numbers temporary and quarantined files.
    serial: AtomicU64,
    served: AtomicU64,
    stored: AtomicU64,
    id: StoreId,
    /// The lock on the lent directory; `None` while the directory is missing.
    lock: Mutex<Option<Box<dyn Send + Sync>>>,
}

/// The reasons why nothing was stored or found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreRefusal {
    /// No lent space is left.
    Full,
    /// The disk failed to store or to find the chunk.
    Disk,
    /// A chunk that was found when an operation began is missing at its end.
    Lost,
}

impl Store {
    /// Opens the store that `claim` found or made: cleans up after earlier incarnations and counts what is there.
    pub fn open(
        disk: Arc<dyn Disk>,
        claim: StoreClaim,
        limits: Limits,
        incarnation: Incarnation,
    ) -> Result<Self, StoreError> {
        let layout = claim.layout;
        let space =
            disk.space(layout.root()).map_err(|why| layout.failed("asking for space", why))?;
        let store = Self {
            disk,
            usage: StoreUsage::new(limits, space),
            names: std::array::from_fn(|_| Mutex::default()),
            write_sequence: Mutex::default(),
            changes: Mutex::default(),
            quarantine: Mutex::default(),
            open_chunks: OpenChunks::default(),
            incarnation: AtomicU64::new(incarnation.0),
            serial: AtomicU64::default(),
            served: AtomicU64::default(),
            stored: AtomicU64::default(),
            id: claim.id,
            lock: Mutex::new(Some(claim.lock)),
            layout,
        };
        crate::deletion::leftovers(&store)
            .map_err(|why| store.layout.failed("looking through the store", why))?;
        Ok(store)
    }

    /// Returns the incarnation of the store. A new one begins with each process, and each time that the store comes
    /// back after it was missing.
    pub fn incarnation(&self) -> Incarnation {
        Incarnation(self.incarnation.load(Ordering::Acquire))
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    pub(crate) fn layout(&self) -> &StoreLayout {
        &self.layout
    }

    pub(crate) fn usage(&self) -> &StoreUsage {
        &self.usage
    }

    pub(crate) fn lock_name(&self, name: &ChunkName) -> MutexGuard<'_, ()> {
        let at = usize::from(name.0[31]) % NAME_LOCKS;
        self.names[at].lock().expect("no holder panics")
    }

    pub(crate) fn write_sequence(&self) -> MutexGuard<'_, WriteSequence> {
        self.write_sequence.lock().expect("no holder panics")
    }

    pub(crate) fn changes(&self) -> MutexGuard<'_, HeldChanges> {
        self.changes.lock().expect("no holder panics")
    }

    pub(crate) fn quarantine(&self) -> MutexGuard<'_, Quarantine> {
        self.quarantine.lock().expect("no holder panics")
    }

    pub(crate) fn next_serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    /// Begins to store the chunk `name` of `len` bytes.
    pub fn accept(&self, name: ChunkName, len: u32) -> Result<IncomingChunk<'_>, StoreRefusal> {
        self.begin(Some(name), len)
    }

    /// Begins to store a chunk of `len` bytes that are computed here, whatever their name will be.
    pub fn compute(&self, len: u32) -> Result<IncomingChunk<'_>, StoreRefusal> {
        self.begin(None, len)
    }

    fn begin(&self, name: Option<ChunkName>, len: u32) -> Result<IncomingChunk<'_>, StoreRefusal> {
        if self.broken() {
            return Err(StoreRefusal::Disk);
        }
        let reservation = self.usage.reserve(file_len(len)).ok_or(StoreRefusal::Full)?;
        IncomingChunk::create(self, name, len, reservation)
    }

    /// True when `name` is held with `len` bytes, which are read back: whoever puts it is told to rely on it, and a
    /// power cut may have ended the incarnation that stored it. It counts as put again then, and no earlier tombstone
    /// deletes it. One that is spoiled is quarantined, and is to be stored anew.
    pub fn count_put_if_held(&self, name: &ChunkName, len: u32) -> Result<bool, StoreRefusal> {
        {
            let _alone = self.lock_name(name);
            if self.well_formed(name, len).is_none() {
                return Ok(false);
            }
            self.write_sequence().wrote(name);
        }
        Ok(self.scrub(name)? == CopyHealth::Sound)
    }

    /// True when `name` is held at the level asked already, so that a task to store it is done. It
    /// is listed to the manager once more then, which may not know.
    pub fn list_if_held(&self, name: ChunkName, len: u32, ack: AckLevel) -> bool {
        let held = self.count_put_if_held(&name, len) == Ok(true)
            && self.confirm_held(&name, len, ack).is_ok();
        if held {
            self.changes().push(HeldChange::Added(Holding { name, len }.into()));
        }
        held
    }

    /// Gives the last word on a put that found its chunk: whether it is still held, at the level asked.
    pub fn confirm_held(
        &self,
        name: &ChunkName,
        len: u32,
        ack: AckLevel,
    ) -> Result<(), StoreRefusal> {
        let Some(file) = self.well_formed(name, len) else { return Err(StoreRefusal::Lost) };
        if ack == AckLevel::Disk {
            // Whoever stored it may not have asked for this ack level, so it may not be synced yet.
            file.sync()
                .and_then(|()| self.disk.sync_dir(&self.layout.chunk_dir(name)))
                .map_err(|why| self.refuse("syncing a chunk", &why))?;
        }
        Ok(())
    }

    /// Opens the chunk file of `name`, if it has the right length and its end was written.
    pub(crate) fn well_formed(&self, name: &ChunkName, len: u32) -> Option<Box<dyn OldFile>> {
        let file = self.disk.open(&self.layout.chunk(name)).ok()?;
        let mut end = [0; TRAILER];
        let at = file_len(len) - TRAILER as u64;
        if file.len() != file_len(len) || read_exact_at(&*file, &mut end, at).is_err() {
            return None;
        }
        Trailer::decode(&end).filter(|trailer| trailer.is_of(name, len)).map(|_| file)
    }

    /// Returns the kind of a chunk, as its trailer says.
    pub fn kind(&self, holding: &Holding) -> Option<ChunkKind> {
        let file = self.disk.open(&self.layout.chunk(&holding.name)).ok()?;
        let mut end = [0; TRAILER];
        read_exact_at(&*file, &mut end, file_len(holding.len) - TRAILER as u64).ok()?;
        let trailer = Trailer::decode(&end);
        Some(trailer.filter(|trailer| trailer.is_of(&holding.name, holding.len))?.origin.kind)
    }

    /// Opens the chunk called `name`, if it is held.
    pub fn find(&self, name: &ChunkName) -> Result<Option<FoundChunk>, StoreRefusal> {
        match self.disk.open(&self.layout.chunk(name)) {
            Ok(file) => Ok(stored_len(file.len()).map(|len| FoundChunk::new(file, len))),
            Err(why) if why.kind() == io::ErrorKind::NotFound && !self.is_missing() => Ok(None),
            Err(why) => {
                tracing::warn!("cannot open chunk {name}: {why}");
                Err(StoreRefusal::Disk)
            }
        }
    }

    /// Opens the chunk called `name`, if it is held, to read parts of it: it is kept open for the next reader.
    pub fn find_to_read_parts(
        &self,
        name: &ChunkName,
    ) -> Result<Option<Arc<FoundChunk>>, StoreRefusal> {
        if let Some(open) = self.open_chunks.get(name) {
            return Ok(Some(open));
        }
        // While the name is locked nobody removes the chunk, and whoever removes it later has it closed.
        let _alone = self.lock_name(name);
        let found = self.find(name)?.map(Arc::new);
        found.iter().for_each(|found| self.open_chunks.keep(*name, Arc::clone(found)));
        Ok(found)
    }

    /// Closes a chunk that is about to be removed, so that its removal frees its room.
    pub(crate) fn close(&self, name: &ChunkName) {
        self.open_chunks.close(name);
    }

    /// Sorts out a failed write. A disk that is broken, not full, takes nothing more in this incarnation.
    pub(crate) fn refuse(&self, doing: &str, why: &io::Error) -> StoreRefusal {
        if is_full(why) {
            self.usage.full();
            return StoreRefusal::Full;
        }
        if is_broken(why) {
            self.broke(DiskTrouble::Writing, &format!("{doing} failed: {why}"));
        } else {
            tracing::warn!("{doing} failed: {why}");
        }
        StoreRefusal::Disk
    }

    /// Returns the disk's space, and how many bytes Potluck may still write.
    pub fn report(&self) -> (DiskState, u64) {
        self.usage.report()
    }

    /// Returns how many bytes must go for the owner's limits to hold again.
    pub fn excess(&self) -> u64 {
        self.usage.excess()
    }

    /// Returns how many of the bytes over quota the disk lacks now, whoever fills it.
    pub fn disk_lacks(&self) -> u64 {
        self.usage.disk_lacks()
    }

    /// Returns the limits that the owner set.
    pub fn limits(&self) -> Limits {
        self.usage.limits()
    }

    /// Goes by other limits from now on.
    pub fn limit(&self, limits: Limits) {
        self.usage.limit(limits);
    }

    /// Returns how many bytes were served to readers and stored for writers in this incarnation.
    pub fn traffic(&self) -> (u64, u64) {
        (self.served.load(Ordering::Relaxed), self.stored.load(Ordering::Relaxed))
    }

    /// Counts bytes sent to a reader.
    pub fn count_served(&self, bytes: u32) {
        self.served.fetch_add(bytes.into(), Ordering::Relaxed);
    }

    pub(crate) fn count_stored(&self, bytes: u32) {
        self.stored.fetch_add(bytes.into(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
