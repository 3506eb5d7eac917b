//! Checkpoints: files that are staged out of sight, and become visible at one moment.

use super::{Call, Callers, Condition, Done, call};
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::ids::MemberId;
use potluck_core::path::PoolPath;
use serde::{Deserialize, Serialize};

/// Begins a checkpoint. A repeated call for one that is open already has it stay open for longer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckpointBegin {
    /// The identifier of the checkpoint, drawn at random or derived from the path of a shared file. A member who knows
    /// it, and may write in the space, writes to the checkpoint.
    pub id: CheckpointId,
    /// The directory that the files become or are merged into; with [`CommitStyle::Share`] the file that they make.
    pub target: PoolPath,
    /// What the commit makes of the files.
    pub style: CommitStyle,
}
call!(CheckpointBegin => CheckpointBegun, "checkpoint-begin", Users, "`potluck ckpt`");

/// A checkpoint that is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointBegun {
    /// The directory in which its files are staged: what is written there is the checkpoint's.
    pub staging: PoolPath,
    /// The time for which it stays open while nothing is written to it, in milliseconds.
    pub idle_ms: u64,
}

/// Commits a checkpoint: all its files become visible at one moment. To commit it a second time changes nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckpointCommit {
    /// The space of the checkpoint.
    pub space: String,
    /// The identifier of the checkpoint.
    pub id: CheckpointId,
    /// The condition for each file that a file of the checkpoint replaces; where one does not meet it, nothing
    /// becomes visible.
    #[serde(default)]
    pub condition: Condition,
    /// True if a file without content is refused where it would replace a file that has some.
    #[serde(default)]
    pub spare_content: bool,
    /// True if the call is not refused while mounts have files open for writing that are staged for the checkpoint.
    /// What they write is not in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub even_if_open: bool,
}
call!(CheckpointCommit => CheckpointCommitted, "checkpoint-commit", Users, "`potluck ckpt`");

/// A checkpoint that is visible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointCommitted {
    /// The path of what the checkpoint became.
    pub target: String,
    /// True if the checkpoint had been committed before this call.
    #[serde(default)]
    pub before: bool,
}

/// Aborts a checkpoint and removes its files. To abort it a second time changes nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckpointAbort {
    /// The space of the checkpoint.
    pub space: String,
    /// The identifier of the checkpoint.
    pub id: CheckpointId,
    /// True if the call is refused where files are staged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub if_empty: bool,
}
call!(CheckpointAbort => Done, "checkpoint-abort", Users, "`potluck ckpt`");

/// Lists the checkpoints that are open in the spaces that the caller may list.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct CheckpointList {}
call!(CheckpointList => Checkpoints, "checkpoint-list", Users, "`potluck ckpt`");

/// The reply to [`CheckpointList`]: the open checkpoints, in the order in which they began, and those that the caller
/// committed lately.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Checkpoints {
    /// The checkpoints that are open.
    pub checkpoints: Vec<CheckpointAbout>,
    /// The checkpoints that the caller began and that were committed in the last day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub committed: Vec<OwnCommitted>,
}

/// A checkpoint of the caller that is visible.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OwnCommitted {
    /// The identifier of the checkpoint.
    pub id: CheckpointId,
    /// The path of what the checkpoint became.
    pub target: String,
    /// The observed application bandwidth in MiB a second, measured as for an open checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oab_mib_s: Option<f64>,
    /// The achieved storage bandwidth in MiB a second, measured as for an open checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asb_mib_s: Option<f64>,
}

/// A checkpoint that is open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointAbout {
    /// The identifier of the checkpoint; told only to the member who began it and to members who manage the space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<CheckpointId>,
    /// The directory that its files become or are merged into; with [`CommitStyle::Share`] the file that they make.
    pub target: PoolPath,
    /// What the commit makes of the files.
    pub style: CommitStyle,
    /// The directory in which its files are staged; told to the same members as the identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging: Option<PoolPath>,
    /// The member who began the checkpoint.
    pub member: MemberId,
    /// The name of the member who began the checkpoint, if that is still a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maker: Option<String>,
    /// True if the caller began the checkpoint.
    #[serde(default)]
    pub is_own: bool,
    /// The time since the checkpoint began, in milliseconds.
    pub age_ms: u64,
    /// The milliseconds after which it expires, if nothing is written to it until then.
    pub expires_ms: u64,
    /// The number of files and links that are staged, as far as they were counted.
    pub files: u64,
    /// The size of these files together, in bytes of plaintext.
    pub bytes: u64,
    /// True if more files and links are staged than were counted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// The observed application bandwidth in MiB a second: from the opening of the first session that wrote to the
    /// checkpoint until the last file was staged, of sessions that opened since the manager's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oab_mib_s: Option<f64>,
    /// The achieved storage bandwidth in MiB a second: from the opening of that session until all copies of the files
    /// were made; `None` while some are still to be made, or where the manager was not told when they were made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asb_mib_s: Option<f64>,
}
