//! The counts that a donor keeps between scrapes of its metrics.

use potluck_wire::metrics::CachedMetrics;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// The counts between scrapes, and the last answer.
#[derive(Debug, Default)]
pub struct DonorMetrics {
    /// True if strangers are shown the figures.
    pub open: AtomicBool,
    /// The number of calls to the manager that failed.
    pub heartbeat_failures: AtomicU64,
    /// The answer to the last scrape.
    pub cached: CachedMetrics,
}
