//! The counts of the manager between scrapes.

/// The counts between scrapes, and the last scrape.
#[derive(Debug, Default)]
pub struct ManagerMetrics {
    /// Counts of the calls to the control port.
    pub calls: potluck_wire::metrics::Calls,
    pub(super) cached: potluck_wire::metrics::CachedMetrics,
    pub(super) making: tokio::sync::Mutex<()>,
}
