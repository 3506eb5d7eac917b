//! The counts of the manager between scrapes.

/// The counts between scrapes, and the last scrape.
#[derive(Debug, Default)]
pub struct Metrics {
    /// The control port's.
    pub calls: potluck_wire::metrics::Calls,
    pub(super) cached: potluck_wire::metrics::Cached,
    pub(super) making: tokio::sync::Mutex<()>,
}
