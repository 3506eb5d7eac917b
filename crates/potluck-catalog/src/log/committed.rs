//! Tells listeners, such as mounts, what a commit changed, before the commit is answered. The paths that came, changed
//! or went are taken from what the commit wrote for the metadata log. The manager's watches decide which listener hears
//! of which path.

use crate::error::Error;
use crate::history::kept_entry::KeptEntry;
use crate::log::{
    changes::{self, ChangeOp},
    records::Record,
};
use crate::names::entries;
use crate::sql::Tx;
use potluck_core::attributes::FileTime;
use potluck_core::ids::MemberId;
use potluck_core::kept_place::is_read_only;
use potluck_core::path::PoolPath;

/// A listener that is told of committed changes.
///
/// The thread that commits calls the listener, so the listener must not wait. Changes come in the order in which they
/// were committed. A listener that begins before a reader's snapshot hears of all changes that are not in the snapshot;
/// changes that are in it may be told, too.
pub trait ChangeListener: Send + Sync {
    /// Returns whether anybody listens at this moment; otherwise changes are not told.
    fn listens(&self) -> bool;

    /// Takes changes that were committed together.
    fn committed(&self, changes: Vec<CommittedChange>);
}

/// A committed change of which a listener may have to hear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommittedChange {
    /// A path leads to another entry, to one with other attributes, or to none any more.
    Entry {
        /// The path at which the entry is, or was.
        path: PoolPath,
        /// True if an entry is there.
        is_there: bool,
    },
    /// Attributes of the entry at a path were set; the entry and all below it are the same.
    Attributes(PoolPath),
    /// The directory at a path was modified at a time, because entries came or went.
    Modified(PoolPath, FileTime),
    /// The grants in a space were changed. Without a space, a group was removed or its members were changed, and so the
    /// rights in any space.
    Rights(Option<String>),
    /// A member joined, or was revoked.
    Member(MemberId),
    /// More was changed than can be told one by one.
    Unknown,
}

/// Returns what is told of changes that were committed together, of which these are the texts; `None` if they were too
/// many, or the first listener came while the transaction was under way. [`CommittedChange::Unknown`] stands for changes that
/// are not known or cannot be read.
pub(crate) fn told_of(db: &Tx, noted: Option<Vec<String>>) -> Vec<CommittedChange> {
    let Some(noted) = noted else { return vec![CommittedChange::Unknown] };
    let mut told = Vec::new();
    for text in noted {
        let op = changes::parsed(&text).map_err(|why| Error::Bug(why.to_string()));
        if let Err(why) = op.and_then(|op| tell(db, op, &mut told)) {
            tracing::warn!(%why, "a committed change cannot be told");
            told.push(CommittedChange::Unknown);
        }
    }
    told
}

fn tell(db: &Tx, op: ChangeOp, told: &mut Vec<CommittedChange>) -> Result<(), Error> {
    let there = |path| CommittedChange::Entry { path, is_there: true };
    let gone = |path| CommittedChange::Entry { path, is_there: false };
    let space_root =
        |name: &str| PoolPath::space_root(name).map_err(|why| Error::Bug(why.to_string()));
    match op {
        ChangeOp::Files(files) => told.extend(files.into_iter().map(|(path, _)| there(path))),
        ChangeOp::Told(Record::Dir { path, made_above, .. }) => {
            let depth = path.names().len();
            let made = depth.saturating_sub(made_above as usize)..=depth;
            told.extend(made.map(|depth| there(path.ancestor(depth))));
        }
        ChangeOp::Told(Record::Link { path, .. }) => told.push(there(path)),
        ChangeOp::Told(Record::PathAttributes { path, .. }) => {
            told.push(CommittedChange::Attributes(path));
        }
        ChangeOp::Told(Record::DirModified { path, mtime_ns }) => {
            told.push(CommittedChange::Modified(path, mtime_ns));
        }
        ChangeOp::Told(Record::VersionAttributes { version, .. }) => {
            let path = entries::path_of_version(db, version)?;
            told.extend(path.map(CommittedChange::Attributes));
        }
        ChangeOp::Told(Record::Snapshot(taken)) => {
            // The directories that hold snapshots are made with the first of them.
            let above = |path: &PoolPath| path.parent().filter(is_read_only);
            told.extend(std::iter::successors(Some(taken.at), above).map(there));
        }
        ChangeOp::Told(Record::Moved { from, to }) => told.extend([gone(from), there(to)]),
        ChangeOp::Told(
            Record::Removed { path } | Record::Kept(KeptEntry { from: Some(path), .. }),
        ) => told.push(gone(path)),
        ChangeOp::Told(Record::Published { from, to, merged, .. }) => {
            let whole = merged.is_empty().then_some(to);
            told.push(gone(from));
            told.extend(merged.into_iter().chain(whole).map(there));
        }
        ChangeOp::Told(Record::Space { name, .. }) => told.push(there(space_root(&name)?)),
        ChangeOp::Told(Record::SpaceRemoved { name }) => {
            // Another space of that name would have other rights.
            told.extend([gone(space_root(&name)?), CommittedChange::Rights(Some(name))]);
        }
        ChangeOp::Told(Record::Grant { space, .. }) => {
            told.push(CommittedChange::Rights(Some(space)));
        }
        ChangeOp::Told(Record::Group { there: false, .. } | Record::GroupMember { .. }) => {
            told.push(CommittedChange::Rights(None));
        }
        ChangeOp::Told(Record::Member(member)) => told.push(CommittedChange::Member(member.id)),
        // These change nothing that is seen under a name.
        ChangeOp::Told(_)
        | ChangeOp::Part(..)
        | ChangeOp::Version(_)
        | ChangeOp::SealedAgain(_) => {}
    }
    Ok(())
}
