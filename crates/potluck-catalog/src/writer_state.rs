//! What the catalog's writer shares with those who ask about it.

use crate::committed::ChangeListener;
use crate::fault::CatalogDiskFault;
use crate::leases::Leases;
use potluck_core::clock::SharedClock;
use potluck_wire::metrics::Times;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

/// How the writer is doing. Clones share it.
#[derive(Clone)]
pub struct WriterState {
    /// How many changes no power cut undoes.
    pub changes: Arc<AtomicU64>,
    /// What the disk did not take.
    pub fault: Arc<CatalogDiskFault>,
    /// The versions that readers have open.
    pub leases: Arc<Leases>,
    /// The clock by which the writer is timed, and work in the background ends its steps.
    pub clock: SharedClock,
    /// How long the writer was held.
    pub times: Arc<WriterTimes>,
    /// Who is told of what is committed.
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
    /// Jobs, each without the commit that keeps its work.
    pub jobs: Times,
    /// Commits of the transactions that jobs share, until the disk has them where one of the jobs asked for that.
    pub commits: Times,
}
