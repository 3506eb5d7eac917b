//! The facts known of a donor beyond its registration.

use potluck_core::clock::Tick;
use potluck_core::ids::VersionId;
use potluck_wire::addresses::Addresses;
use potluck_wire::control::Scrubbed;
use std::sync::Arc;
use std::time::Duration;

/// The facts known of a donor beyond its registration.
#[derive(Debug, Default)]
pub struct DonorRecord {
    pub label: Option<String>,
    /// Announced by its owner, who may claim more than the pool grants.
    pub grace: Option<Duration>,
    /// How long it had been silent when this manager started, if it was ever heard.
    pub silent_before: Option<Duration>,
    pub away_until: Option<Tick>,
    /// An admin does not wait for it.
    pub declared_dead: bool,
    /// It was dead, and its inventory was not compared since: what it may have counts for nothing.
    pub stale: bool,
    pub dead: bool,
    /// True if its copies cannot be read: it is silent, or its inventory was not compared.
    pub silent: bool,
    pub quarantined: Option<String>,
    pub giving: Option<Giving>,
    /// Bytes beyond its owner's limits.
    pub excess: u64,
    /// Copies in name partitions `0..quota_below` are being moved away because this donor holds more than its owner
    /// lends.
    pub quota_below: u32,
    pub scrub: Scrubbed,
    /// Where it was when it registered last, also with an earlier term of the manager.
    pub addresses: Addresses,
}

impl DonorRecord {
    /// Whether new copies may go there while it is heard.
    pub fn is_willing(&self) -> bool {
        self.quarantined.is_none() && self.giving.is_none() && self.excess == 0
    }

    /// Whether it gives all back.
    pub fn leaves(&self) -> bool {
        self.giving.is_some()
    }
}

/// The give-back of a donor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Giving {
    /// Bytes it held when it began.
    pub start: u64,
    /// Whether nothing is waited for.
    pub at_once: bool,
    /// Versions that may be lost for it, in order: their last copies are not waited for either.
    pub lose: Arc<[VersionId]>,
    /// When the give-back was asked for.
    pub since: Tick,
}
