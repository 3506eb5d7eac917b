//! An open checkpoint in the form in which it is reported and logged.

use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::ids::MemberId;
use potluck_core::path::PoolPath;
use serde::{Deserialize, Serialize};

/// A checkpoint that is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCheckpoint {
    /// The identifier of the checkpoint.
    pub id: CheckpointId,
    /// The directory in which the checkpoint's files are staged.
    pub staging: PoolPath,
    /// The directory that the files become or are merged into, or the file that writers share.
    pub target: PoolPath,
    /// The way in which the files take their places.
    pub style: CommitStyle,
    /// The member that began the checkpoint.
    pub made_by: MemberId,
    /// The wall time at which the checkpoint began, in milliseconds.
    pub begun_wall_ms: i64,
    /// The pool's time, without its leaps and in milliseconds, at which the checkpoint was used last, to the minute.
    pub used_ms: u64,
    /// The time in milliseconds for which the checkpoint stays open while nothing is written to it.
    pub idle_ms: u64,
}
