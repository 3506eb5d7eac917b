//! The pool's soft state, shared by calls and background tasks.

use potluck_pool::Pool;
use std::sync::{Arc, Mutex, MutexGuard};

/// The soft state of the pool. Clones share it.
#[derive(Clone)]
pub struct SharedPool(Arc<Mutex<Pool>>);

impl SharedPool {
    /// Makes the first handle on `pool`.
    pub fn new(pool: Pool) -> Self {
        Self(Arc::new(Mutex::new(pool)))
    }

    /// Locks the pool. The lock is never held while waiting, nor inside a job of the catalog.
    pub fn lock(&self) -> MutexGuard<'_, Pool> {
        self.0.lock().expect("no holder panics")
    }
}
