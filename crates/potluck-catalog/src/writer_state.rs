//! The state of the catalog's writer that other threads read.

use crate::fault::CatalogDiskFault;
use crate::leases::Leases;
use crate::sql::Tx;
use potluck_core::clock::SharedClock;
use potluck_wire::metrics::Times;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

/// A function that is called after a commit which made changes, with their texts; `None` if they were too many.
pub type OnCommit = Box<dyn Fn(&Tx, Option<Vec<String>>) + Send + Sync>;

/// The state of the catalog's writer. Clones share it.
#[derive(Clone)]
pub struct WriterState {
    /// The number of changes that no power cut undoes; 0 until a commit has reached the disk.
    pub changes: Arc<AtomicU64>,
    /// The error of the last write that the disk did not take, if any.
    pub fault: Arc<CatalogDiskFault>,
    /// The leases of the versions that readers have open.
    pub leases: Arc<Leases>,
    /// The clock by which the writer is timed, and by which background work ends its steps.
    pub clock: SharedClock,
    /// The time for which the writer was held.
    pub times: Arc<WriterTimes>,
    /// The function that is told of all that is committed.
    pub told: Arc<OnceLock<OnCommit>>,
}

impl WriterState {
    /// Returns the state of a writer that has done nothing yet.
    pub fn new(clock: SharedClock) -> Self {
        let (changes, fault, leases, times, told) = Default::default();
        Self { changes, fault, leases, clock, times, told }
    }
}

/// The time for which the catalog's writer was held since the catalog was opened.
#[derive(Debug, Default)]
pub struct WriterTimes {
    /// The times of jobs, without the commits that keep their work.
    pub jobs: Times,
    /// The times of commits of the transactions that jobs share; if one of the jobs asked for that, until the commit is
    /// on disk.
    pub commits: Times,
}
