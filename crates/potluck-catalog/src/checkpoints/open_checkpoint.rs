//! A checkpoint that is open, as it is told and logged.

use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::ids::MemberId;
use potluck_core::path::PoolPath;
use serde::{Deserialize, Serialize};

/// A checkpoint that is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCheckpoint {
    /// The identifier of the checkpoint.
    pub id: CheckpointId,
    /// The directory in which its files are staged.
    pub staging: PoolPath,
    /// The directory that the files become, or are merged into.
    pub target: PoolPath,
    /// Whether the commit replaces the target by the files or merges them into it.
    pub style: CommitStyle,
    /// The member that began the checkpoint.
    pub made_by: MemberId,
    /// When the checkpoint began, in milliseconds of wall time.
    pub begun_wall_ms: i64,
    /// The pool's time, in milliseconds, at which the checkpoint was used last, to the minute.
    pub used_ms: u64,
    /// How long the checkpoint stays open while nothing is written to it.
    pub idle_ms: u64,
}
