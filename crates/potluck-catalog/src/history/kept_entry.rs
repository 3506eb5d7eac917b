//! What was replaced or removed and is kept for a while, as the metadata log tells of it.

use potluck_core::ids::MemberId;
use potluck_core::path::PoolPath;
use serde::{Deserialize, Serialize};

/// A version, a directory or a link that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptEntry {
    /// The path that leads to it now ([`potluck_core::kept_place`]).
    pub at: PoolPath,
    /// The name that it had in its directory.
    pub name: String,
    /// Whether it was removed; otherwise something else took its place.
    pub removed: bool,
    /// When it was replaced or removed, in milliseconds of wall time.
    pub kept_wall_ms: i64,
    /// When it was replaced or removed, in the pool's time.
    pub kept_ms: u64,
    /// The member that replaced or removed it; `None`: the pool itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<MemberId>,
    /// The pool's time at which it is let go; `None`: when enough newer ones are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// Whether it is kept for a snapshot that shows it, and for nothing else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shown: bool,
}
