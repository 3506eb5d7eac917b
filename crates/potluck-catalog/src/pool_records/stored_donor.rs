//! A donor as the catalog remembers it.

use potluck_core::ids::{DonorId, VersionId};
use potluck_wire::addresses::Addresses;
use serde::{Deserialize, Serialize};

/// A donor as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StoredDonor {
    /// The id of the donor.
    pub donor: DonorId,
    /// The pool's time at which the donor was last heard, in milliseconds; not known after a restore.
    #[serde(skip)]
    pub heard_ms: Option<u64>,
    /// The pool's time without its leaps, in milliseconds, until which the donor's absence is announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away_until_ms: Option<u64>,
    /// The goal of the donor's give-back, while its owner takes space back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub giving: Option<Goal>,
    /// The reason why the donor's copies do not count, while it is quarantined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantined: Option<String>,
    /// The addresses at which the donor was reached when it registered last.
    #[serde(default)]
    pub addresses: Addresses,
}

/// The goal of a give-back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Goal {
    /// The bytes that the donor held when the give-back began.
    pub start: u64,
    /// True if the donor gives its space back without waiting for copies to be made elsewhere.
    pub at_once: bool,
    /// The versions that may be lost for the give-back, in order.
    pub lose: Vec<VersionId>,
}
