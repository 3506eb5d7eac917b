//! A chunk that is being received or computed, and is not yet stored under its name.

use super::trailer::{ChunkOrigin, Trailer};
use super::usage::{PromisedBytes, Removal};
use super::{HeldChange, Store, StoreRefusal};
use crate::disk::NewFile;
use potluck_core::chunk::{ChunkHasher, ChunkName, Verifier};
use potluck_core::chunk_file::{TRAILER, file_len, tail_len};
use potluck_core::ids::SessionId;
use potluck_core::merkle::SegmentHashes;
use potluck_core::policy::AckLevel;
use potluck_wire::control::{Arrived, Holding};
use std::path::PathBuf;

/// The length in bytes from which a chunk's place on the disk is found before it is written: a smaller one costs no seek
/// of note, and finding its place costs as much as writing it.
const PLACED_AHEAD: u32 = 256 << 10;

/// A chunk that is being received or computed. If it is dropped before [`IncomingChunk::place`], it leaves nothing
/// behind.
pub(crate) struct IncomingChunk<'s> {
    store: &'s Store,
    len: u32,
    naming: Naming,
    // Fields are dropped in this order: the file is removed before its room is given back.
    temp: TempFile<'s>,
    reservation: PromisedBytes<'s>,
}

/// The way in which the chunk gets its name.
enum Naming {
    /// The chunk comes from outside, and must have this name.
    Expected(Verifier, ChunkName),
    /// The chunk is computed here, and gets the name that follows from its bytes.
    Found(ChunkHasher),
}

impl Naming {
    fn update(&mut self, piece: &[u8]) {
        match self {
            Self::Expected(verifier, _) => verifier.update(piece),
            Self::Found(hasher) => hasher.update(piece),
        }
    }

    fn finish(self) -> Result<(ChunkName, SegmentHashes), NotPlaced> {
        match self {
            Self::Expected(verifier, name) => {
                let hashes = verifier.finish().map_err(|_| NotPlaced::Mismatch)?;
                Ok((name, hashes))
            }
            Self::Found(mut hasher) => {
                let hashes = hasher.finish();
                Ok((ChunkName(hashes.root()), hashes))
            }
        }
    }
}

/// The reasons why a chunk is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotPlaced {
    /// The bytes are not those of the expected name, or the room for the hashes has another size.
    Mismatch,
    /// The bytes could not be stored.
    Refused(StoreRefusal),
}

/// A file in `temp`, which is removed when this is dropped before the file got its name.
struct TempFile<'s> {
    store: &'s Store,
    file: Box<dyn NewFile>,
    path: PathBuf,
    placed: bool,
}

impl Drop for TempFile<'_> {
    fn drop(&mut self) {
        if self.placed {
            return;
        }
        if let Err(why) = self.store.disk().remove(&self.path) {
            // The directory is emptied when the store is opened next.
            tracing::warn!("cannot remove {}: {why}", self.path.display());
        }
    }
}

impl<'s> IncomingChunk<'s> {
    pub(super) fn create(
        store: &'s Store,
        name: Option<ChunkName>,
        len: u32,
        reservation: PromisedBytes<'s>,
    ) -> Result<Self, StoreRefusal> {
        let path = store.layout().temp_file(store.incarnation(), store.next_serial());
        let file = store.disk().create(&path).map_err(|why| store.refuse("making a file", &why))?;
        let mut temp = TempFile { store, file, path, placed: false };
        // Chunks of one file come in its order. So do their places on the disk if these are found now: the kernel would
        // find them when it writes, in an order of its own, and a cold reading of the file would seek from chunk to chunk.
        if len >= PLACED_AHEAD {
            let reserved = temp.file.reserve(file_len(len));
            reserved.map_err(|why| store.refuse("making room for a chunk", &why))?;
        }
        let naming = match name {
            Some(name) => Naming::Expected(Verifier::new(name), name),
            None => Naming::Found(ChunkHasher::default()),
        };
        Ok(Self { store, len, naming, temp, reservation })
    }

    /// Adds a piece that is not the last.
    pub fn append(&mut self, piece: &[u8]) -> Result<(), StoreRefusal> {
        self.naming.update(piece);
        let appended = self.temp.file.append(piece);
        appended.map_err(|why| self.store.refuse("writing a chunk", &why))
    }

    /// Returns the number of bytes that the file has after the chunk's own.
    pub fn tail_len(&self) -> usize {
        tail_len(self.len)
    }

    /// Adds the last piece, stores the chunk at the level `ack`, and returns its name. The piece must end in
    /// [`IncomingChunk::tail_len`] bytes of room, so that the hashes and the trailer cost no write of their own.
    pub fn place(
        self,
        piece: &mut [u8],
        origin: ChunkOrigin,
        ack: AckLevel,
    ) -> Result<ChunkName, NotPlaced> {
        // Bindings are dropped in reverse order: the file before its room.
        let Self { store, len, reservation, temp, mut naming } = self;
        let (bytes, tail) = piece.split_at_mut(piece.len() - tail_len(len));
        naming.update(bytes);
        let (name, hashes) = naming.finish()?;
        let (table, trailer) = tail.split_at_mut(tail.len() - TRAILER);
        if table.len() != hashes.as_bytes().len() {
            return Err(NotPlaced::Mismatch);
        }
        table.copy_from_slice(hashes.as_bytes());
        trailer.copy_from_slice(&Trailer::new(origin, &name, len).encode());
        let whole = Whole { store, name, len, session: origin.session(), temp, reservation };
        whole.settle(piece, ack).map_err(NotPlaced::Refused)?;
        Ok(name)
    }
}

/// A chunk whose bytes are complete and match its name.
struct Whole<'s> {
    store: &'s Store,
    name: ChunkName,
    len: u32,
    session: Option<SessionId>,
    // The order of these fields matters as in `IncomingChunk`: the file goes before its room is given back.
    temp: TempFile<'s>,
    reservation: PromisedBytes<'s>,
}

impl Whole<'_> {
    fn settle(mut self, piece: &[u8], ack: AckLevel) -> Result<(), StoreRefusal> {
        let refuse = |why: &std::io::Error| self.store.refuse("writing a chunk", why);
        self.temp.file.append(piece).map_err(|why| refuse(&why))?;
        if ack == AckLevel::Disk {
            self.temp.file.sync().map_err(|why| refuse(&why))?;
        }
        let (store, name, len) = (self.store, self.name, self.len);
        if !self.rename()? {
            return store.confirm_held(&name, len, ack); // another put stored it first
        }
        if ack == AckLevel::Disk {
            let synced = store.disk().sync_dir(&store.layout().chunk_dir(&name));
            synced.map_err(|why| store.refuse("syncing a directory", &why))?;
        }
        Ok(())
    }

    /// Gives the file its chunk's name; returns false if the chunk was stored by another put meanwhile.
    fn rename(mut self) -> Result<bool, StoreRefusal> {
        let (store, name) = (self.store, self.name);
        let holding = Holding { name, len: self.len };
        let path = store.layout().chunk(&name);
        let _alone = store.lock_name(&name);
        let replaced = store.disk().len(&path).ok();
        if replaced.is_some() && store.well_formed(&name, self.len).is_some() {
            store.write_sequence().wrote(&name);
            store.changes().push(HeldChange::Added(holding.into()));
            return Ok(false);
        }
        let replaced = replaced.map(|len| store.usage().removal(len));
        store.open_chunks.close(&name);
        store.rename(&self.temp.path, &path).map_err(|why| store.refuse("naming a chunk", &why))?;
        self.temp.placed = true;
        self.reservation.keep();
        replaced.into_iter().for_each(Removal::done);
        store.count_stored(self.len);
        store.write_sequence().wrote(&name);
        // Only a new file belongs to this session: a chunk that was held before may be needed by others.
        store.changes().push(HeldChange::Added(Arrived { holding, session: self.session }));
        Ok(true)
    }
}
