//! The counts of a donor between scrapes.

use potluck_wire::metrics::Cached;
use std::sync::atomic::AtomicU64;

/// The counts between scrapes.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Calls to the manager that failed.
    pub heartbeat_failures: AtomicU64,
    /// The answer to the last scrape.
    pub cached: Cached,
}
