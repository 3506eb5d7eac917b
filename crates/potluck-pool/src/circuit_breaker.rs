//! The circuit breaker of repair, which pauses it while many donors are dead at once.

use potluck_core::ids::DonorId;
use std::collections::BTreeSet;

/// The donors that became dead, came back or fell silent as time passed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DonorChanges {
    /// The donors that became dead: their grace ended, or an admin declared them dead.
    pub dead: Vec<DonorId>,
    /// The donors that came back after they had been dead.
    pub back: Vec<DonorId>,
    /// True if the copies of some donor began or ceased to be readable, which changes how safe files are now.
    pub silence: bool,
}

/// The state of the circuit breaker: the donors that tripped it, and those that an admin declared dead.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CircuitBreaker {
    /// The donors whose loss tripped the circuit breaker.
    pub tripped: BTreeSet<DonorId>,
    /// The dead donors whose chunks an admin said to repair nevertheless.
    pub declared_dead: BTreeSet<DonorId>,
}
