//! The rows of snapshots, and of the directories that each covers.

use crate::error::Error;
use crate::names::dir_id::DirId;
use crate::pool_records::meta::{self, Counter};
use crate::sql::{Row, Tx, params};
use potluck_core::checkpoint::CheckpointId;
use potluck_core::ids::{MemberId, SnapshotId};
use potluck_core::path::MAX_PATH;

/// A snapshot of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotRow {
    /// The number of the snapshot. Later ones have greater numbers.
    pub number: SnapshotId,
    /// The directory that the snapshot shows.
    pub dir: DirId,
    /// The wall time at which the snapshot was taken, in milliseconds.
    pub made_wall_ms: i64,
    /// The member that took the snapshot; `None` for the pool itself.
    pub by: Option<MemberId>,
}

const COLUMNS: &str = "SELECT number, dir, made_wall_ms, member FROM snapshots";

fn snapshot(row: &Row<'_>) -> Result<SnapshotRow, Error> {
    Ok(SnapshotRow {
        number: SnapshotId(row.get::<i64>(0)? as u64),
        dir: DirId::now(row.get(1)?),
        made_wall_ms: row.get(2)?,
        by: row.get::<Option<u32>>(3)?.map(MemberId),
    })
}

/// Writes a row, and has the snapshot cover its directory.
pub(crate) fn put(db: &Tx, row: &SnapshotRow) -> Result<(), Error> {
    let number = row.number.0 as i64;
    db.prepare("DELETE FROM snapshots WHERE number = ?1")?.execute(params![number])?;
    db.prepare(
        "INSERT INTO snapshots (number, dir, made_wall_ms, member) VALUES (?1, ?2, ?3, ?4)",
    )?
    .execute(params![number, row.dir.0, row.made_wall_ms, row.by.map(|by| by.0)])?;
    cover(db, row.dir, row.number)?;
    Counter::Snapshot.pass(db, number)
}

/// Returns the snapshot with a number, unless it was removed.
pub(crate) fn get(db: &Tx, number: SnapshotId) -> Result<Option<SnapshotRow>, Error> {
    db.prepare(&format!("{COLUMNS} WHERE number = ?1 AND ended = 0"))?
        .query_one(params![number.0 as i64], snapshot)
}

/// Returns all snapshots, in the order in which they were taken.
pub(crate) fn all(db: &Tx) -> Result<Vec<SnapshotRow>, Error> {
    let mut select = db.prepare(&format!("{COLUMNS} WHERE ended = 0 ORDER BY number"))?;
    select.query_map(params![], snapshot)?.collect()
}

/// Returns the snapshots of a directory, in the order in which they were taken.
pub(crate) fn of(db: &Tx, dir: DirId) -> Result<Vec<SnapshotRow>, Error> {
    let mut select =
        db.prepare(&format!("{COLUMNS} WHERE dir = ?1 AND ended = 0 ORDER BY number"))?;
    select.query_map(params![dir.0], snapshot)?.collect()
}

/// Returns the directories that have snapshots.
pub(crate) fn dirs(db: &Tx) -> Result<Vec<DirId>, Error> {
    let mut select = db.prepare("SELECT DISTINCT dir FROM snapshots WHERE ended = 0")?;
    select.query_map(params![], |row| row.get(0).map(DirId::now))?.collect()
}

/// Returns the number that the next snapshot gets.
pub(crate) fn next(db: &Tx) -> Result<SnapshotId, Error> {
    meta::counted(db, Counter::Snapshot).map(|next| SnapshotId(next as u64))
}

/// Notes that a snapshot shows what is in a directory, wherever the directory is.
pub(crate) fn cover(db: &Tx, dir: DirId, number: SnapshotId) -> Result<(), Error> {
    db.prepare("INSERT INTO covered (dir, snapshot) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
        .execute(params![dir.0, number.0 as i64])?;
    Ok(())
}

/// Returns the directories that snapshots cover beside the ones that they are of.
pub(crate) fn all_covered(db: &Tx) -> Result<Vec<(DirId, SnapshotId)>, Error> {
    let mut select = db.prepare(
        "SELECT c.dir, c.snapshot FROM covered c JOIN snapshots s ON s.number = c.snapshot
         WHERE s.ended = 0 AND s.dir <> c.dir ORDER BY c.snapshot, c.dir",
    )?;
    let row = |row: &Row<'_>| Ok((DirId::now(row.get(0)?), SnapshotId(row.get::<i64>(1)? as u64)));
    select.query_map(params![], row)?.collect()
}

/// Returns the snapshots that may show what is in a directory, the newest first: those that cover it or a directory
/// above it. What is staged for a checkpoint is shown by none of a directory above; a directory that was moved there is
/// covered itself.
pub(crate) fn covering(db: &Tx, dir: DirId) -> Result<Vec<SnapshotId>, Error> {
    let mut of = db.prepare(
        "SELECT c.snapshot FROM covered c JOIN snapshots s ON s.number = c.snapshot
         WHERE c.dir = ?1 AND s.ended = 0",
    )?;
    let mut above = db.prepare("SELECT parent, name FROM entries WHERE dir = ?1")?;
    let (mut found, mut at, mut depth) = (Vec::new(), dir, 0);
    while at != DirId::ROOT {
        let of_dir = of.query_map(params![at.0], |row| row.get::<i64>(0))?;
        for number in of_dir {
            found.push(SnapshotId(number? as u64));
        }
        let place: Option<(i64, String)> =
            above.query_one(params![at.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let Some((parent, name)) = place else { break };
        if CheckpointId::of_staging_name(&name).is_some() {
            break;
        }
        at = DirId::now(parent);
        depth += 1;
        if depth > MAX_PATH {
            return Err(Error::Damaged(format!("directory {} is inside itself", dir.0)));
        }
    }
    found.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
    found.dedup();
    Ok(found)
}

/// Ends a snapshot: it shows nothing any more, and what it kept is let go step by step.
pub(crate) fn end(db: &Tx, number: SnapshotId) -> Result<(), Error> {
    let number = number.0 as i64;
    db.prepare("UPDATE snapshots SET ended = 1 WHERE number = ?1")?.execute(params![number])?;
    Ok(())
}

/// Returns a snapshot that has ended, and of which rows are left.
pub(crate) fn any_ended(db: &Tx) -> Result<Option<SnapshotId>, Error> {
    let mut select =
        db.prepare("SELECT number FROM snapshots WHERE ended = 1 ORDER BY number LIMIT 1")?;
    select.query_one(params![], |row| row.get::<i64>(0).map(|number| SnapshotId(number as u64)))
}

/// Forgets a snapshot that has ended, and of which only the rows of covered directories are left: at most `limit` of
/// these. Returns whether the snapshot itself was forgotten.
pub(crate) fn forget(db: &Tx, number: SnapshotId, limit: usize) -> Result<bool, Error> {
    let number = number.0 as i64;
    let mut uncover = db.prepare(
        "DELETE FROM covered WHERE snapshot = ?1 AND dir IN (
             SELECT dir FROM covered WHERE snapshot = ?1 LIMIT ?2)",
    )?;
    if uncover.execute(params![number, limit as i64])? == limit {
        return Ok(false);
    }
    db.prepare("DELETE FROM snapshots WHERE number = ?1 AND ended = 1")?
        .execute(params![number])?;
    Ok(true)
}

/// Ends the snapshots of a directory that is no more, and forgets which snapshots covered it.
pub(crate) fn forget_dir(db: &Tx, dir: DirId) -> Result<(), Error> {
    db.prepare("UPDATE snapshots SET ended = 1 WHERE dir = ?1")?.execute(params![dir.0])?;
    db.prepare("DELETE FROM covered WHERE dir = ?1")?.execute(params![dir.0])?;
    Ok(())
}

/// Returns the number of snapshots that a directory has.
pub(crate) fn count_of(db: &Tx, dir: DirId) -> Result<u64, Error> {
    let mut count = db.prepare("SELECT count(*) FROM snapshots WHERE dir = ?1 AND ended = 0")?;
    count.query_row(params![dir.0], |row| row.get::<i64>(0)).map(|count| count as u64)
}
