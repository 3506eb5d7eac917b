//! A thing that a name led to in the past, as the metadata log tells of it.

use potluck_core::ids::SnapshotId;
use potluck_core::path::PoolPath;
use serde::{Deserialize, Serialize};

/// A name that led to something else than it does now, which a snapshot shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BygoneName {
    /// The path of the name.
    pub path: PoolPath,
    /// The path, at this moment of the log, of what the name led to.
    pub at: PoolPath,
    /// The first snapshot in which the name leads there.
    pub since: SnapshotId,
    /// The first later snapshot in which the name does not lead there.
    pub until: SnapshotId,
    /// The newest snapshot in which the name leads there.
    pub snapshot: SnapshotId,
}
