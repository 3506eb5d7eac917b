//! The pool as a whole.

use super::{Call, call};
use potluck_core::ids::DonorId;
use potluck_core::ids::Epoch;
use potluck_core::load::Load;
use serde::{Deserialize, Serialize};

/// How the pool is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {}
call!(Status => PoolStatus, "status");

/// The pool at one moment.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PoolStatus {
    /// What the pool is called.
    pub pool: String,
    /// The manager's version.
    pub version: String,
    /// Starts of a manager over this catalog.
    pub epoch: Epoch,
    /// Seconds since the manager started.
    pub uptime_seconds: u64,
    /// Open write sessions.
    pub sessions: u64,
    /// Files in all spaces.
    pub files: u64,
    /// Their sizes together, in bytes.
    pub bytes: u64,
    /// Chunks no file uses, waiting to be reclaimed.
    #[serde(default)]
    pub condemned_chunks: u64,
    /// Every donor that ever joined and was not removed.
    pub donors: Vec<DonorStatus>,
}

/// What the manager thinks of a donor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DonorState {
    /// Heard from lately.
    Live,
    /// Silent for some seconds; nobody waits on it.
    Suspect,
    /// Not heard from since the manager started, or for long.
    #[default]
    Away,
}

/// One donor at one moment.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DonorStatus {
    /// Which donor.
    pub donor: DonorId,
    /// What people call it.
    pub name: String,
    /// Its `host:port`.
    pub address: String,
    /// What the manager thinks of it.
    pub state: DonorState,
    /// Seconds since it was heard, if ever.
    #[serde(default)]
    pub silent_seconds: Option<u64>,
    /// Its product version.
    #[serde(default)]
    pub version: String,
    /// Bytes Potluck holds there.
    pub used: u64,
    /// Bytes Potluck may still write there, before promises.
    pub room: u64,
    /// Of these, promised to open sessions.
    pub promised: u64,
    /// Chunks it holds that files use.
    pub chunks: u64,
    /// Chunks it holds that this catalog does not know; never deleted for that.
    pub unclaimed: u64,
    /// Chunks it lost or spoiled since they were committed.
    pub bad: u64,
    /// Its last sample.
    pub load: Load,
}
