//! Chunks that are kept open while parts of them are read, which costs less than opening a file for each segment.
//!
//! An open file takes its room on the disk even after it was removed, so a chunk is closed before it is removed,
//! quarantined or replaced. A chunk that nobody reads is closed after some seconds.

use super::FoundChunk;
use potluck_core::chunk::ChunkName;
use potluck_core::merkle::segment_count;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// The most chunks that are open at once.
const MOST: usize = 128;
/// The most segments that open chunks have together; the proof tree takes 64 bytes of memory for each.
const MOST_SEGMENTS: u64 = 32_768;
/// The number of looks at the disk after which a chunk that was not read meanwhile is closed.
const UNREAD: u32 = 10;

/// The chunks that are kept open.
#[derive(Default)]
pub(super) struct OpenChunks(Mutex<Open>);

#[derive(Default)]
struct Open {
    chunks: BTreeMap<ChunkName, OpenChunk>,
    segments: u64,
    /// The number of look-ups so far, by which the least recently read chunk is known.
    reads: u64,
}

struct OpenChunk {
    found: Arc<FoundChunk>,
    /// The value of `Open::reads` at the latest read of this chunk.
    read: u64,
    /// The number of looks at the disk since the chunk was last read.
    looks: u32,
}

impl Open {
    fn close(&mut self, name: &ChunkName) {
        if let Some(closed) = self.chunks.remove(name) {
            self.segments -= segment_count(closed.found.len.into());
        }
    }
}

impl OpenChunks {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().expect("no holder panics")
    }

    /// Returns the chunk called `name`, if it is open.
    pub fn get(&self, name: &ChunkName) -> Option<Arc<FoundChunk>> {
        let mut open = self.open();
        open.reads += 1;
        let number = open.reads;
        let chunk = open.chunks.get_mut(name)?;
        (chunk.read, chunk.looks) = (number, 0);
        Some(Arc::clone(&chunk.found))
    }

    /// Keeps a chunk open, and closes the least recently read ones if there are too many.
    pub fn keep(&self, name: ChunkName, found: Arc<FoundChunk>) {
        let mut open = self.open();
        open.close(&name);
        let segments = segment_count(found.len.into());
        while open.chunks.len() >= MOST || open.segments + segments > MOST_SEGMENTS {
            let oldest = open.chunks.iter().min_by_key(|(_, chunk)| chunk.read);
            let Some(oldest) = oldest.map(|(name, _)| *name) else { break };
            open.close(&oldest);
        }
        let read = open.reads;
        open.segments += segments;
        open.chunks.insert(name, OpenChunk { found, read, looks: 0 });
    }

    /// Closes the file of a chunk.
    pub fn close(&self, name: &ChunkName) {
        self.open().close(name);
    }

    /// Closes the files of all chunks.
    pub fn close_all(&self) {
        *self.open() = Open::default();
    }

    /// Closes the chunks that were not read for a while; to be called at each look at the disk.
    pub fn close_unread(&self) {
        let mut open = self.open();
        open.chunks.values_mut().for_each(|chunk| chunk.looks += 1);
        let unread = open.chunks.iter().filter(|(_, chunk)| chunk.looks > UNREAD);
        let unread: Vec<_> = unread.map(|(name, _)| *name).collect();
        unread.iter().for_each(|name| open.close(name));
    }
}
