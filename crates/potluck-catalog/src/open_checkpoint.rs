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
    /// The directory that they become, or are merged into.
    pub target: PoolPath,
    /// What the commit makes of them.
    pub style: CommitStyle,
    /// Who began it.
    pub made_by: MemberId,
    /// When it began, in milliseconds of wall time.
    pub begun_wall_ms: i64,
    /// The pool's time, in milliseconds, when it was used last, to the minute.
    pub used_ms: u64,
    /// How long it stays open while nothing is written to it.
    pub idle_ms: u64,
}
