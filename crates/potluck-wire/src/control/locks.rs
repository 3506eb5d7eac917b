//! Locks of files. A mount has the authority over the locks of a file from the manager, and arbitrates between the
//! programs of its machine by itself (docs/notes/0014-locks-between-mounts.md).

use super::{Call, Callers, Done, MAX_MESSAGE, call};
use potluck_core::ids::LockHolderId;
use potluck_core::path::PoolPath;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The time for which a holder keeps its authorities without being heard. The holder counts from when it sent its last
/// call that was answered, and the manager from when that call arrived.
pub const LOCK_LEASE: Duration = Duration::from_secs(10);

/// The time for which a call about locks waits for something to change.
pub const LOCK_WAIT: Duration = Duration::from_secs(2);

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
    /// Returns whether two holders may have these levels for the same file.
    pub fn goes_with(self, other: Self) -> bool {
        self == Self::Shared && other == Self::Shared
    }
}

/// The authority over the locks of one file, with its level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockAuthority {
    /// The path of the file, which need not be there yet.
    pub path: PoolPath,
    /// The level of the authority.
    pub level: LockLevel,
}

/// Takes the authority over the locks of a file. The caller needs the right to read there, or for the exclusive level
/// the right to write.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LockTake {
    /// The holder that takes the authority.
    pub holder: LockHolderId,
    /// True if the holder has no authority yet. Any other holder that the manager does not know has to say first what
    /// it holds ([`LockKeep::held`]).
    #[serde(default)]
    pub is_first: bool,
    /// The authority that is asked for.
    pub authority: LockAuthority,
    /// True if the call waits in a queue with others; a call that is not repeated soon leaves the queue.
    #[serde(default)]
    pub waits: bool,
}
impl Call for LockTake {
    const NAME: &'static str = "lock-take";
    const BY: Callers = Callers::Users;
    const WHAT: &'static str = "locking files";
    const DEADLINE: Duration = LOCK_WAIT.saturating_mul(3);
    type Reply = LockTaken;
}

/// The outcome of [`LockTake`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockTaken {
    /// The holder has the authority from now on.
    Granted,
    /// Other holders have the authority, and do not give it back yet.
    Busy,
    /// The manager was started a moment ago, and holders that it has not heard yet may have the authority.
    NotYet,
    /// The manager does not know which authorities the holder has.
    Unknown,
}

/// Keeps all authorities of a holder, and learns what other holders want of them. The call waits until others want
/// something else than before, for [`LOCK_WAIT`] at most.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LockKeep {
    /// The holder that keeps its authorities.
    pub holder: LockHolderId,
    /// All authorities of the holder; sent only to a manager that did not know the holder, and answered without waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Vec<LockAuthority>>,
    /// All names that the holder has reserved; sent together with [`Self::held`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserved: Vec<PoolPath>,
    /// The paths of files whose authority others want and cannot have yet, because programs of the holder have locks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub busy: Vec<PoolPath>,
}
impl Call for LockKeep {
    const NAME: &'static str = "lock-keep";
    const BY: Callers = Callers::Users;
    const WHAT: &'static str = "locking files";
    /// The most bytes of a call: all 65 536 authorities that a member may have, with one holder, if their paths have
    /// 1400 bytes on average, and 20 000 with the longest paths.
    const MOST_BODY: usize = MAX_MESSAGE;
    const DEADLINE: Duration = LOCK_WAIT.saturating_mul(3);
    type Reply = LockKept;
}

/// The state of a holder's authorities after a call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockKept {
    /// True if the manager does not know the holder, which then has to say which authorities it has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    /// The authorities that the holder claimed and has lost: it was not heard for too long, and others may have had
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<PoolPath>,
    /// The names that the holder claimed and that are reserved for it no longer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_names: Vec<PoolPath>,
    /// The authorities of the holder that others want.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wanted: Vec<LockAuthority>,
}

/// Gives the authority over the locks of a file back, wholly or down to the shared level.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LockGive {
    /// The holder that gives the authority back.
    pub holder: LockHolderId,
    /// The path of the file.
    pub path: PoolPath,
    /// The level that the holder keeps, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeps: Option<LockLevel>,
}
call!(LockGive => Done, "lock-give", Users, "locking files");

/// Reserves a name for a file that a program makes with `O_EXCL`, until the file is published, or the holder frees the
/// name or is not heard for [`LOCK_LEASE`]. Meanwhile no other holder gets the name, and nobody sees it. The caller needs
/// the right to write there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NameReserve {
    /// The holder that reserves the name.
    pub holder: LockHolderId,
    /// True if the holder has neither authorities nor names yet, as in [`LockTake`].
    #[serde(default)]
    pub is_first: bool,
    /// The path of the file that is made.
    pub path: PoolPath,
}
call!(NameReserve => NameReserved, "name-reserve", Users, "writing files");

/// The outcome of [`NameReserve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NameReserved {
    /// The name is the holder's.
    Reserved,
    /// There is an entry of that name, or another holder has reserved it.
    Taken,
    /// The manager was started a moment ago, and holders that it has not heard yet may have reserved the name.
    NotYet,
    /// The manager does not know what the holder has.
    Unknown,
}

/// Frees a reserved name whose file was not published under it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NameFree {
    /// The holder that reserved the name.
    pub holder: LockHolderId,
    /// The path that was reserved.
    pub path: PoolPath,
}
call!(NameFree => Done, "name-free", Users, "writing files");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_lock_reclaim_fits_a_message() {
        let name = format!("/{}", "d".repeat(254));
        let path: PoolPath = format!("pot://lab{}", name.repeat(16)).parse().expect("a path");
        let authority = LockAuthority { path, level: LockLevel::Exclusive };
        let bytes = serde_json::to_vec(&authority).expect("JSON").len() + 1;
        assert!(20_000 * bytes < LockKeep::MOST_BODY, "{bytes} bytes each");
    }
}
