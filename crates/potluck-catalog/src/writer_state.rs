//! What the catalog's writer shares with those who ask about it.

use crate::fault::CatalogDiskFault;
use crate::log::committed::ChangeListener;
use crate::versions::leases::Leases;
use potluck_core::clock::SharedClock;
use potluck_wire::metrics::Times;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

/// The state of the catalog's writer. Clones share it.
#[derive(Clone)]
pub struct WriterState {
    /// The number of changes that no power cut undoes.
    pub changes: Arc<AtomicU64>,
    /// The error of the last write that the disk did not take, if any.
    pub fault: Arc<CatalogDiskFault>,
    /// The versions that readers have open.
    pub leases: Arc<Leases>,
    /// The clock by which the writer is timed, and work in the background ends its steps.
    pub clock: SharedClock,
    /// The time for which the writer was held.
    pub times: Arc<WriterTimes>,
    /// The listener that is told of all that is committed.
    pub listener: Arc<OnceLock<Arc<dyn ChangeListener>>>,
}

impl WriterState {
    /// The state of a writer that has done nothing yet.
    pub fn new(clock: SharedClock) -> Self {
        let (changes, fault, leases, times, listener) = Default::default();
        Self { changes, fault, leases, clock, times, listener }
    }
}

/// How long the catalog's writer was held, since the catalog was opened.
#[derive(Debug, Default)]
pub struct WriterTimes {
    /// The time of jobs, each without the commit that keeps its work.
    pub jobs: Times,
    /// The time of commits of the transactions that jobs share, until the disk has them where one of the jobs asked
    /// for that.
    pub commits: Times,
}
