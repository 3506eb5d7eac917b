//! The calls about files that several writers share (docs/notes/0016-shared-writers.md): who writes which bytes, and
//! whose turn it is to make a version of what all of them wrote.

use super::{Call, Callers, call};
use potluck_core::ids::SharedWriterId;
use potluck_core::path::PoolPath;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::time::Duration;

/// The time for which the ranges that a writer has claimed stay its own without a sign of life.
pub const CLAIM_LEASE: Duration = Duration::from_secs(10);

/// The most ranges that all writers of one file together may have claimed, adjoining ones joined. One call tells all
/// ranges of a writer.
pub const MOST_CLAIMED: usize = 1 << 18;

/// The most bytes of the name of a writer.
pub const LONGEST_WRITER_NAME: usize = 64;

/// Claims ranges of a file that writers share; without any range the call is a sign of life. The caller needs the
/// right to write there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SharedClaim {
    /// The path of the file.
    pub path: PoolPath,
    /// The writer that claims the ranges.
    pub writer: SharedWriterId,
    /// The name of the writer, by which its contribution is known.
    pub name: String,
    /// The ranges that nobody else may write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<Range<u64>>,
    /// True if the writer has claimed nothing yet.
    #[serde(default)]
    pub is_first: bool,
    /// True if the ranges are all that the writer has; a manager that does not know the writer is told this.
    #[serde(default)]
    pub is_all: bool,
}
call!(SharedClaim => SharedClaimed, "shared-claim", Users, "`potluck write-shared`", at most MOST_CLAIMED * 80);

/// The outcome of [`SharedClaim`]. A range that another writer has is an error that names that writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedClaimed {
    /// The ranges are the writer's from now on.
    Granted,
    /// The ranges cannot be given yet: the manager was started a moment ago, and writers that it has not heard yet
    /// may have them; or a version is being made, and new writers are to write to the next.
    NotYet,
    /// The manager does not know the writer, which has to tell all the ranges that it has.
    Unknown,
}

/// Ends a writer's part in a file that writers share: it has finished, or gives up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SharedLeave {
    /// The path of the file.
    pub path: PoolPath,
    /// The writer that leaves.
    pub writer: SharedWriterId,
    /// True if the writer's bytes are to be in the next version: nobody else may then write there before that version
    /// is made.
    pub has_finished: bool,
    /// The time since the first such call of this writer was answered, in milliseconds. Only writers that were heard
    /// since count as there.
    #[serde(default)]
    pub waited_ms: u64,
}
call!(SharedLeave => SharedLeft, "shared-leave", Users, "`potluck write-shared`");

/// The answer to [`SharedLeave`]: whether the writer that left was the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedLeft {
    /// Another writer is at work, and makes the version when it is the last.
    OthersWrite,
    /// Other writers may be at work, none of whom was heard since the writer left: it asks again.
    NotKnown,
    /// The writer was the last, and makes the version.
    Last,
    /// The writer's bytes are in a version that another has made.
    Published,
}

/// Takes the turn to make a version, keeps it, or gives it back. A turn that is not kept for [`CLAIM_LEASE`] is over.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SharedTurn {
    /// The path of the file.
    pub path: PoolPath,
    /// The client that is to have the turn.
    pub writer: SharedWriterId,
    /// The fate of the contributions, where the turn is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<SharedTurnOver>,
}
call!(SharedTurn => SharedTurnTaken, "shared-turn", Users, "`potluck write-shared`", at most MOST_CLAIMED * 80);

/// The fate of contributions in a turn, by the names of their writers. The ranges that these claimed are free again.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SharedTurnOver {
    /// The writers whose contributions are in a version.
    pub published: Vec<String>,
    /// The writers whose contributions were left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// The answer to [`SharedTurn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedTurnTaken {
    /// The turn is the caller's.
    Own,
    /// The turn is another's.
    Another,
}

/// Asks who writes a file that writers share. The caller needs the right to list there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SharedWriters {
    /// The path of the file.
    pub path: PoolPath,
}
call!(SharedWriters => SharedWritersHeard, "shared-writers", Users, "`potluck write-shared`");

/// The writers that the manager has heard, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedWritersHeard {
    /// The directory in which contributions are staged; `None` where the file is not shared.
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
    /// The name of the member that writes, if that is still a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_name: Option<String>,
    /// True if the writer has finished its part.
    pub has_finished: bool,
    /// The number of bytes that the writer has claimed.
    pub claimed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_shared_writer_list_fits_a_message() {
        let name = "w".repeat(LONGEST_WRITER_NAME);
        let bytes = serde_json::to_vec(&name).expect("JSON").len() + 1;
        assert!(MOST_CLAIMED * bytes < SharedTurn::MOST_BODY, "{bytes} bytes each");
    }
}
