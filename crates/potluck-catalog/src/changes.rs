//! The changes that are not yet in every copy of the metadata log: one row for each, written in the
//! transaction that makes the change.
//!
//! A row says *that* something changed, not to what: whoever exports the rows reads the state as it
//! is by then. What was replaced or removed meanwhile is left out, because a later row tells of it.
//! The log is kept on donors and in a file; each of the two notes the last change that it has, and a row
//! is forgotten when both have it, or when there are so many that a new base costs less.

use super::bygone_name::BygoneName;
use super::error::Error;
use super::kept_entry::KeptEntry;
use super::open_checkpoint::OpenCheckpoint;
use super::taken_snapshot::TakenSnapshot;
use crate::sql::{Tx, params};
use potluck_core::attributes::EntryAttributes;
use potluck_core::checkpoint::CommitStyle;
use potluck_core::ids::{DonorId, MemberId, VersionId};
use potluck_core::link_target::LinkTarget;
use potluck_core::path::{PoolPath, SYSTEM_SPACE};
use potluck_core::policy::Override;
use potluck_core::quota::QuotaOf;
use potluck_core::rights::Grantee;
use serde::{Deserialize, Serialize};

/// Stands for a change in the log: greater ones were made later. Only the catalog looks into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChangeNumber(pub(crate) i64);

/// A change of the catalog, as its row keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeOp {
    /// Versions became visible at paths.
    Files(Vec<(PoolPath, VersionId)>),
    /// A part of a version was committed, under this number.
    Part(VersionId, u32),
    /// The redundancy of a version was changed, or its goal.
    Version(VersionId),
    /// A directory is there, made with these attributes, as those above it that were missing.
    Dir(PoolPath, EntryAttributes),
    /// A symbolic link is there, with those directories above it that were missing.
    Link(PoolPath, LinkTarget, EntryAttributes),
    /// The attributes of a directory or a link are these now.
    PathAttributes(PoolPath, EntryAttributes),
    /// The attributes of a version were set.
    VersionAttributes(VersionId),
    /// An entry was moved.
    Moved {
        /// The path of the entry before the move.
        from: PoolPath,
        /// The path of the entry after the move.
        to: PoolPath,
    },
    /// An entry was removed, with all below it.
    Removed(PoolPath),
    /// What was at a path was replaced or removed, and is kept.
    Kept {
        /// The path that it had.
        from: PoolPath,
        /// Where it is kept, and how long.
        entry: KeptEntry,
    },
    /// An entry is never purged, or as others.
    Pinned(PoolPath, bool),
    /// A snapshot was taken.
    Snapshot(TakenSnapshot),
    /// A name is about to lead elsewhere, and a snapshot shows what it leads to.
    Bygone(BygoneName),
    /// Something is kept for another time than before.
    KeptAs(KeptEntry),
    /// What is kept of a name goes then, or sooner.
    KeptUntil {
        /// The path that it had.
        path: PoolPath,
        /// The pool's time at which it goes.
        until_ms: u64,
        /// Whether what goes at a time of its own stays until that.
        only_endless: bool,
    },
    /// A checkpoint is open, and was used.
    Checkpoint(OpenCheckpoint),
    /// What a checkpoint staged became visible.
    Published {
        /// The path of its staging directory.
        from: PoolPath,
        /// The path of what it became, or was merged into.
        to: PoolPath,
        /// Whether it replaced what was there.
        style: CommitStyle,
        /// The paths of what was put into directories that were there; none where all of the target is new.
        merged: Vec<PoolPath>,
    },
    /// A space was made, or its policy was set.
    Space(String),
    /// A space was removed.
    SpaceRemoved(String),
    /// The parts of the policy that a directory sets differently are these now.
    Policy(PoolPath, Override),
    /// What is granted in a space to a member or group was changed.
    Grant(String, Grantee),
    /// A group was made.
    Group(String),
    /// A group was removed.
    GroupRemoved(String),
    /// A member was put into a group, or taken out.
    GroupMember(String, MemberId),
    /// A quota was set or taken away.
    Quota(QuotaOf),
    /// A member joined, or was revoked.
    Member(MemberId),
    /// Something of what is remembered of a donor.
    Donor(DonorId),
    /// A note that admins' decisions left was made, changed or removed.
    Note(String),
}

impl ChangeOp {
    /// The space whose entries or grants it changed.
    pub fn space(&self) -> Option<&str> {
        match self {
            Self::Files(files) => files.first().map(|(path, _)| path.space()),
            Self::Dir(path, _)
            | Self::Link(path, ..)
            | Self::PathAttributes(path, _)
            | Self::Removed(path)
            | Self::KeptUntil { path, .. }
            | Self::Pinned(path, _)
            | Self::Policy(path, _) => Some(path.space()),
            Self::Moved { from, .. } | Self::Published { from, .. } | Self::Kept { from, .. } => {
                Some(from.space())
            }
            Self::KeptAs(entry) => Some(entry.at.space()),
            Self::Snapshot(taken) => Some(taken.at.space()),
            Self::Bygone(bygone) => Some(bygone.path.space()),
            Self::Checkpoint(open) => Some(open.staging.space()),
            Self::Grant(space, _) | Self::Quota(QuotaOf::Space(space)) => Some(space),
            Self::Part(..)
            | Self::Version(_)
            | Self::VersionAttributes(_)
            | Self::Space(_)
            | Self::SpaceRemoved(_)
            | Self::Group(_)
            | Self::GroupRemoved(_)
            | Self::GroupMember(..)
            | Self::Quota(QuotaOf::Member(_))
            | Self::Member(_)
            | Self::Donor(_)
            | Self::Note(_) => None,
        }
    }

    /// Whether it is about the pool's own metadata, which is in no log: it is what the log is kept in.
    fn is_system(&self) -> bool {
        match self {
            Self::Files(files) => files.iter().all(|(path, _)| path.is_system()),
            Self::Dir(path, _)
            | Self::Link(path, ..)
            | Self::PathAttributes(path, _)
            | Self::Removed(path)
            | Self::KeptUntil { path, .. }
            | Self::Pinned(path, _)
            | Self::Policy(path, _) => path.is_system(),
            Self::Moved { from, .. } | Self::Published { from, .. } | Self::Kept { from, .. } => {
                from.is_system()
            }
            Self::KeptAs(entry) => entry.at.is_system(),
            Self::Snapshot(taken) => taken.at.is_system(),
            Self::Bygone(bygone) => bygone.path.is_system(),
            Self::Checkpoint(open) => open.staging.is_system(),
            Self::Space(name) | Self::SpaceRemoved(name) => name == SYSTEM_SPACE,
            Self::Part(..)
            | Self::Version(_)
            | Self::VersionAttributes(_)
            | Self::Grant(..)
            | Self::Quota(_)
            | Self::Group(_)
            | Self::GroupRemoved(_)
            | Self::GroupMember(..)
            | Self::Member(_)
            | Self::Donor(_)
            | Self::Note(_) => false,
        }
    }
}

/// The number of the last change that was ever written down.
pub(crate) fn last(db: &Tx) -> Result<i64, Error> {
    db.last_number("changes")
}

/// Writes a change down.
pub(crate) fn append(db: &Tx, op: &ChangeOp) -> Result<(), Error> {
    if op.is_system() {
        return Ok(());
    }
    let text = serde_json::to_string(op).map_err(|why| Error::Bug(why.to_string()))?;
    db.prepare("INSERT INTO changes (op) VALUES (?1)")?.execute(params![text])?;
    Ok(())
}

/// The first rows after number `after`, at most `limit`, with their numbers.
pub(crate) fn rows(db: &Tx, after: i64, limit: usize) -> Result<Vec<(i64, ChangeOp)>, Error> {
    let mut select =
        db.prepare("SELECT seq, op FROM changes WHERE seq > ?1 ORDER BY seq LIMIT ?2")?;
    let mut rows = select.query(params![after, limit as i64])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (seq, text): (i64, String) = (row.get(0)?, row.get(1)?);
        let op = serde_json::from_str(&text)
            .map_err(|why| Error::Damaged(format!("the change {seq}: {why}")))?;
        found.push((seq, op));
    }
    Ok(found)
}

/// The number of the last row that was forgotten.
pub(crate) fn forgotten(db: &Tx) -> Result<i64, Error> {
    let mut select = db.prepare("SELECT min(seq) FROM changes")?;
    let first: Option<i64> = select.query_one(params![], |row| row.get(0))?.flatten();
    first.map_or_else(|| last(db), |first| Ok(first - 1))
}

/// Forgets the rows up to number `last`: they are where they belong.
pub(crate) fn forget(db: &Tx, last: i64) -> Result<(), Error> {
    db.prepare("DELETE FROM changes WHERE seq <= ?1")?.execute(params![last])?;
    Ok(())
}
