//! Donors as they stood at a moment, for whoever decides by that a little later: in a transaction of the
//! catalog, where nothing of the pool is locked.

use super::view::PoolView;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what happens to donors by which their copies may be worth less.
#[derive(Debug, Default)]
pub struct Losses(pub(crate) Arc<AtomicU64>);

impl Losses {
    /// A donor's copies may be worth less from now on.
    pub fn note(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// Donors as they stood.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) view: PoolView,
    pub(crate) losses: Arc<AtomicU64>,
    /// Of which it knows so many.
    pub(crate) seen: u64,
}

impl Snapshot {
    /// Donors as they stood, unless something happened since by which a copy may be worth less. That
    /// a donor fell silent in the meantime is not told: it may do so the next moment as well.
    pub fn current(&self) -> Option<&PoolView> {
        (self.losses.load(Ordering::Acquire) == self.seen).then_some(&self.view)
    }
}
