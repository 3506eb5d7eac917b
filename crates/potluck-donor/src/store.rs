//! The store of a donor: one file per chunk below the lent directory, and nothing outside it.
//!
//! # On disk, format 2
//! ```text
//! DIR/potluck-store.json   makes the directory a store: {"format": 2, "store": "<32 hex>", "owner": …}
//! DIR/chunks/aa/<name>     a chunk: its stored bytes, 32 for the hash of each segment, a trailer of 64
//! DIR/temp/                chunks on their way in; emptied when the store is opened or comes back
//! DIR/quarantine/          files that are no chunk, and bad copies; never served. Copies are looked at
//!                          again, and removed when the manager says that they may be
//! ```
//! `<name>` is the chunk's name in 64 lower-case hex digits and `aa` the first two of them. The 256 directories are
//! made when the store is opened, so that storing a chunk need not make one durable. Directories are 0700, files 0600.
//! A chunk file is written in `temp` and then renamed; if the writer asked for ack level *disk*, the file is synced
//! before the rename and its directory after it. The trailer is described at `trailer::Trailer`. A chunk's length
//! follows from its file's (docs/format/chunk.md).
//!
//! The directory is locked (`flock`) while a donor runs and it is there. The marker is written before anything else,
//! and again only when the store is adopted; the donor's own state remembers the store's id. A directory that should be
//! a store and has no marker counts as a disk that is not mounted: the donor refuses to start there, because an empty
//! store in its place would hide the real one; a donor that is running waits until the store is back.

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
pub(crate) use marker::{
    ClaimRequest, KnownStore, StoreClaim, StoreId, claim, is_claimed, make_dirs,
};
pub use marker::{Claiming, Owner, StoreError};
pub use removal::{StoreRemoved, each_stored, remove};
pub(crate) use trailer::ChunkOrigin;
pub(crate) use usage::StoreUsage;

use crate::disk::{Disk, OldFile, is_broken, is_full, read_exact_at};
use open_chunks::OpenChunks;
use potluck_core::chunk::{ChunkKind, ChunkName};
use potluck_core::chunk_file::{TRAILER, file_len, stored_len};
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

/// The number of locks over names: enough that two connections seldom want the same one.
const NAME_LOCKS: usize = 64;

/// The chunks of one donor. Every call may block on the disk.
pub(crate) struct Store {
    disk: Arc<dyn Disk>,
    layout: StoreLayout,
    usage: StoreUsage,
    /// The locks over names. One is held while the file of a name is looked for, made, removed or quarantined, so that
    /// a put that finds its chunk and a tombstone for it see each other.
    names: [Mutex<()>; NAME_LOCKS],
    write_sequence: Mutex<WriteSequence>,
    changes: Mutex<HeldChanges>,
    quarantine: Mutex<Quarantine>,
    open_chunks: OpenChunks,
    /// The number of the incarnation, which changes when a store that was missing comes back.
    incarnation: AtomicU64,
    /// The number of the next temporary or quarantined file.
    serial: AtomicU64,
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
    /// A chunk that was found when an operation began is missing at its end, or kept changing while it was verified.
    Lost,
}

impl Store {
    /// Opens the store that `claim` found or made: cleans up after earlier incarnations and counts the files.
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
        self.begin(Some(name), len, 0)
    }

    /// Begins to store a chunk as [`Store::accept`] does, if so many bytes of room are left beside it.
    pub fn accept_beside(
        &self,
        name: ChunkName,
        len: u32,
        left: u64,
    ) -> Result<IncomingChunk<'_>, StoreRefusal> {
        self.begin(Some(name), len, left)
    }

    /// Begins to store a chunk of `len` bytes that are computed here; the name follows from them.
    pub fn compute(&self, len: u32) -> Result<IncomingChunk<'_>, StoreRefusal> {
        self.begin(None, len, 0)
    }

    fn begin(
        &self,
        name: Option<ChunkName>,
        len: u32,
        left: u64,
    ) -> Result<IncomingChunk<'_>, StoreRefusal> {
        if self.broken() {
            return Err(StoreRefusal::Disk);
        }
        let reservation =
            self.usage.reserve_beside(file_len(len), left).ok_or(StoreRefusal::Full)?;
        IncomingChunk::create(self, name, len, reservation)
    }

    /// Returns whether `name` is held with `len` bytes, after reading them back: the peer that puts the chunk will rely
    /// on this copy, which may have been damaged since it was stored. A chunk that is found counts as put again, so
    /// that no earlier tombstone deletes it. A bad copy is quarantined, and the chunk is to be stored anew.
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

    /// Returns whether `name` is held at the level asked already, so that a task to store it is done. The manager,
    /// which may not know, is then told of the chunk once more.
    pub fn list_if_held(&self, name: ChunkName, len: u32, ack: AckLevel) -> bool {
        let held = self.count_put_if_held(&name, len) == Ok(true)
            && self.confirm_held(&name, len, ack).is_ok();
        held && self.list_if_there(name, len)
    }

    /// Tells the manager of a chunk, unless it was deleted meanwhile; returns whether it is there. While the name is
    /// locked no deletion is told, so the manager hears of one after this.
    fn list_if_there(&self, name: ChunkName, len: u32) -> bool {
        let _alone = self.lock_name(&name);
        let is_there = self.well_formed(&name, len).is_some();
        if is_there {
            self.changes().push(HeldChange::Added(Holding { name, len }.into()));
        }
        is_there
    }

    /// Confirms a put that found its chunk: the chunk is still held, at the level asked.
    pub fn confirm_held(
        &self,
        name: &ChunkName,
        len: u32,
        ack: AckLevel,
    ) -> Result<(), StoreRefusal> {
        let Some(file) = self.well_formed(name, len) else { return Err(StoreRefusal::Lost) };
        if ack == AckLevel::Disk {
            // The put that stored the chunk may have asked for a lower ack level, so the file may not be synced yet.
            file.sync()
                .and_then(|()| self.disk.sync_dir(&self.layout.chunk_dir(name)))
                .map_err(|why| self.refuse("syncing a chunk", &why))?;
        }
        Ok(())
    }

    /// Opens the chunk file of `name`, if it has the right length and a trailer that is right; the bytes are not
    /// checked.
    pub(crate) fn well_formed(&self, name: &ChunkName, len: u32) -> Option<Box<dyn OldFile>> {
        let file = self.disk.open(&self.layout.chunk(name)).ok()?;
        let mut end = [0; TRAILER];
        let at = file_len(len) - TRAILER as u64;
        if file.len() != file_len(len) || read_exact_at(&*file, &mut end, at).is_err() {
            return None;
        }
        Trailer::decode(&end).filter(|trailer| trailer.is_of(name, len)).map(|_| file)
    }

    /// Returns the kind of a chunk by its trailer; `None` if the file or a right trailer is missing.
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

    /// Opens the chunk called `name`, if it is held, to read parts of it, and keeps the file open for the next reader.
    pub fn find_to_read_parts(
        &self,
        name: &ChunkName,
    ) -> Result<Option<Arc<FoundChunk>>, StoreRefusal> {
        if let Some(open) = self.open_chunks.get(name) {
            return Ok(Some(open));
        }
        // While the name is locked the chunk is not removed, and a later removal closes the file first.
        let _alone = self.lock_name(name);
        let found = self.find(name)?.map(Arc::new);
        found.iter().for_each(|found| self.open_chunks.keep(*name, Arc::clone(found)));
        Ok(found)
    }

    /// Closes the file of a chunk that is about to be removed, so that the removal frees its room.
    pub(crate) fn close(&self, name: &ChunkName) {
        self.open_chunks.close(name);
    }

    /// Turns a failure of the disk into a refusal, and notes what it says of the disk: that it is full, which is
    /// believed until the next look at it, or broken, after which nothing more is stored until the fault ends.
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

    /// Returns the disk's space, and the number of bytes that Potluck may still write.
    pub fn report(&self) -> (DiskState, u64) {
        self.usage.report()
    }

    /// Returns the number of bytes that must go for the owner's limits to hold again; 0 while the disk has a fault.
    pub fn excess(&self) -> u64 {
        self.usage.excess()
    }

    /// Returns the number of bytes that the disk has less free than the owner keeps free, at most what Potluck holds; 0
    /// while the disk has a fault.
    pub fn disk_lacks(&self) -> u64 {
        self.usage.disk_lacks()
    }

    /// Returns the limits that the owner set.
    pub fn limits(&self) -> Limits {
        self.usage.limits()
    }

    /// Sets the owner's limits.
    pub fn limit(&self, limits: Limits) {
        self.usage.limit(limits);
    }

    /// Returns the number of bytes that were stored in new chunk files since the process began.
    pub fn stored(&self) -> u64 {
        self.stored.load(Ordering::Relaxed)
    }

    pub(crate) fn count_stored(&self, bytes: u32) {
        self.stored.fetch_add(bytes.into(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
