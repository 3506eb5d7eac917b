//! Checkpoints: directories whose files are staged out of sight, and become visible at one moment.
//!
//! A checkpoint's files are ordinary entries below a directory with a name that nobody guesses
//! ([`potluck_core::checkpoint`]), in the deepest directory above its target that was there when it began; where files
//! are merged, that may be the target itself. So they are kept, counted, repaired and logged as all files are. A commit
//! that replaces the target moves one entry; one that merges moves the entries one by one into directories that are
//! there. The row of a checkpoint says what its directory is to become. It outlives the end of the checkpoint for a
//! while, so that a client which repeats a commit hears of the first one. Writers share a file in a checkpoint that is
//! never committed.

pub(crate) mod checkpoint_rows;
pub(crate) mod open_checkpoint;
pub(crate) mod publishing;

use crate::checkpoints::{
    checkpoint_rows::{COLUMNS, Kept, find, kept, style_number, used},
    open_checkpoint::OpenCheckpoint,
    publishing::{Conditions, PublishedEntries},
};
use crate::error::Error;
use crate::history::{self, trash};
use crate::log::{apply, changes, notes, records::Record};
use crate::names;
use crate::names::{
    entries::{self, DirId, EntryPlace},
    entry_attributes,
};
use crate::pool_records::spaces;
use crate::sql::{Tx, params};
use crate::when::When;
use potluck_core::attributes::EntryAttributes;
use potluck_core::checkpoint::{CheckpointId, CommitStyle, StagedPlace};
use potluck_core::ids::{MemberId, SpaceId};
use potluck_core::path::PoolPath;

/// The most checkpoints that one member may have open: each costs a look at every round of upkeep.
const MOST_OPEN: u64 = 256;
/// The time in milliseconds for which a checkpoint that has ended is known, unless the member has more than
/// [`MOST_ENDED`]: a client that commits it again in that time hears that it is committed.
const KNOWN_AFTERWARDS_MS: u64 = 24 * 3600 * 1000;
/// The most ended checkpoints of one member that are known at once; beyond that, the first to have ended are
/// forgotten.
const MOST_ENDED: i64 = 1024;
/// The time in milliseconds for which a file stays shared after its last use, while nothing is staged for its next
/// version.
const SHARED_AFTERWARDS_MS: u64 = 600 * 1000;

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

/// The outcome of a checkpoint's commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointOutcome {
    /// The files became visible now, at this path.
    Now(PoolPath),
    /// They had become visible at this path before.
    Before(String),
}

/// Begins a checkpoint. One that is open under the same identifier, for the same target and in the same style, goes on
/// and counts as used.
pub(crate) fn begin(db: &Tx, new: &NewCheckpoint, when: When) -> Result<OpenCheckpoint, Error> {
    if let Some(there) = find(db, new.target.space(), &new.id)? {
        let there = there.open(db)?.ok_or(Error::NoCheckpoint(new.id))?;
        if (&there.target, there.style) != (&new.target, new.style) {
            return Err(Error::NoCheckpoint(new.id));
        }
        return used(db, there, when.pool_ms);
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
    names::admit_dirs(db, &new.target, entries::missing_dirs(db, &new.target)?.max(1))?;
    let staging = new.target.ancestor(depth).join(&new.id.staging_name());
    let open = OpenCheckpoint {
        id: new.id,
        staging: staging.map_err(|_| Error::NoCheckpoint(new.id))?,
        target: new.target.clone(),
        style: new.style,
        made_by: new.made_by,
        begun_wall_ms: when.wall_ms,
        used_ms: notes::without_leaps(db, when.pool_ms)?,
        idle_ms: new.idle_ms,
    };
    apply::write(db, Record::Dir { path: open.staging.clone(), attributes })?;
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
    let in_space = kept.space;
    let open = kept.open(db)?.ok_or(Error::NoCheckpoint(*id))?;
    let OpenCheckpoint { staging: from, target: to, style, .. } = open;
    if style == CommitStyle::Share {
        return Err(Error::NoCheckpoint(*id)); // the writers that share the file make its versions
    }
    checkpoint_rows::check_not_kept(&to)?; // its directory was removed meanwhile
    let PublishedEntries { merged, pinned } =
        publishing::publish(db, (&from, &to), style, how, when)?;
    ended(db, (in_space, id), Some(&to), when.pool_ms)?;
    changes::tell(db, Record::Published { from, to: to.clone(), style, merged })?;
    pinned.iter().try_for_each(|path| history::stay_pinned(db, path))?;
    entry_attributes::is_renamed(db, &to, when)?;
    Ok(CheckpointOutcome::Now(to))
}

/// Returns a checkpoint, if it is open.
pub(crate) fn find_open(
    db: &Tx,
    (space, id): (&str, &CheckpointId),
) -> Result<Option<OpenCheckpoint>, Error> {
    find(db, space, id)?.map_or(Ok(None), |kept| kept.open(db))
}

/// Refuses a commit that would give a file below the target a path longer than any may be. Like
/// [`check_lengths`](crate::names::check_lengths) for a move, it is called before the transaction.
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
        && has_staged_files(db, dir)?
    {
        return Err(Error::NotEmpty(staging));
    }
    if let Some(target) = kept.committed {
        return Err(Error::CheckpointCommitted { id: *id, target });
    }
    remove(db, &kept, now_ms)
}

/// Returns whether more than empty directories is in a staging directory: writers that all withdrew leave an empty one.
fn has_staged_files(db: &Tx, dir: DirId) -> Result<bool, Error> {
    let staged = "SELECT 1 FROM entries e WHERE e.parent = ?1
                  AND (e.dir IS NULL OR EXISTS (SELECT 1 FROM entries b WHERE b.parent = e.dir)) LIMIT 1";
    db.prepare(staged)?.exists(params![dir.0])
}

/// Removes what is staged for a checkpoint, if it has not ended.
fn remove(db: &Tx, kept: &Kept, now_ms: u64) -> Result<(), Error> {
    let (id, Some(dir)) = (&kept.id, kept.dir) else { return Ok(()) };
    if let Some(staging) = kept.staging(db)?
        && let Some(above) = staging.parent()
    {
        entries::delete(db, entries::existing_dir(db, &above)?, &id.staging_name())?;
        let space = spaces::named(db, staging.space())?.id;
        match entries::has_children(db, dir)? {
            true => trash::throw(db, dir, space)?,
            false => entries::dir_ended(db, space, dir)?,
        }
        changes::tell(db, Record::Removed { path: staging })?;
    }
    match kept.style {
        // A shared file's checkpoint is known by its path, at which another may begin.
        CommitStyle::Share => checkpoint_rows::delete(db, kept.space, id),
        CommitStyle::Replace | CommitStyle::Merge => ended(db, (kept.space, id), None, now_ms),
    }
}

fn ended(
    db: &Tx,
    (space, id): (SpaceId, &CheckpointId),
    committed: Option<&PoolPath>,
    pool_ms: u64,
) -> Result<(), Error> {
    let now_ms = notes::without_leaps(db, pool_ms)?;
    let committed = committed.map(PoolPath::to_string);
    db.prepare(
        "UPDATE checkpoints SET dir = NULL, committed = ?3, used_ms = ?4 WHERE space = ?1 AND id = ?2",
    )?
    .execute(params![space.0, id.0, committed, now_ms as i64])?;
    db.prepare(
        "DELETE FROM checkpoints WHERE (space, id) IN (
             SELECT space, id FROM checkpoints
             WHERE dir IS NULL AND made_by =
                 (SELECT made_by FROM checkpoints WHERE space = ?1 AND id = ?2)
             ORDER BY used_ms DESC LIMIT -1 OFFSET ?3)",
    )?
    .execute(params![space.0, id.0, MOST_ENDED])?;
    Ok(())
}

/// Aborts checkpoints that were idle for as long as they stay open, or whose directory was removed, and forgets those
/// that ended long ago; at most `limit` of them. Returns whether there may be more.
pub(crate) fn expire(db: &Tx, limit: usize, now_ms: u64) -> Result<bool, Error> {
    let due = due(db, limit, now_ms)?;
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

/// Returns checkpoints that are to be aborted or forgotten.
fn due(db: &Tx, limit: usize, pool_ms: u64) -> Result<Vec<Kept>, Error> {
    let now_ms = notes::without_leaps(db, pool_ms)?;
    // Checkpoints that have ended are many more than open ones, so they are found by their age.
    let mut ended = db.prepare(&format!(
        "{COLUMNS} WHERE dir IS NULL AND used_ms < ?1 ORDER BY used_ms LIMIT ?2"
    ))?;
    let before_ms = now_ms.saturating_sub(KNOWN_AFTERWARDS_MS) as i64;
    let ended = ended.query_map(params![before_ms, limit as i64], kept)?;
    let mut due: Vec<Kept> = ended.collect::<Result<_, _>>()?;
    let mut open = db.prepare(&format!(
        "{COLUMNS} c WHERE c.dir IS NOT NULL AND (c.used_ms + c.idle_ms < ?1
            OR (c.style = ?3 AND c.used_ms < ?4
                AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.parent = c.dir))
            OR NOT EXISTS (SELECT 1 FROM entries e WHERE e.dir = c.dir))
         ORDER BY c.dir LIMIT ?2"
    ))?;
    let shared = style_number(CommitStyle::Share);
    let unused_ms = now_ms.saturating_sub(SHARED_AFTERWARDS_MS) as i64;
    let left = limit - due.len();
    let open = open.query_map(params![now_ms as i64, left as i64, shared, unused_ms], kept)?;
    due.extend(open.collect::<Result<Vec<_>, _>>()?);
    Ok(due)
}

/// Returns the file that writers share at a path, if they share one.
pub(crate) fn shared_file(db: &Tx, path: &PoolPath) -> Result<Option<OpenCheckpoint>, Error> {
    shared_row(db, path)?.map_or(Ok(None), |kept| kept.open(db))
}

fn shared_row(db: &Tx, path: &PoolPath) -> Result<Option<Kept>, Error> {
    let id = CheckpointId::of_shared_file(path);
    let Some(kept) = find(db, path.space(), &id)? else { return Ok(None) };
    // The directory of the file may have been moved since.
    let is_there = kept.open(db)?.is_some_and(|open| open.target == *path);
    Ok(Some(kept).filter(|kept| kept.style == CommitStyle::Share && is_there))
}

/// Returns a file at a path, or below it, that writers share, and for whose next version something is staged.
pub(crate) fn written_shared_file(db: &Tx, path: &PoolPath) -> Result<Option<PoolPath>, Error> {
    let shared = format!("{COLUMNS} WHERE dir IS NOT NULL AND style = ?1");
    let mut select = db.prepare(&shared)?;
    let style = style_number(CommitStyle::Share);
    let shared: Vec<Kept> = select.query_map(params![style], kept)?.collect::<Result<_, _>>()?;
    for kept in shared {
        let (Some(dir), Some(open)) = (kept.dir, kept.open(db)?) else { continue };
        // One whose directory was moved is reached by nobody.
        let is_of_target = kept.id == CheckpointId::of_shared_file(&open.target);
        if is_of_target && open.target.is_inside(path) && has_staged_files(db, dir)? {
            return Ok(Some(open.target));
        }
    }
    Ok(None)
}

/// Returns whether writers share the file at a path.
pub(crate) fn is_shared_file(db: &Tx, path: &PoolPath) -> Result<bool, Error> {
    Ok(shared_row(db, path)?.is_some())
}

/// Removes the contributions to a file that is removed, so that a later file at its path gets none of them.
pub(crate) fn end_sharing(db: &Tx, path: &PoolPath, now_ms: u64) -> Result<(), Error> {
    shared_row(db, path)?.map_or(Ok(()), |kept| remove(db, &kept, now_ms))
}

/// Returns whether a checkpoint is to be aborted or forgotten.
pub(crate) fn any_due(db: &Tx, now_ms: u64) -> Result<bool, Error> {
    Ok(!due(db, 1, now_ms)?.is_empty())
}
