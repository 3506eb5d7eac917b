//! The rows of checkpoints.

use crate::checkpoints::open_checkpoint::OpenCheckpoint;
use crate::error::Error;
use crate::names::entries::{self, DirId};
use crate::pool_records::{notes, spaces};
use crate::sql::{Row, Tx, params};
use potluck_core::attributes::EntryAttributes;
use potluck_core::checkpoint::{CheckpointId, CommitStyle, StagedPlace};
use potluck_core::ids::{MemberId, SpaceId};
use potluck_core::kept_place::is_read_only;
use potluck_core::path::PoolPath;

/// The time in milliseconds for which a checkpoint that has ended is known, unless the member has more than
/// [`MOST_ENDED`]: a client that commits it again in that time hears that it is committed.
const KNOWN_AFTERWARDS_MS: u64 = 24 * 3600 * 1000;
/// The time in milliseconds for which a file stays shared after its last use, while nothing is staged for its next
/// version.
const SHARED_AFTERWARDS_MS: u64 = 600 * 1000;
/// The most ended checkpoints of one member that are known at once; beyond that, the first to have ended are
/// forgotten.
const MOST_ENDED: i64 = 1024;

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

const COLUMNS: &str =
    "SELECT id, dir, target, style, made_by, begun_wall_ms, used_ms, idle_ms, committed, space
     FROM checkpoints";

fn kept(row: &Row<'_>) -> Result<Kept, Error> {
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
fn style_number(style: CommitStyle) -> i64 {
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
    /// that check ([`check_lengths`](crate::operations)).
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

/// Refuses a change in the place of old versions and snapshots, which only the catalog itself changes.
pub(crate) fn check_not_kept(path: &PoolPath) -> Result<(), Error> {
    if is_read_only(path) { Err(Error::KeptPlace(path.clone())) } else { Ok(()) }
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
    let dir = entries::make_dirs(db, &open.staging, attributes)?;
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

/// Ends the checkpoint whose files are staged at a path, if there is one: what was staged is visible now at the path
/// `committed`, or is gone.
pub(crate) fn end_at(
    db: &Tx,
    staging: &PoolPath,
    committed: Option<&PoolPath>,
    pool_ms: u64,
) -> Result<(), Error> {
    let place = StagedPlace::of(staging).filter(|place| place.below.is_empty());
    let Some(place) = place else { return Ok(()) };
    match find(db, staging.space(), &place.id)?.filter(|kept| kept.dir.is_some()) {
        Some(kept) => end(db, &kept, committed, pool_ms),
        None => Ok(()),
    }
}

/// Ends a checkpoint, which is known for a while. A shared file's is not: it is known by its path, at which another may
/// begin.
pub(crate) fn end(
    db: &Tx,
    Kept { space, id, style, .. }: &Kept,
    committed: Option<&PoolPath>,
    pool_ms: u64,
) -> Result<(), Error> {
    if *style == CommitStyle::Share {
        return delete(db, *space, id);
    }
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

/// Forgets a checkpoint.
pub(crate) fn delete(db: &Tx, space: SpaceId, id: &CheckpointId) -> Result<(), Error> {
    db.prepare("DELETE FROM checkpoints WHERE space = ?1 AND id = ?2")?
        .execute(params![space.0, id.0])?;
    Ok(())
}

/// Returns checkpoints that are to be aborted or forgotten.
pub(crate) fn due(db: &Tx, limit: usize, pool_ms: u64) -> Result<Vec<Kept>, Error> {
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

/// Returns whether a checkpoint is to be aborted or forgotten.
pub(crate) fn any_due(db: &Tx, now_ms: u64) -> Result<bool, Error> {
    Ok(!due(db, 1, now_ms)?.is_empty())
}

/// Returns the file that writers share at a path, if they share one.
pub(crate) fn shared_file(db: &Tx, path: &PoolPath) -> Result<Option<OpenCheckpoint>, Error> {
    shared_row(db, path)?.map_or(Ok(None), |kept| kept.open(db))
}

/// Returns the row of the file that writers share at a path, if they share one.
pub(crate) fn shared_row(db: &Tx, path: &PoolPath) -> Result<Option<Kept>, Error> {
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

/// Returns whether more than empty directories is in a staging directory: writers that all withdrew leave an empty one.
pub(crate) fn has_staged_files(db: &Tx, dir: DirId) -> Result<bool, Error> {
    let staged = "SELECT 1 FROM entries e WHERE e.parent = ?1
                  AND (e.dir IS NULL OR EXISTS (SELECT 1 FROM entries b WHERE b.parent = e.dir)) LIMIT 1";
    db.prepare(staged)?.exists(params![dir.0])
}
