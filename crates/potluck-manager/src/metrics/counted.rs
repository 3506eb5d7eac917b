//! The parts of the manager's metrics that are kept between scrapes.

/// The counts since the manager's start, and the last exposition.
#[derive(Debug, Default)]
pub struct ManagerMetrics {
    /// The counts of the calls to the control port.
    pub calls: potluck_wire::metrics::Calls,
    pub(super) cached: potluck_wire::metrics::CachedMetrics,
    pub(super) making: tokio::sync::Mutex<()>,
}
