//! Files that several writers share (docs/notes/0016-shared-writers.md): who writes which bytes, and whose turn it is to
//! make a version of what all of them wrote.

use super::{Call, call};
use potluck_core::ids::SharedWriterId;
use potluck_core::path::PoolPath;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::time::Duration;

/// How long what a writer has claimed is its own without a sign of life.
pub const CLAIM_LEASE: Duration = Duration::from_secs(10);

/// Ranges that all writers of one file may have claimed, those that adjoin joined. One call says all that a writer has.
pub const MOST_CLAIMED: usize = 1 << 18;

/// The most letters of the name of a writer.
pub const LONGEST_WRITER_NAME: usize = 64;

/// Claims ranges of a file that writers share, or without any is a sign of life. Needs the right to write there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SharedClaim {
    /// The path of the file.
    pub path: PoolPath,
    /// Who claims them.
    pub writer: SharedWriterId,
    /// The name of the writer, by which its contribution is known.
    pub name: String,
    /// The ranges that nobody else may write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<Range<u64>>,
    /// True of a writer that has claimed nothing yet.
    #[serde(default)]
    pub is_first: bool,
    /// Whether these are all that it has: what a manager is told that does not know the writer.
    #[serde(default)]
    pub is_all: bool,
}
call!(SharedClaim => SharedClaimed, "shared-claim", at most MOST_CLAIMED * 80);

/// The outcome of [`SharedClaim`]. Ranges that another has are an error that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedClaimed {
    /// They are the writer's.
    Granted,
    /// The manager was started a moment ago, and others may have them who have not said so yet; or a version is being
    /// made, and whoever comes is to write to the next.
    NotYet,
    /// The manager does not know the writer, which has to say all that it has.
    Unknown,
}

/// A writer has done its part, or gives it up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SharedLeave {
    /// The path of the file.
    pub path: PoolPath,
    /// The writer that leaves.
    pub writer: SharedWriterId,
    /// Whether what it wrote is to be in the next version: then nobody else may write there before that is made.
    pub has_finished: bool,
    /// How long ago the first such call of this writer was answered, in milliseconds: only who was heard since is there.
    #[serde(default)]
    pub waited_ms: u64,
}
call!(SharedLeave => SharedLeft, "shared-leave");

/// Whether the writer that left was the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedLeft {
    /// Another is writing, and makes the version when it is the last.
    OthersWrite,
    /// Others may be writing, none of whom was heard since the writer left: it asks again.
    NotKnown,
    /// It was the last, and makes the version.
    Last,
}

/// Takes the turn to make a version, keeps it, or gives it back. One that is not kept for [`CLAIM_LEASE`] is over.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SharedTurn {
    /// The path of the file.
    pub path: PoolPath,
    /// The client that is to have the turn.
    pub writer: SharedWriterId,
    /// The turn is over, and the contributions of the writers of these names are in a version: what they claimed is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Vec<String>>,
}
call!(SharedTurn => SharedTurnTaken, "shared-turn", at most 1 << 20);

/// The answer to [`SharedTurn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedTurnTaken {
    /// The turn is the caller's.
    Own,
    /// The turn is another's.
    Another,
}

/// Asks who writes a file that writers share. Needs the right to list there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SharedWriters {
    /// The path of the file.
    pub path: PoolPath,
}
call!(SharedWriters => SharedWritersHeard, "shared-writers");

/// The writers that the manager has heard, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedWritersHeard {
    /// Where contributions are staged; `None` where the file is not shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging: Option<PoolPath>,
    /// Each writer with what it has claimed.
    pub writers: Vec<SharedWriterAbout>,
}

/// A writer of a shared file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedWriterAbout {
    /// The name of the writer.
    pub name: String,
    /// The name of the member that writes, if they still are one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_name: Option<String>,
    /// Whether it has done its part.
    pub has_finished: bool,
    /// Bytes that it has claimed.
    pub claimed: u64,
}
