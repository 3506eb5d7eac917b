//! Snapshots as the metadata log tells of them, and as their users see them.

use potluck_core::ids::{MemberId, SnapshotId};
use potluck_core::path::PoolPath;
use serde::{Deserialize, Serialize};

/// A snapshot of a directory that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenSnapshot {
    /// The path by which the snapshot is read.
    pub at: PoolPath,
    /// The number of the snapshot.
    pub number: SnapshotId,
    /// The wall time at which it was taken, in milliseconds.
    pub made_wall_ms: i64,
    /// The member that took the snapshot; `None` for the pool itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<MemberId>,
}
