//! The memory for reading: one budget for all files that a pool handle has open.
//!
//! Half of it is for units that are read ahead or written away at once, a quarter for units that a reader waits for
//! while others have all of that half, and the rest for second requests. A stream that is not read on keeps the units
//! that it has read ahead, and no other read waits for it.

use crate::buffer::Buffers;
use potluck_core::chunk::DEFAULT_CHUNK;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

/// Returns how many chunks are read ahead from so many donors: the chunk that each sends, and for half of them the one
/// that follows. Thus a donor whose chunk came has the next to send, though chunks are asked for in the order of the
/// file.
pub fn read_ahead(donors: usize) -> usize {
    donors + donors.div_ceil(2)
}

/// The bytes that may be read ahead from the start, if half of the budget has them: a chunk from each of six donors.
/// Two chunks from each cost a twelfth more CPU time, since the bytes on their way then leave the processor's cache.
const AHEAD: usize = 24 << 20;

/// A budget for reads. Clones share it.
#[derive(Clone)]
pub struct ReadMemory {
    /// Buffers into which chunks are received.
    pub buffers: Buffers,
    ahead: Arc<Semaphore>,
    /// The bytes that `ahead` now allows, and the most that it may.
    ahead_now: Arc<AtomicUsize>,
    ahead_most: usize,
    on_demand: Arc<Semaphore>,
    /// A lock that is held while a group is read whole of which only a part was claimed for: one such read at a time
    /// fits into the share for second requests.
    pub whole_group: Arc<Mutex<()>>,
}

impl ReadMemory {
    /// Returns the least memory for reads of files with chunks of `chunk` bytes on so many `donors`, of which `unit`
    /// bytes are read together.
    pub fn least(chunk: usize, unit: usize, donors: usize) -> usize {
        (4 * unit).max(2 * chunk.min(DEFAULT_CHUNK as usize) * read_ahead(donors))
    }

    /// Makes a budget of `bytes`.
    pub fn new(bytes: usize) -> Self {
        let ahead_most = bytes / 2;
        let ahead = AHEAD.min(ahead_most);
        Self {
            buffers: Buffers::new(bytes),
            ahead: Arc::new(Semaphore::new(ahead)),
            ahead_now: Arc::new(AtomicUsize::new(ahead)),
            ahead_most,
            on_demand: Arc::new(Semaphore::new(bytes / 4)),
            whole_group: Arc::default(),
        }
    }

    /// Returns the size of the budget in bytes.
    pub fn size(&self) -> usize {
        self.buffers.size()
    }

    /// Returns whether a read of `unit` bytes together never waits for memory that it holds itself.
    pub fn has_room_for(&self, unit: usize) -> bool {
        self.size() >= 4 * unit
    }

    /// Lets the bytes that may be read ahead grow to `bytes`, as far as the budget has them.
    fn widen(&self, bytes: usize) {
        let bytes = bytes.min(self.ahead_most);
        let before = self.ahead_now.fetch_max(bytes, Ordering::Relaxed);
        self.ahead.add_permits(bytes.saturating_sub(before));
    }

    fn permits(&self, need: Need) -> u32 {
        self.widen(need.worth.max(need.bytes));
        need.bytes.min(self.ahead_most) as u32
    }

    /// Returns a place in memory for a unit that no reader waits for yet; `None` while there is none.
    pub fn try_ahead(&self, need: Need) -> Option<OwnedSemaphorePermit> {
        self.ahead.clone().try_acquire_many_owned(self.permits(need)).ok()
    }

    /// Waits for a place in memory for a unit that is written away as soon as it is here.
    pub async fn ahead(&self, need: Need) -> OwnedSemaphorePermit {
        let permits = self.permits(need);
        self.ahead.clone().acquire_many_owned(permits).await.expect("never closed")
    }

    /// Waits for a place in memory for a unit that a reader waits for; it does not depend on what others read ahead
    /// and keep.
    pub async fn on_demand(&self, need: Need) -> OwnedSemaphorePermit {
        let most = (self.size() / 4) as u32;
        let on_demand = self.on_demand.clone().acquire_many_owned(self.permits(need).min(most));
        tokio::select! {
            biased;
            ahead = self.ahead(need) => ahead,
            on_demand = on_demand => on_demand.expect("never closed"),
        }
    }
}

/// The memory that a unit needs.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// The most bytes that the unit takes.
    pub bytes: usize,
    /// The number of bytes that are worth reading ahead of such a file: as many as keep all donors busy.
    pub worth: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn demanded_reads_get_memory_despite_readahead() {
        let memory = ReadMemory::new(64 << 20);
        let need = Need { bytes: 4 << 20, worth: 32 << 20 };
        let kept: Vec<_> = std::iter::from_fn(|| memory.try_ahead(need)).collect();
        assert_eq!(kept.len(), 8, "half of it");
        let one = memory.on_demand(need).await;
        drop(kept);
        assert!(memory.try_ahead(need).is_some(), "given back");
        drop(one);
        assert_eq!(memory.on_demand.available_permits(), 16 << 20);
    }
}
