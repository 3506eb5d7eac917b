//! The limits by which the pool decides.

use std::time::Duration;

/// The limits by which the pool decides.
#[derive(Debug, Clone, Copy)]
pub struct PoolLimits {
    /// How long a session lives without a call.
    pub lease: Duration,
    /// How long a donor is believed alive without a word.
    pub suspect_after: Duration,
    /// How long a donor is without a word until it is silent and no longer a suspect only.
    pub silent_after: Duration,
    /// How long a donor is silent until it is given up and what it holds is made again elsewhere.
    pub grace: Duration,
    /// The longest grace and the longest absence that a donor may claim for itself.
    pub longest_absence: Duration,
    /// The bytes a second that repair makes in all.
    pub repair_rate: u64,
    /// The bytes a second that repair asks of one donor.
    pub repair_donor_rate: u64,
}
