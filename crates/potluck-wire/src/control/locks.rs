//! Locks of files. A mount has the authority over the locks of a file from the manager, and arbitrates between the
//! programs of its machine by itself (docs/notes/0014-locks-between-mounts.md).

use super::{Call, Done, call};
use potluck_core::ids::LockHolderId;
use potluck_core::path::{MAX_PATH, PoolPath};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a holder keeps its authorities without being heard. A holder counts from when it sent its last call that was
/// answered, and the manager from when that arrived.
pub const LOCK_LEASE: Duration = Duration::from_secs(10);

/// How long a call about locks waits for something to change.
pub const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Files that one holder may have the authority over.
pub const MOST_LOCKED: usize = 4096;

/// The level of an authority over a file's locks, which says which locks its holder may give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LockLevel {
    /// The programs of a holder may have shared locks, and those of other holders, too.
    Shared,
    /// The programs of this holder may have any locks, and nobody else may have one.
    Exclusive,
}

impl LockLevel {
    /// Whether two holders may have these levels of one file.
    pub fn goes_with(self, other: Self) -> bool {
        self == Self::Shared && other == Self::Shared
    }
}

/// The authority over the locks of one file, and at which level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockAuthority {
    /// The path of the file, which need not be there yet.
    pub path: PoolPath,
    /// What may be done.
    pub level: LockLevel,
}

/// Takes the authority over the locks of a file. Needs the right to read there, or for the exclusive one that to write.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LockTake {
    /// Who takes it.
    pub holder: LockHolderId,
    /// True of a holder that has no authority at all. Any other that the manager does not know has to say first what it
    /// holds ([`LockKeep::held`]).
    #[serde(default)]
    pub is_first: bool,
    /// The authority that is asked for.
    pub authority: LockAuthority,
    /// Whether it waits in a row with others: a call that is not repeated soon leaves the row.
    #[serde(default)]
    pub waits: bool,
}
impl Call for LockTake {
    const NAME: &'static str = "lock-take";
    const DEADLINE: Duration = LOCK_WAIT.saturating_mul(3);
    type Reply = LockTaken;
}

/// The outcome of [`LockTake`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockTaken {
    /// The holder has it from now on.
    Granted,
    /// Others have it, and do not give it back yet.
    Busy,
    /// The manager was started a moment ago, and others may have it who have not said so yet.
    NotYet,
    /// The manager does not know what the holder has.
    Unknown,
}

/// Keeps all authorities of a holder, and brings what others want of them: waits until somebody wants something else than
/// before.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LockKeep {
    /// Who keeps them.
    pub holder: LockHolderId,
    /// All that it has; only for a manager that did not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Vec<LockAuthority>>,
    /// What others want and cannot have yet, because programs have locks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub busy: Vec<PoolPath>,
}
impl Call for LockKeep {
    const NAME: &'static str = "lock-keep";
    /// All authorities of a holder, and as many paths that others want, of any length.
    const MOST_BODY: usize = MOST_LOCKED * 2 * (MAX_PATH + 64);
    const DEADLINE: Duration = LOCK_WAIT.saturating_mul(3);
    type Reply = LockKept;
}

/// What became of the authorities of a holder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockKept {
    /// The manager does not know the holder, which has to say what it has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    /// What it said to have and has not: it was not heard for too long, and others may have had it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<PoolPath>,
    /// What others want of that which it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wanted: Vec<LockAuthority>,
}

/// Gives the authority over the locks of a file back, or all but the shared one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LockGive {
    /// Who gives it back.
    pub holder: LockHolderId,
    /// The path of the file.
    pub path: PoolPath,
    /// The level that the holder keeps, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeps: Option<LockLevel>,
}
call!(LockGive => Done, "lock-give");
