//! What changed and is not yet in the pool's own journal: one row for each change, written in the
//! transaction that makes it.
//!
//! A row says *that* something changed, not to what: whoever drains the rows reads the state as it
//! is by then. What was replaced or removed meanwhile is left out, because a later row tells of it.

use super::error::Error;
use potluck_core::ids::{MemberId, VersionId};
use potluck_core::path::PoolPath;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

/// A change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Versions became visible at paths.
    Files(Vec<(PoolPath, VersionId)>),
    /// The redundancy of a version was changed, or its goal.
    Version(VersionId),
    /// A directory was made, with those above it that were missing.
    Dir(PoolPath),
    /// An entry was moved.
    Moved {
        /// From where.
        from: PoolPath,
        /// Where to.
        to: PoolPath,
    },
    /// An entry was removed, with all below it.
    Removed(PoolPath),
    /// A space was made, or its policy was set.
    Space(String),
    /// A space was removed.
    SpaceRemoved(String),
    /// The policy of a directory was set.
    Policy(PoolPath),
    /// A member joined, or was revoked.
    Member(MemberId),
}

/// Writes a change down.
pub fn append(db: &Connection, op: &Op) -> Result<(), Error> {
    let text = serde_json::to_string(op).map_err(|why| Error::Bug(why.to_string()))?;
    db.prepare_cached("INSERT INTO journal (op) VALUES (?1)")?.execute([text])?;
    Ok(())
}
