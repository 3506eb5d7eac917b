//! This manager's own term: the time from its start to its stop.

use crate::pool_time::PoolTime;
use potluck_catalog::Moment;
use potluck_core::ids::Epoch;
use std::sync::atomic::{AtomicU64, Ordering};

/// The name of the pool that is managed, and the term of this manager.
#[derive(Debug)]
pub struct OwnTerm {
    /// The name of the pool.
    pub pool_name: String,
    /// A number drawn at this start: no other term has the same epoch and start.
    pub start: u64,
    epoch: AtomicU64,
}

impl OwnTerm {
    /// Makes a term that begins in `epoch`.
    pub fn new(pool_name: String, start: u64, epoch: Epoch) -> Self {
        Self { pool_name, start, epoch: AtomicU64::new(epoch.0) }
    }

    /// Returns the term's epoch. It grows within one term only when a newer catalog ran before.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// Raises the term's epoch to a later one, which is durable already.
    pub fn raise_epoch(&self, epoch: Epoch) {
        self.epoch.fetch_max(epoch.0, Ordering::AcqRel);
    }

    /// Returns the moment by which tokens are judged.
    pub fn moment(&self, time: &PoolTime) -> Moment {
        Moment { epoch: self.epoch(), pool_ms: time.now_ms(), wall_ms: time.wall_ms() }
    }
}
