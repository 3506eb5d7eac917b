//! The limits by which the pool decides.

use std::time::Duration;

/// The limits by which the pool decides.
#[derive(Debug, Clone, Copy)]
pub struct PoolLimits {
    /// The time after which a session without a call ends.
    pub lease: Duration,
    /// The longest silence of a donor that is believed to be alive; after it the donor is a suspect.
    pub suspect_after: Duration,
    /// The longest silence of a donor that is a suspect only; after it the donor is called silent.
    pub silent_after: Duration,
    /// The longest silence of a donor before it is given up and its copies are made again elsewhere, unless its owner
    /// announced more.
    pub grace: Duration,
    /// The longest grace and the longest absence that a donor may claim for itself.
    pub longest_absence: Duration,
    /// The most bytes a second that repair makes in all.
    pub repair_rate: u64,
    /// The most bytes a second that repair asks of one donor, reading and writing counted apart.
    pub repair_donor_rate: u64,
}
