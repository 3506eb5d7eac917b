//! Cached files, which have an origin and may be evicted.

use super::{Call, Callers, LOOK_AT_ALL, call};
use potluck_core::path::PoolPath;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Evicts a cached file, or page by page all cached files below a directory: their chunks may go, and are fetched from
/// their origins when they are read. Files that are kept or pinned stay as they are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Evict {
    /// The path of the file or directory.
    pub path: PoolPath,
    /// The page continues after this [`Evicted::next`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}
call!(Evict => Evicted, "evict", Users, "`potluck evict`", within LOOK_AT_ALL);

/// A page of what was evicted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evicted {
    /// The number of files that were evicted.
    pub files: u64,
    /// The size of these files in bytes of plaintext.
    pub bytes: u64,
    /// The number of cached files that stay because they, or directories above them, are pinned.
    pub pinned: u64,
    /// The place after which the next page begins; set when there is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
