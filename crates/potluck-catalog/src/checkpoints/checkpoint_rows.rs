//! The rows of checkpoints, and the checks at paths that lead through staging directories.

use crate::checkpoints::open_checkpoint::OpenCheckpoint;
use crate::error::Error;
use crate::log::{changes, notes, records::Record};
use crate::names::entries::{self, DirId};
use crate::pool_records::spaces;
use crate::sql::{Row, Tx, params};
use potluck_core::attributes::EntryAttributes;
use potluck_core::checkpoint::{CheckpointId, CommitStyle, StagedPlace};
use potluck_core::ids::{MemberId, SpaceId};
use potluck_core::kept_place::is_read_only;
use potluck_core::path::PoolPath;

/// The precision, in milliseconds, with which the last use of a checkpoint is recorded: not each of a thousand commits
/// writes it down.
const USED_WITHIN_MS: u64 = 60_000;

/// The row of a checkpoint.
pub(crate) struct Kept {
    /// The space that the checkpoint is in.
    pub space: SpaceId,
    /// The identifier of the checkpoint, which is its own only in that space.
    pub id: CheckpointId,
    /// The directory in which the checkpoint's files are staged; `None` when the checkpoint has ended.
    pub dir: Option<DirId>,
    /// The path of the target below the directory that the staging directory is in; empty for that directory itself.
    pub target: String,
    /// The way in which the files take their places.
    pub style: CommitStyle,
    /// The member that began the checkpoint.
    pub made_by: MemberId,
    /// The wall time at which the checkpoint began, in milliseconds.
    pub begun_wall_ms: i64,
    /// The pool's time, without its leaps and in milliseconds, at which the checkpoint was used last, or ended.
    pub used_ms: u64,
    /// The time in milliseconds for which the checkpoint stays open while it is not used.
    pub idle_ms: u64,
    /// The path of the target at the commit; `None` while the checkpoint is open, and after an abort.
    pub committed: Option<String>,
}

pub(crate) const COLUMNS: &str =
    "SELECT id, dir, target, style, made_by, begun_wall_ms, used_ms, idle_ms, committed, space
     FROM checkpoints";

pub(crate) fn kept(row: &Row<'_>) -> Result<Kept, Error> {
    Ok(Kept {
        id: CheckpointId(row.get(0)?),
        dir: row.get::<Option<i64>>(1)?.map(DirId::now),
        target: row.get(2)?,
        style: style_of(row.get(3)?),
        made_by: MemberId(row.get(4)?),
        begun_wall_ms: row.get(5)?,
        used_ms: row.get::<i64>(6)? as u64,
        idle_ms: row.get::<i64>(7)? as u64,
        committed: row.get(8)?,
        space: SpaceId(row.get(9)?),
    })
}

fn style_of(number: i64) -> CommitStyle {
    match number {
        0 => CommitStyle::Replace,
        1 => CommitStyle::Merge,
        _ => CommitStyle::Share,
    }
}

/// Returns the number that stands for a style in its column.
pub(crate) fn style_number(style: CommitStyle) -> i64 {
    match style {
        CommitStyle::Replace => 0,
        CommitStyle::Merge => 1,
        CommitStyle::Share => 2,
    }
}

/// Returns the checkpoint `id` of the space called `space`, open or ended.
pub(crate) fn find(db: &Tx, space: &str, id: &CheckpointId) -> Result<Option<Kept>, Error> {
    db.prepare(&format!(
        "{COLUMNS} WHERE space = (SELECT s.id FROM spaces s WHERE s.name = ?1) AND id = ?2"
    ))?
    .query_one(params![space, id.0], kept)
}

impl Kept {
    /// Returns the present path of the staging directory; `None` if the checkpoint has ended, or the directory that it is
    /// in was removed.
    pub fn staging(&self, db: &Tx) -> Result<Option<PoolPath>, Error> {
        self.dir.map_or(Ok(None), |dir| entries::path_of(db, dir))
    }

    /// Returns the checkpoint with its present paths; `None` if it has ended, the directory that it is in was removed, or
    /// the path of the target is too long by now. A move refuses to make it so, but the checkpoint may have begun after
    /// that check ([`crate::names::check_lengths`]).
    pub fn open(&self, db: &Tx) -> Result<Option<OpenCheckpoint>, Error> {
        let Some(staging) = self.staging(db)? else { return Ok(None) };
        let Some(holder) = staging.parent() else { return Ok(None) };
        let names = self.target.split('/').filter(|name| !name.is_empty());
        let Kept { id, style, made_by, begun_wall_ms, used_ms, idle_ms, .. } = *self;
        let Ok(target) = holder.join_all(names) else { return Ok(None) };
        Ok(Some(OpenCheckpoint {
            id,
            staging,
            target,
            style,
            made_by,
            begun_wall_ms,
            used_ms,
            idle_ms,
        }))
    }
}

/// Returns the checkpoint `id` of a space, which must be open.
fn open(db: &Tx, space: &str, id: &CheckpointId) -> Result<OpenCheckpoint, Error> {
    let kept = find(db, space, id)?.ok_or(Error::NoCheckpoint(*id))?;
    kept.open(db)?.ok_or(Error::NoCheckpoint(*id))
}

fn insert(db: &Tx, kept: &Kept) -> Result<(), Error> {
    let Kept { space, id, dir, target, style, made_by, begun_wall_ms, used_ms, idle_ms, .. } = kept;
    db.prepare(
        "INSERT INTO checkpoints
             (id, dir, target, style, made_by, begun_wall_ms, used_ms, idle_ms, space)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        id.0,
        dir.map(|dir| dir.0),
        target,
        style_number(*style),
        made_by.0,
        begun_wall_ms,
        *used_ms as i64,
        *idle_ms as i64,
        space.0
    ])?;
    Ok(())
}

/// Notes that a checkpoint was used at this time, if the last use that is noted is a minute old, and returns it as it
/// is then.
pub(crate) fn used(db: &Tx, open: OpenCheckpoint, pool_ms: u64) -> Result<OpenCheckpoint, Error> {
    let now_ms = notes::without_leaps(db, pool_ms)?;
    if now_ms.saturating_sub(open.used_ms) < USED_WITHIN_MS {
        return Ok(open);
    }
    let open = OpenCheckpoint { used_ms: now_ms, ..open };
    put(db, &open)?;
    changes::tell(db, Record::Checkpoint(open.clone()))?;
    Ok(open)
}

/// Refuses a change in the place of old versions and snapshots, at or below a staging directory whose checkpoint is not
/// open, and at a staging name inside another. The checkpoint counts as used at `now_ms`, if that is given. For any
/// other path no row is read.
pub(crate) fn check_writable(db: &Tx, path: &PoolPath, now_ms: Option<u64>) -> Result<(), Error> {
    check_not_kept(path)?;
    let Some(place) = StagedPlace::of(path) else { return Ok(()) };
    let open = open(db, path.space(), &place.id)?;
    if open.staging != place.staging {
        return Err(Error::NoCheckpoint(place.id));
    }
    // A name that looks like a staging directory's and is none would be hidden from everybody.
    let nested = place.below.iter().find_map(|name| CheckpointId::of_staging_name(name));
    if let Some(other) = nested {
        return Err(Error::NoCheckpoint(other));
    }
    now_ms.map_or(Ok(()), |now_ms| used(db, open, now_ms).map(drop))
}

/// Refuses a change in the place of old versions and snapshots, which only the catalog itself changes.
pub(crate) fn check_not_kept(path: &PoolPath) -> Result<(), Error> {
    if is_read_only(path) { Err(Error::KeptPlace(path.clone())) } else { Ok(()) }
}

/// Refuses to move or remove a staging directory itself, which the end of its checkpoint does, and whatever
/// [`check_writable`] refuses.
pub(crate) fn check_removable(db: &Tx, path: &PoolPath) -> Result<(), Error> {
    match StagedPlace::of(path) {
        Some(place) if place.below.is_empty() => Err(Error::StagingPlace(path.clone())),
        _ => check_writable(db, path, None),
    }
}

/// Returns the names that lead to the target of a checkpoint from the directory that its staging directory `name` is
/// in; `None` if `name` is not that of an open checkpoint of the space.
pub(crate) fn target_of(db: &Tx, space: &str, name: &str) -> Result<Option<Vec<String>>, Error> {
    let Some(id) = CheckpointId::of_staging_name(name) else { return Ok(None) };
    let kept = find(db, space, &id)?.filter(|kept| kept.dir.is_some());
    let names = |kept: Kept| {
        kept.target.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    Ok(kept.map(names))
}

/// Returns the open checkpoint whose files are staged in the directory `dir`, to which `path` leads.
pub(crate) fn staged_in(db: &Tx, dir: DirId, path: &str) -> Result<Option<OpenCheckpoint>, Error> {
    let name = path.rsplit('/').next().unwrap_or(path);
    if CheckpointId::of_staging_name(name).is_none() {
        return Ok(None);
    }
    let kept = db.prepare(&format!("{COLUMNS} WHERE dir = ?1"))?.query_one(params![dir.0], kept)?;
    kept.map(|kept| kept.open(db)).transpose().map(Option::flatten)
}

/// The checkpoints that are open, and the committed ones that are still known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownCheckpoints {
    /// The open checkpoints, in the order in which they began.
    pub open: Vec<OpenCheckpoint>,
    /// The checkpoints that were committed in the last day and are still known.
    pub committed: Vec<CommittedCheckpoint>,
}

/// A checkpoint that was committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedCheckpoint {
    /// The identifier of the checkpoint.
    pub id: CheckpointId,
    /// The path of the directory that the checkpoint became or was merged into.
    pub target: String,
    /// The member that began the checkpoint.
    pub made_by: MemberId,
}

/// Returns all checkpoints that are open, and the committed ones that are still known.
pub(crate) fn all(db: &Tx) -> Result<KnownCheckpoints, Error> {
    let mut select = db.prepare(&format!("{COLUMNS} ORDER BY begun_wall_ms, id"))?;
    let rows: Vec<Kept> = select.query_map(params![], kept)?.collect::<Result<_, _>>()?;
    let mut known = KnownCheckpoints::default();
    for kept in rows {
        known.open.extend(kept.open(db)?);
        let Kept { id, made_by, committed, .. } = kept;
        let ended = committed.map(|target| CommittedCheckpoint { id, target, made_by });
        known.committed.extend(ended);
    }
    Ok(known)
}

/// Returns a directory at or below a path in which the files of a checkpoint are staged, if there is one that was not
/// removed. A shared file to which nobody contributes is none.
pub(crate) fn any_below(db: &Tx, path: &PoolPath) -> Result<Option<PoolPath>, Error> {
    let mut select = db.prepare(&format!("{COLUMNS} WHERE dir IS NOT NULL"))?;
    let rows: Vec<Kept> = select.query_map(params![], kept)?.collect::<Result<_, _>>()?;
    for kept in rows {
        let above = kept.staging(db)?.and_then(|staging| staging.parent());
        let Some(above) = above.filter(|at| at.is_inside(path) && !is_read_only(at)) else {
            continue;
        };
        let is_idle = match (kept.style, kept.dir) {
            (CommitStyle::Share, Some(dir)) => !entries::has_children(db, dir)?,
            _ => false,
        };
        if !is_idle {
            return Ok(Some(above));
        }
    }
    Ok(None)
}

/// Returns the paths of directories that have names of staging directories and belong to no checkpoint.
pub(crate) fn strays(db: &Tx) -> Result<Vec<PoolPath>, Error> {
    let mut select = db.prepare(
        "SELECT e.name, e.dir FROM entries e
         WHERE e.dir > 0 AND NOT EXISTS (SELECT 1 FROM checkpoints c WHERE c.dir = e.dir)",
    )?;
    let mut rows = select.query(params![])?;
    let mut strays = Vec::new();
    while let Some(row) = rows.next()? {
        let (name, dir): (String, i64) = (row.get(0)?, row.get(1)?);
        if CheckpointId::of_staging_name(&name).is_some() {
            strays.extend(entries::path_of(db, DirId::now(dir))?);
        }
    }
    Ok(strays)
}

/// Writes the row of an open checkpoint, and makes its staging directory if that is not there.
pub(crate) fn put(db: &Tx, open: &OpenCheckpoint) -> Result<(), Error> {
    let attributes = EntryAttributes::of_dir(open.begun_wall_ms);
    let dir = entries::make_dirs(db, &open.staging, attributes)?.dir;
    let depth = open.staging.names().len() - 1;
    let OpenCheckpoint { id, style, made_by, begun_wall_ms, used_ms, idle_ms, .. } = *open;
    let target = open.target.names().get(depth..).unwrap_or_default().join("/");
    let space = spaces::named(db, open.staging.space())?.id;
    delete(db, space, &id)?;
    let (dir, committed) = (Some(dir), None);
    insert(
        db,
        &Kept {
            space,
            id,
            dir,
            target,
            style,
            made_by,
            begun_wall_ms,
            used_ms,
            idle_ms,
            committed,
        },
    )
}

/// Forgets the checkpoint whose staging directory a log tells to be gone from a path.
pub(crate) fn forget_at(db: &Tx, staging: &PoolPath) -> Result<(), Error> {
    if let Some(place) = StagedPlace::of(staging).filter(|place| place.below.is_empty()) {
        let space = spaces::named(db, staging.space())?.id;
        delete(db, space, &place.id)?;
    }
    Ok(())
}

/// Forgets a checkpoint.
pub(crate) fn delete(db: &Tx, space: SpaceId, id: &CheckpointId) -> Result<(), Error> {
    db.prepare("DELETE FROM checkpoints WHERE space = ?1 AND id = ?2")?
        .execute(params![space.0, id.0])?;
    Ok(())
}
