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
    /// The grace that the donor's owner announced, who may claim more than the pool grants.
    pub grace: Option<Duration>,
    /// The time for which the donor had been silent when the earlier term of the manager ended; `None` if it was never
    /// heard.
    pub silent_before: Option<Duration>,
    pub away_until: Option<Tick>,
    /// True from when an admin declares the donor dead, and does not wait for it, until it is heard again.
    pub declared_dead: bool,
    /// True from the donor's death until it is back with an inventory that was compared: until then its copies count
    /// for nothing.
    pub stale: bool,
    pub dead: bool,
    /// True while the donor's copies cannot be read: it is silent, or its inventory was not compared.
    pub silent: bool,
    pub quarantined: Option<String>,
    pub giving: Option<Giving>,
    /// The bytes that the donor holds beyond its owner's limits.
    pub excess: u64,
    /// The name partition below which copies are being moved away because this donor holds more than its owner lends.
    pub quota_below: u32,
    /// The bytes of the excess that the donor's disk lacks now.
    pub disk_lacks: u64,
    /// The name partition below which copies leave as soon as their files are safe without them, because the donor's
    /// disk is full.
    pub disk_below: u32,
    pub scrub: Scrubbed,
    /// The addresses with which the donor registered last, also with an earlier term of the manager.
    pub addresses: Addresses,
}

impl DonorRecord {
    /// Returns whether new copies may go to the donor while it is heard.
    pub fn is_willing(&self) -> bool {
        self.quarantined.is_none() && self.giving.is_none() && self.excess == 0
    }

    /// Returns whether the donor gives all its space back.
    pub fn leaves(&self) -> bool {
        self.giving.is_some()
    }
}

/// The give-back of a donor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Giving {
    /// The bytes that the donor held when the give-back began.
    pub start: u64,
    /// True if the donor gives its space back at once, without waiting for copies to be made elsewhere.
    pub at_once: bool,
    /// The versions that may be lost by the give-back, in order: their last copies are not waited for either.
    pub lose: Arc<[VersionId]>,
    /// The time at which the give-back was asked for; after a restart of the manager, the time of that start.
    pub since: Tick,
}
