//! What a name led to in the past, as the metadata log tells of it.

use potluck_core::ids::SnapshotId;
use potluck_core::path::PoolPath;
use serde::{Deserialize, Serialize};

/// A name that led to something else than it does now, which a snapshot shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BygoneName {
    /// The path of the name.
    pub path: PoolPath,
    /// Where what it led to is at this moment of the log.
    pub at: PoolPath,
    /// The first snapshot that shows it there.
    pub since: SnapshotId,
    /// The first snapshot after that which does not.
    pub until: SnapshotId,
    /// The newest snapshot that shows it.
    pub snapshot: SnapshotId,
}
