//! An entry that was replaced or removed and is kept for a while, as the metadata log tells of it.

use potluck_core::ids::MemberId;
use potluck_core::path::PoolPath;
use serde::{Deserialize, Serialize};

/// A version, a directory or a link that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptEntry {
    /// The path from which the entry was put away by this change; `None` if it was where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PoolPath>,
    /// The path that leads to the entry now ([`potluck_core::kept_place`]).
    pub at: PoolPath,
    /// The name that the entry had in its directory.
    pub name: String,
    /// True if the entry was removed; otherwise something else took its place.
    pub removed: bool,
    /// The wall time at which the entry was replaced or removed, in milliseconds; 0 if it is kept for a snapshot after
    /// its tree was removed.
    pub kept_wall_ms: i64,
    /// The pool's time at which the entry was replaced or removed, in milliseconds.
    pub kept_ms: u64,
    /// The member that replaced or removed the entry; `None` for the pool itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<MemberId>,
    /// The pool's time, without its leaps, at which the entry is let go, in milliseconds; `None` while no time is set, because the entry is
    /// kept until there are enough newer ones, or for a snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// True if the entry is kept for a snapshot that shows it, and for nothing else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shown: bool,
}
