//! The memory for chunks on their way, which is bounded in sum and used again.
//!
//! A fresh 4 MiB allocation costs a thousand page faults, about as much as receiving the chunk; so large buffers go
//! back to a free list instead of to the system. So do the buffers for a segment, which random reads would fill with
//! fresh pages one after the other.

use potluck_core::merkle::SEGMENT;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The size in bytes from which buffers are kept for reuse; the allocator does as well with smaller ones, except for
/// segments.
const LARGE: usize = 1 << 20;

/// The sizes in bytes of buffers for one segment, sealed or not.
const ONE_SEGMENT: Range<usize> = SEGMENT as usize..2 * SEGMENT as usize;

/// The most free buffers for segments that are kept: as many as are read at once.
const SEGMENTS_KEPT: usize = 64;

/// The divisor of a budget that gives at least what its buffers may exceed it by, since they have room for what sealing
/// adds.
const SEALING_ADDS: usize = 1024;

/// The number of bytes per permit of the budget.
const GRAIN: usize = 4096;

/// A pool of chunk buffers whose claims together stay under a budget.
#[derive(Debug, Clone)]
pub struct Buffers {
    large: Arc<Mutex<Vec<Vec<u8>>>>,
    segments: Arc<Mutex<Vec<Vec<u8>>>>,
    budget: Arc<Semaphore>,
    grains: u32,
}

impl Buffers {
    /// Makes a pool of buffers whose claims take at most `budget` bytes together.
    pub fn new(budget: usize) -> Self {
        let grains = (budget / GRAIN).max(1);
        Self {
            large: Arc::default(),
            segments: Arc::default(),
            budget: Arc::new(Semaphore::new(grains)),
            grains: grains as u32,
        }
    }

    /// Returns the free list for buffers of this size.
    fn free_list(&self, size: usize) -> Option<MutexGuard<'_, Vec<Vec<u8>>>> {
        let free = match size {
            LARGE.. => &self.large,
            _ if ONE_SEGMENT.contains(&size) => &self.segments,
            _ => return None,
        };
        Some(free.lock().expect("no holder panics"))
    }

    /// Returns whether a buffer of `size` bytes is kept beside the `free` ones of its list. Large ones take no more than
    /// the budget together: where sizes differ, they could be more than were ever claimed at once.
    fn keeps(&self, free: &[Vec<u8>], size: usize) -> bool {
        let kept: usize = free.iter().map(Vec::capacity).sum();
        let room = self.size();
        match size {
            LARGE.. => kept + size <= room + room / SEALING_ADDS,
            _ => free.len() < SEGMENTS_KEPT,
        }
    }

    /// Returns the budget in bytes.
    pub fn size(&self) -> usize {
        self.grains as usize * GRAIN
    }

    /// Waits until `bytes` more fit the budget. A single claim above the whole budget waits for
    /// all of it, so that it is served alone instead of never.
    pub async fn claim(&self, bytes: usize) -> Claim {
        let grains = (bytes.div_ceil(GRAIN) as u32).clamp(1, self.grains);
        let permit = self.budget.clone().acquire_many_owned(grains).await;
        Claim { permit: permit.expect("never closed"), buffers: self.clone() }
    }
}

/// A part of the budget.
#[derive(Debug)]
pub struct Claim {
    permit: OwnedSemaphorePermit,
    buffers: Buffers,
}

impl Claim {
    /// Splits off the share that `bytes` need, or all that is left.
    pub fn split(&mut self, bytes: usize) -> Self {
        let grains = bytes.div_ceil(GRAIN).clamp(1, self.permit.num_permits().max(1));
        let permit = self
            .permit
            .split(grains)
            .unwrap_or_else(|| self.permit.split(0).expect("none of any number"));
        Self { permit, buffers: self.buffers.clone() }
    }

    /// Returns a buffer of `len` bytes with unspecified content: it may be that of an earlier chunk.
    pub fn buffer(self, len: usize) -> Buffer {
        let kept = self.buffers.free_list(len).and_then(|mut free| free.pop());
        let mut bytes = kept.unwrap_or_default();
        // A buffer that is much larger than was claimed would take memory that the budget does not know of.
        if !(len..=2 * len).contains(&bytes.capacity()) {
            bytes = vec![0; len]; // fresh memory is zeros already
        }
        bytes.resize(len, 0);
        Buffer { bytes, claim: self }
    }
}

/// The bytes of a chunk, which give their memory and their share of the budget back when they are dropped.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    claim: Claim,
}

impl Buffer {
    /// Returns the bytes, to grow or shrink in place.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let (buffers, size) = (&self.claim.buffers, self.bytes.capacity());
        if let Some(mut free) = buffers.free_list(size)
            && buffers.keeps(&free, size)
        {
            free.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn buffers_never_exceed_their_budget_and_are_used_again() {
        let buffers = Buffers::new(2 << 20);
        let segment = buffers.claim(64 << 10).await.buffer(64 << 10);
        let address = segment.as_ptr();
        drop(segment);
        assert_eq!(buffers.claim(64 << 10).await.buffer(64 << 10).as_ptr(), address);
        let one = buffers.claim(1 << 20).await.buffer(1 << 20);
        let two = buffers.claim(1 << 20).await.buffer(1 << 20);
        let third = buffers.claim(1 << 20);
        assert!(tokio::time::timeout(Duration::from_secs(1), third).await.is_err());
        let address = one.as_ptr();
        drop(one);
        assert_eq!(buffers.claim(1 << 20).await.buffer(1 << 20).as_ptr(), address);
        drop(two);
        let huge = tokio::time::timeout(Duration::from_secs(1), buffers.claim(1 << 30)).await;
        assert!(huge.is_ok(), "a claim above the budget is served alone");
    }

    #[tokio::test]
    async fn free_buffers_stay_within_the_budget() {
        let buffers = Buffers::new(16 << 20);
        let free = || buffers.large.lock().expect("free").iter().map(Vec::capacity).sum::<usize>();
        drop(buffers.claim(8 << 20).await.buffer(8 << 20));
        let small = buffers.claim(1 << 20).await.buffer(1 << 20);
        assert!(small.bytes.capacity() <= 2 << 20, "not much more than was claimed");
        drop(small);
        // One that is larger than the budget is not kept, and neither are many of all sizes.
        for size in [64 << 20, 1 << 20, 8 << 20, 15 << 20, 3 << 20] {
            let mut all = vec![buffers.claim(size).await.buffer(size)];
            while buffers.budget.available_permits() * GRAIN >= size {
                all.push(buffers.claim(size).await.buffer(size));
            }
            drop(all);
            assert!(free() <= (16 << 20) + (1 << 14), "{} free", free());
        }
    }

    #[tokio::test]
    async fn a_claim_can_be_shared_out() {
        let buffers = Buffers::new(64 << 10);
        let mut whole = buffers.claim(64 << 10).await;
        let parts: Vec<_> = (0..20).map(|_| whole.split(4096).buffer(4096)).collect();
        drop((whole, parts));
        assert_eq!(buffers.budget.available_permits(), 16);
    }
}
