//! The circuit breaker of repair, which pauses it while many donors are dead at once.

use potluck_core::ids::DonorId;
use std::collections::BTreeSet;

/// The changes that time brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DonorChanges {
    /// Donors whose grace ended.
    pub dead: Vec<DonorId>,
    /// Donors that came back after that.
    pub back: Vec<DonorId>,
    /// Whether a donor fell silent, or was heard again: how safe files are at this moment changed.
    pub silence: bool,
}

/// Whether so many donors went at once that it is no time to repair.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CircuitBreaker {
    /// The donors whose loss tripped it.
    pub tripped: BTreeSet<DonorId>,
    /// Donors that are dead, and that an admin said to repair after.
    pub declared_dead: BTreeSet<DonorId>,
}
