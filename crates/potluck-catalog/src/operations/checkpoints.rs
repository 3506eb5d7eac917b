//! Checkpoints: files that are staged out of sight, and become visible at one moment.

pub(crate) mod publishing;
pub(crate) mod staging;

use crate::checkpoints::{
    checkpoint_rows::{self, Kept, KnownCheckpoints, find},
    open_checkpoint::OpenCheckpoint,
};
use crate::log::{apply, records::Record};
use crate::names::entries::{self, EntryPlace};
use crate::operations::{
    checkpoints::publishing::Conditions,
    names::{self, attributes, directories::admit_dirs},
};
use crate::pool_records::{notes, spaces};
use crate::sql::{Tx, params};
use crate::when::When;
use crate::{Catalog, Durability, Error};
use potluck_core::attributes::EntryAttributes;
use potluck_core::checkpoint::{CheckpointId, CommitStyle, StagedPlace};
use potluck_core::ids::MemberId;
use potluck_core::path::PoolPath;
use potluck_wire::control::Condition;

/// The most checkpoints that one member may have open: each costs a look at every round of upkeep.
const MOST_OPEN: u64 = 256;

impl Catalog {
    /// Begins a checkpoint. One that is open already under its identifier, for the same target and in the same style,
    /// counts as used and stays open for longer.
    pub async fn begin_checkpoint(
        &self,
        new: NewCheckpoint,
        when: When,
    ) -> Result<OpenCheckpoint, Error> {
        self.write(Durability::Disk, move |db| begin(db, &new, when)).await
    }

    /// Makes the files of a checkpoint in a space visible, all at one moment.
    ///
    /// They take the place of the target directory, which costs the same however many files there are, or are merged
    /// into it. In a merge, `condition` holds for each file that is to be replaced, and with `spare_content` no empty
    /// file replaces one that has content. Nothing is visible of a commit that is refused, and the checkpoint stays
    /// open.
    pub async fn commit_checkpoint(
        &self,
        (space, id): (String, CheckpointId),
        (condition, spare_content): (Condition, bool),
        when: When,
    ) -> Result<CheckpointOutcome, Error> {
        let checked = space.clone();
        self.read(move |db| check_lengths(db, (&checked, &id))).await?;
        let how = Conditions { condition, spare_content };
        let commit = move |db: &_| commit(db, (&space, &id), how, when);
        self.write(Durability::Disk, commit).await
    }

    /// Removes the files of a checkpoint in a space, unless that was done before. This is refused after a commit, and
    /// with `if_empty` if the checkpoint has files.
    pub async fn abort_checkpoint(
        &self,
        (space, id): (String, CheckpointId),
        if_empty: bool,
        now_ms: u64,
    ) -> Result<(), Error> {
        let abort = move |db: &_| abort(db, (&space, &id), if_empty, now_ms);
        self.write(Durability::Disk, abort).await
    }

    /// Returns a checkpoint of a space, if it is open.
    pub async fn open_checkpoint(
        &self,
        (space, id): (String, CheckpointId),
    ) -> Result<Option<OpenCheckpoint>, Error> {
        self.read(move |db| find_open(db, (&space, &id))).await
    }

    /// Returns the checkpoint in which writers contribute to the file at a path, if they share it.
    pub async fn shared_file(&self, path: PoolPath) -> Result<Option<OpenCheckpoint>, Error> {
        self.read(move |db| checkpoint_rows::shared_file(db, &path)).await
    }

    /// Returns a file at a path, or below it, that writers share, and for whose next version something is staged.
    pub async fn written_shared_file(&self, path: PoolPath) -> Result<Option<PoolPath>, Error> {
        self.read(move |db| checkpoint_rows::written_shared_file(db, &path)).await
    }

    /// Returns the checkpoints that are open, and the committed ones that are still known.
    pub async fn checkpoints(&self) -> Result<KnownCheckpoints, Error> {
        self.read(checkpoint_rows::all).await
    }
}

/// A checkpoint that is to begin.
#[derive(Debug, Clone)]
pub struct NewCheckpoint {
    /// The identifier of the checkpoint: drawn at random by the client, or that of the shared file.
    pub id: CheckpointId,
    /// The directory that the files become or are merged into, or the file that writers share.
    pub target: PoolPath,
    /// The way in which the files take their places.
    pub style: CommitStyle,
    /// The member that begins the checkpoint.
    pub made_by: MemberId,
    /// The time in milliseconds for which the checkpoint stays open while nothing is written to it.
    pub idle_ms: u64,
}

/// Begins a checkpoint. One that is open under the same identifier, for the same target and in the same style, goes on
/// and counts as used.
pub(crate) fn begin(db: &Tx, new: &NewCheckpoint, when: When) -> Result<OpenCheckpoint, Error> {
    if let Some(there) = find(db, new.target.space(), &new.id)? {
        let there = there.open(db)?.ok_or(Error::NoCheckpoint(new.id))?;
        if (&there.target, there.style) != (&new.target, new.style) {
            return Err(Error::NoCheckpoint(new.id));
        }
        return staging::used(db, there, when.pool_ms);
    }
    if StagedPlace::of(&new.target).is_some() {
        return Err(Error::StagingPlace(new.target.clone()));
    }
    checkpoint_rows::check_not_kept(&new.target)?;
    let count = "SELECT count(*) FROM checkpoints WHERE made_by = ?1 AND dir IS NOT NULL";
    let open: Option<i64> =
        db.prepare(count)?.query_one(params![new.made_by.0], |row| row.get(0))?;
    let open = open.unwrap_or_default() as u64;
    if open >= MOST_OPEN {
        return Err(Error::TooManyCheckpoints(open));
    }
    let (depth, attributes) = holder(db, new, when)?;
    // Those above the target that are missing are made by the commit, which asks again.
    admit_dirs(db, &new.target, entries::missing_dirs(db, &new.target)?.max(1))?;
    let staging_path = new.target.ancestor(depth).join(&new.id.staging_name());
    let open = OpenCheckpoint {
        id: new.id,
        staging: staging_path.map_err(|_| Error::NoCheckpoint(new.id))?,
        target: new.target.clone(),
        style: new.style,
        made_by: new.made_by,
        begun_wall_ms: when.wall_ms,
        used_ms: notes::without_leaps(db, when.pool_ms)?,
        idle_ms: new.idle_ms,
    };
    apply::write(db, Record::Dir { path: open.staging.clone(), made_above: 0, attributes })?;
    apply::write(db, Record::Checkpoint(open.clone()))?;
    Ok(open)
}

/// Returns how many names of the target lead to the deepest directory that is there above it, or to the target itself
/// if files are merged into it: what holds there holds for the target, and no directory has to be made before the
/// commit. The attributes are those of the staging directory: of a new one, with the permissions and the owner of the
/// directory that it is to replace.
fn holder(db: &Tx, new: &NewCheckpoint, when: When) -> Result<(usize, EntryAttributes), Error> {
    let target = &new.target;
    if target.space().is_empty() {
        return Err(Error::OutsideSpaces(target.clone()));
    }
    let mut dir = spaces::named(db, target.space())?.root;
    let mut attributes = EntryAttributes::of_dir(when.wall_ms);
    for (depth, name) in target.names().iter().enumerate() {
        let is_last = depth + 1 == target.names().len();
        match entries::lookup(db, dir, name)? {
            None => return Ok((depth, attributes)),
            Some(found) => match found.place {
                EntryPlace::Dir(_) if is_last && new.style == CommitStyle::Replace => {
                    let EntryAttributes { permissions, owner, .. } = found.attributes;
                    attributes = EntryAttributes { permissions, owner, ..attributes };
                    return Ok((depth, attributes));
                }
                EntryPlace::Dir(_) if is_last && new.style == CommitStyle::Share => {
                    return Err(Error::IsADirectory(target.clone()));
                }
                EntryPlace::File(_) if is_last && new.style == CommitStyle::Share => {
                    return Ok((depth, attributes));
                }
                EntryPlace::Dir(next) => dir = next,
                EntryPlace::File(_) | EntryPlace::Link(_) => {
                    return Err(Error::NotADirectory(target.ancestor(depth + 1)));
                }
            },
        }
    }
    match new.style {
        CommitStyle::Merge => Ok((target.names().len(), attributes)),
        // Spaces are made and removed by calls of their own.
        CommitStyle::Replace | CommitStyle::Share => Err(Error::OutsideSpaces(target.clone())),
    }
}

/// The outcome of a checkpoint's commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointOutcome {
    /// The files became visible now, at this path.
    Now(PoolPath),
    /// They had become visible at this path before.
    Before(String),
}

/// Returns the row of a checkpoint in a space, open or ended.
///
/// Errors: [`Error::NoCheckpoint`] for one in another space, or one that is not known.
fn in_space(db: &Tx, (space, id): (&str, &CheckpointId)) -> Result<Kept, Error> {
    find(db, space, id)?.ok_or(Error::NoCheckpoint(*id))
}

/// Makes the files of a checkpoint visible, unless that was done before.
pub(crate) fn commit(
    db: &Tx,
    (space, id): (&str, &CheckpointId),
    how: Conditions,
    when: When,
) -> Result<CheckpointOutcome, Error> {
    let kept = in_space(db, (space, id))?;
    if let Some(target) = kept.committed {
        return Ok(CheckpointOutcome::Before(target));
    }
    let open = kept.open(db)?.ok_or(Error::NoCheckpoint(*id))?;
    if open.style == CommitStyle::Share {
        return Err(Error::NoCheckpoint(*id)); // the writers that share the file make its versions
    }
    checkpoint_rows::check_not_kept(&open.target)?; // its directory was removed meanwhile
    publishing::publish(db, &open, how, when)?;
    attributes::is_renamed(db, &open.target, when)?;
    Ok(CheckpointOutcome::Now(open.target))
}

/// Returns a checkpoint, if it is open.
pub(crate) fn find_open(
    db: &Tx,
    (space, id): (&str, &CheckpointId),
) -> Result<Option<OpenCheckpoint>, Error> {
    find(db, space, id)?.map_or(Ok(None), |kept| kept.open(db))
}

/// Refuses a commit that would give a file below the target a path longer than any may be. Like
/// [`check_lengths`](names::check_lengths) for a move, it is called before the transaction.
pub(crate) fn check_lengths(db: &Tx, which: (&str, &CheckpointId)) -> Result<(), Error> {
    let Some(open) = find_open(db, which)? else {
        return Ok(()); // the commit says what it is
    };
    names::check_lengths(db, &open.staging, &open.target)
}

/// Removes the files of a checkpoint, unless that was done before.
///
/// Errors: [`Error::CheckpointCommitted`] after a commit; with `if_empty`, [`Error::NotEmpty`] if more than empty
/// directories is staged.
pub(crate) fn abort(
    db: &Tx,
    (space, id): (&str, &CheckpointId),
    if_empty: bool,
    now_ms: u64,
) -> Result<(), Error> {
    let kept = in_space(db, (space, id))?;
    if if_empty
        && let (Some(dir), Some(staging)) = (kept.dir, kept.staging(db)?)
        && checkpoint_rows::has_staged_files(db, dir)?
    {
        return Err(Error::NotEmpty(staging));
    }
    if let Some(target) = kept.committed {
        return Err(Error::CheckpointCommitted { id: *id, target });
    }
    remove(db, &kept, now_ms)
}

/// Removes what is staged for a checkpoint, if it has not ended.
fn remove(db: &Tx, kept: &Kept, now_ms: u64) -> Result<(), Error> {
    match (kept.dir, kept.staging(db)?) {
        (None, _) => Ok(()),
        (Some(_), Some(path)) => apply::write_at(db, Record::Removed { path }, now_ms),
        // The directory that it is in was removed.
        (Some(_), None) => checkpoint_rows::end(db, kept, None, now_ms),
    }
}

/// Aborts checkpoints that were idle for as long as they stay open, or whose directory was removed, and forgets those
/// that ended long ago; at most `limit` of them. Returns whether there may be more.
pub(crate) fn expire(db: &Tx, limit: usize, now_ms: u64) -> Result<bool, Error> {
    let due = checkpoint_rows::due(db, limit, now_ms)?;
    for kept in &due {
        match kept.dir {
            Some(_) => {
                tracing::info!(id = ?kept.id, target = kept.target, "a checkpoint expired");
                remove(db, kept, now_ms)?;
            }
            None => checkpoint_rows::delete(db, kept.space, &kept.id)?,
        }
    }
    Ok(due.len() == limit)
}

/// Removes the contributions to a file that is removed, so that a later file at its path gets none of them.
pub(crate) fn end_sharing(db: &Tx, path: &PoolPath, now_ms: u64) -> Result<(), Error> {
    checkpoint_rows::shared_row(db, path)?.map_or(Ok(()), |kept| remove(db, &kept, now_ms))
}
