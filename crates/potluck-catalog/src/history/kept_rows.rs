//! The rows about kept files, directories and links that were replaced or removed: each about an entry in the directory
//! [`potluck_core::kept_place::KEPT_DIR`] of the directory that the entry was in.

use crate::error::Error;
use crate::history::kept_entry::KeptEntry;
use crate::names::entries::{self, DirId, EntryPlace, FoundEntry};
use crate::sql::{Row, Tx, params};
use potluck_core::checkpoint::StagedPlace;
use potluck_core::ids::{MemberId, VersionId};
use potluck_core::kept_place::{KEPT_DIR, KeptPlace, is_read_only};
use potluck_core::path::PoolPath;

/// The row of a kept thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HistoryRow {
    /// The number of the version, or for a directory or link a number of its own.
    pub number: VersionId,
    /// The directory in which the thing was.
    pub dir: DirId,
    /// The name that the thing had in that directory.
    pub name: String,
    /// True if the thing was removed; otherwise something else took its place.
    pub removed: bool,
    /// The wall time at which the thing was replaced or removed, in milliseconds; 0 if it is kept for a snapshot after
    /// its tree was removed.
    pub kept_wall_ms: i64,
    /// The pool's time at which the thing was replaced or removed, in milliseconds.
    pub kept_ms: u64,
    /// The member that replaced or removed the thing; `None` for the pool itself.
    pub by: Option<MemberId>,
    /// The pool's time, without its leaps, at which the thing is let go, in milliseconds; `None` while no time is set.
    pub until_ms: Option<u64>,
    /// True if the thing is kept for a snapshot that shows it, and for nothing else.
    pub shown: bool,
}

impl HistoryRow {
    /// Returns whether the time for which the thing is kept is not over at `now_ms`, in the pool's time without its leaps.
    pub fn is_live(&self, now_ms: u64) -> bool {
        self.until_ms.is_none_or(|until| until > now_ms)
    }

    /// Returns the row with a number, about something in a directory, of which a record tells.
    pub fn of(told: &KeptEntry, number: VersionId, dir: DirId) -> Self {
        let KeptEntry { name, removed, kept_wall_ms, kept_ms, by, until_ms, shown, .. } =
            told.clone();
        Self { number, dir, name, removed, kept_wall_ms, kept_ms, by, until_ms, shown }
    }

    /// Returns the record that tells of the row, to whose thing the path `at` leads.
    pub fn told(self, at: PoolPath) -> KeptEntry {
        let Self { name, removed, kept_wall_ms, kept_ms, by, until_ms, shown, .. } = self;
        KeptEntry { from: None, at, name, removed, kept_wall_ms, kept_ms, by, until_ms, shown }
    }
}

/// Returns the row about what a path leads to, as the log tells of it.
pub(crate) fn entry_at(db: &Tx, at: &PoolPath) -> Result<Option<KeptEntry>, Error> {
    let Some(place) = KeptPlace::of(at) else { return Ok(None) };
    Ok(get(db, place.number)?.map(|row| row.told(at.clone())))
}

/// Returns the entry that a row is about, with the directory that it is in.
pub(crate) fn find(db: &Tx, row: &HistoryRow) -> Result<Option<(DirId, FoundEntry)>, Error> {
    let holder = entries::lookup(db, row.dir, KEPT_DIR)?.map(|found| found.place);
    let Some(EntryPlace::Dir(holder)) = holder else { return Ok(None) };
    let found = entries::lookup(db, holder, &row.number.0.to_string())?;
    Ok(found.map(|found| (holder, found)))
}

const COLUMNS: &str =
    "SELECT number, dir, name, removed, kept_wall_ms, kept_ms, member, until_ms, shown FROM kept";

fn kept(row: &Row<'_>) -> Result<HistoryRow, Error> {
    Ok(HistoryRow {
        number: VersionId(row.get::<i64>(0)? as u64),
        dir: DirId::now(row.get(1)?),
        name: row.get(2)?,
        removed: row.get(3)?,
        kept_wall_ms: row.get(4)?,
        kept_ms: row.get::<i64>(5)? as u64,
        by: row.get::<Option<u32>>(6)?.map(MemberId),
        until_ms: row.get::<Option<i64>>(7)?.map(|ms| ms as u64),
        shown: row.get(8)?,
    })
}

/// Writes a row, in the place of one with the same number.
pub(crate) fn put(db: &Tx, row: &HistoryRow) -> Result<(), Error> {
    forget(db, row.number)?;
    db.prepare(
        "INSERT INTO kept (number, dir, name, removed, kept_wall_ms, kept_ms, member, until_ms, shown)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        row.number.0 as i64,
        row.dir.0,
        row.name,
        row.removed,
        row.kept_wall_ms,
        row.kept_ms as i64,
        row.by.map(|by| by.0),
        row.until_ms.map(|ms| ms as i64),
        row.shown
    ])?;
    Ok(())
}

/// Returns the row with a number.
pub(crate) fn get(db: &Tx, number: VersionId) -> Result<Option<HistoryRow>, Error> {
    db.prepare(&format!("{COLUMNS} WHERE number = ?1"))?.query_one(params![number.0 as i64], kept)
}

/// Returns how many things are kept of one name.
pub(crate) fn count_of_name(db: &Tx, dir: DirId, name: &str) -> Result<u64, Error> {
    let mut count = db.prepare("SELECT count(*) FROM kept WHERE dir = ?1 AND name = ?2")?;
    let count: i64 = count.query_row(params![dir.0, name], |row| row.get(0))?;
    Ok(count as u64)
}

/// Returns all that is kept of one name, the latest first. These are some [`potluck_core::policy::MOST_VERSIONS`] at
/// most, beside those whose time is over and those that are kept for snapshots.
pub(crate) fn of_name(db: &Tx, dir: DirId, name: &str) -> Result<Vec<HistoryRow>, Error> {
    let mut select = db.prepare(&format!("{COLUMNS} WHERE dir = ?1 AND name = ?2"))?;
    let rows: Result<Vec<_>, _> = select.query_map(params![dir.0, name], kept)?.collect();
    let mut rows = rows?;
    rows.sort_by_key(|row| std::cmp::Reverse((row.kept_ms, row.number)));
    Ok(rows)
}

/// Sets `until_ms` as the time at which the things that are kept of a name are let go: for those that have a later time
/// or none, and with `only_endless` only for those that have none. Returns whether anything changed.
pub(crate) fn end_by(
    db: &Tx,
    dir: DirId,
    name: &str,
    until_ms: u64,
    only_endless: bool,
) -> Result<bool, Error> {
    let changed = db
        .prepare(
            "UPDATE kept SET until_ms = ?3 WHERE dir = ?1 AND name = ?2
             AND (until_ms IS NULL OR (until_ms > ?3 AND ?4 = 0))",
        )?
        .execute(params![dir.0, name, until_ms as i64, only_endless])?;
    Ok(changed > 0)
}

/// Forgets the row with a number.
pub(crate) fn forget(db: &Tx, number: VersionId) -> Result<(), Error> {
    db.prepare("DELETE FROM kept WHERE number = ?1")?.execute(params![number.0 as i64])?;
    Ok(())
}

/// Forgets rows of a directory that is no more, at most `limit`, and returns whether there may be others.
pub(crate) fn forget_of(db: &Tx, dir: DirId, limit: usize) -> Result<bool, Error> {
    let mut delete = db.prepare(
        "DELETE FROM kept WHERE number IN (SELECT number FROM kept WHERE dir = ?1 LIMIT ?2)",
    )?;
    Ok(delete.execute(params![dir.0, limit as i64])? == limit)
}

/// Returns the first kept things whose time is over, at most `limit`.
pub(crate) fn due(db: &Tx, now_ms: u64, limit: usize) -> Result<Vec<HistoryRow>, Error> {
    let mut select =
        db.prepare(&format!("{COLUMNS} WHERE until_ms <= ?1 ORDER BY until_ms LIMIT ?2"))?;
    select.query_map(params![now_ms as i64, limit as i64], kept)?.collect()
}

/// Returns whether anything is kept of what is at a path: not of the pool's own metadata, of what a checkpoint stages,
/// or of what is kept already.
pub(crate) fn keeps_at(path: &PoolPath) -> bool {
    !path.is_system() && StagedPlace::of(path).is_none() && !is_read_only(path)
}
