//! Checkpoints: files that are staged out of sight, and become visible at one moment.

use super::{Call, Condition, Done, call};
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::ids::MemberId;
use potluck_core::path::PoolPath;
use serde::{Deserialize, Serialize};

/// Begins a checkpoint. To begin one that is open once more has it stay open for longer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckpointBegin {
    /// The identifier of the checkpoint, drawn at random: whoever knows it, and may write in the space, writes to the checkpoint.
    pub id: CheckpointId,
    /// The directory that the files become, or are merged into.
    pub target: PoolPath,
    /// What the commit makes of the files.
    pub style: CommitStyle,
}
call!(CheckpointBegin => CheckpointBegun, "checkpoint-begin");

/// A checkpoint that is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointBegun {
    /// The directory in which its files are staged: what is written there is the checkpoint's.
    pub staging: PoolPath,
    /// How long it stays open while nothing is written to it, in milliseconds.
    pub idle_ms: u64,
}

/// Has the files of a checkpoint become visible, all at one moment. To commit one that was committed changes nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckpointCommit {
    /// The space of the checkpoint.
    pub space: String,
    /// The identifier of the checkpoint.
    pub id: CheckpointId,
    /// What must be so of each file that one of the checkpoint's replaces; where it is not, nothing becomes visible.
    #[serde(default)]
    pub condition: Condition,
    /// Whether a file without a byte may replace none that has some.
    #[serde(default)]
    pub spare_content: bool,
}
call!(CheckpointCommit => CheckpointCommitted, "checkpoint-commit");

/// A checkpoint that is visible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointCommitted {
    /// The path of what it became.
    pub target: String,
    /// Whether it had been committed before.
    #[serde(default)]
    pub before: bool,
}

/// Removes the files of a checkpoint. To abort one that was aborted changes nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckpointAbort {
    /// The space of the checkpoint.
    pub space: String,
    /// The identifier of the checkpoint.
    pub id: CheckpointId,
    /// Refuse it where something is staged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub if_empty: bool,
}
call!(CheckpointAbort => Done, "checkpoint-abort");

/// Lists the checkpoints that are open in the spaces that the caller may list.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct CheckpointList {}
call!(CheckpointList => Checkpoints, "checkpoint-list");

/// The checkpoints that are open, those that began first before others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Checkpoints {
    /// The checkpoints that are open.
    pub checkpoints: Vec<CheckpointAbout>,
    /// Those that the caller began and that were committed in the last day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub committed: Vec<OwnCommitted>,
}

/// A checkpoint of the caller that is visible.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OwnCommitted {
    /// The identifier of the checkpoint.
    pub id: CheckpointId,
    /// The path of what it became.
    pub target: String,
    /// The observed application bandwidth, as of one that is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oab_mib_s: Option<f64>,
    /// The achieved storage bandwidth, as of one that is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asb_mib_s: Option<f64>,
}

/// A checkpoint that is open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointAbout {
    /// The identifier of the checkpoint, for whoever began it and for those who manage the space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<CheckpointId>,
    /// The directory that its files become, or are merged into.
    pub target: PoolPath,
    /// What the commit makes of the files.
    pub style: CommitStyle,
    /// The directory in which its files are staged, told to whom the identifier is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging: Option<PoolPath>,
    /// Who began it.
    pub member: MemberId,
    /// The name of that member, if they still are one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maker: Option<String>,
    /// Whether the caller began it.
    #[serde(default)]
    pub is_own: bool,
    /// How long ago it began, in milliseconds.
    pub age_ms: u64,
    /// The milliseconds after which it expires, if nothing is written to it until then.
    pub expires_ms: u64,
    /// The files and links that are staged, as far as they were counted.
    pub files: u64,
    /// Size of these files together, in bytes of plaintext.
    pub bytes: u64,
    /// Whether there are more than were counted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// MiB a second from when it was first written to until the last of its files was staged (the observed application
    /// bandwidth), as far as that was since the manager's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oab_mib_s: Option<f64>,
    /// MiB a second until all copies of these were made (the achieved storage bandwidth); none while some are to be made, or
    /// were made when nobody told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asb_mib_s: Option<f64>,
}
