//! The things that names led to in the past, as far as a snapshot shows them.
//!
//! An entry says since which snapshot its name leads to it. When the name comes to lead elsewhere, a row says until
//! which snapshot it did. So the tree of any snapshot can be read ([`crate::names::entries`], [`crate::names::walk`]),
//! and taking a snapshot costs as much for a large tree as for a small one. What a row is about is not let go
//! ([`crate::history`]). A row belongs to the newest snapshot that shows it. When that ends, the row goes to another
//! that shows it, or ends too.

use crate::attribute_columns::columns;
use crate::error::Error;
use crate::history::{
    bygone_name::{BygoneLink, BygoneName},
    snapshot_rows,
};
use crate::names::entries::{self, ATTRIBUTES, DirId, EntryPlace, FoundEntry};
use crate::sql::{Row, Tx, params};
use potluck_core::ids::SnapshotId;
use potluck_core::kept_place::is_read_only;
use potluck_core::path::PoolPath;

/// A row about a thing that a name led to.
#[derive(Debug, Clone)]
pub(crate) struct BygoneRow {
    /// The number of the row.
    pub id: i64,
    /// The directory that the name is in.
    pub dir: DirId,
    /// The name that led there.
    pub name: String,
    /// The lower bound of the numbers of the snapshots in which the name leads there; snapshots are numbered pool-wide.
    pub since: SnapshotId,
    /// The upper bound of these numbers, which itself is not one of them.
    pub until: SnapshotId,
    /// The newest snapshot in which the name leads there.
    pub snapshot: SnapshotId,
    /// The thing that the name led to.
    pub found: FoundEntry,
}

const COLUMNS: &str = "SELECT id, e.parent, e.name, since, until, snapshot, e.dir, e.version, e.target, e.mtime_ns, \
                       e.permissions, e.uid, e.gid, e.ctime_ns, e.atime_ns FROM bygone e";

fn bygone(row: &Row<'_>) -> Result<BygoneRow, Error> {
    let number = |at| row.get::<i64>(at).map(|number| SnapshotId(number as u64));
    Ok(BygoneRow {
        id: row.get(0)?,
        dir: DirId::now(row.get(1)?),
        name: row.get(2)?,
        since: number(3)?,
        until: number(4)?,
        snapshot: number(5)?,
        found: FoundEntry::of(row, 6)?,
    })
}

/// Returns the bounds of the numbers of the snapshots that show what a name leads to now, as a row has them, and the
/// newest of these snapshots; `None` if there is none.
pub(crate) fn showing(
    db: &Tx,
    (dir, path): (DirId, &PoolPath),
) -> Result<Option<(SnapshotId, SnapshotId, SnapshotId)>, Error> {
    if path.is_system() || is_read_only(path) {
        return Ok(None);
    }
    let name = path.file_name().unwrap_or_default();
    let Some(since) = entries::since(db, dir, name)? else { return Ok(None) };
    let until = snapshot_rows::next(db)?;
    if since >= until {
        return Ok(None); // no snapshot was taken since
    }
    let newest = snapshot_rows::covering(db, dir)?.into_iter().find(|number| *number >= since);
    Ok(newest.map(|snapshot| (since, until, snapshot)))
}

/// Returns whether a snapshot shows the thing that a name leads to, under this name or one that it had.
pub(crate) fn is_shown(db: &Tx, at: (DirId, &PoolPath), place: &EntryPlace) -> Result<bool, Error> {
    Ok(showing(db, at)?.is_some() || of_place(db, place)?.is_some())
}

/// Writes a row about what is in a directory under a name now, as what another name led to.
fn insert_as(
    db: &Tx,
    (parent, name): (DirId, &str),
    (at, called): (DirId, &str),
    (since, until, snapshot): (SnapshotId, SnapshotId, SnapshotId),
) -> Result<(), Error> {
    db.prepare(&format!(
        "INSERT INTO bygone (parent, name, since, until, snapshot, dir, version, target, mtime_ns, permissions, uid, gid,
             ctime_ns, atime_ns)
         SELECT ?1, ?2, ?3, ?4, ?5, e.dir, e.version, e.target, {ATTRIBUTES} FROM entries e
         WHERE e.parent = ?6 AND e.name = ?7"
    ))?
    .execute(params![
        parent.0,
        name,
        since.0 as i64,
        until.0 as i64,
        snapshot.0 as i64,
        at.0,
        called
    ])?;
    Ok(())
}

/// Writes a row about a link that a name led to and that no entry is any more.
fn insert_link(
    db: &Tx,
    (parent, name): (DirId, &str),
    link: &BygoneLink,
    (since, until, snapshot): (SnapshotId, SnapshotId, SnapshotId),
) -> Result<(), Error> {
    let (mtime, permissions, uid, gid, ctime, atime) = columns(link.attributes);
    db.prepare(
        "INSERT INTO bygone (parent, name, since, until, snapshot, target, mtime_ns, permissions, uid, gid,
             ctime_ns, atime_ns)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?
    .execute(params![
        parent.0,
        name,
        since.0 as i64,
        until.0 as i64,
        snapshot.0 as i64,
        link.target.as_str(),
        mtime,
        permissions,
        uid,
        gid,
        ctime,
        atime
    ])?;
    Ok(())
}

/// Writes a row that the log tells of.
pub(crate) fn put(db: &Tx, told: &BygoneName) -> Result<(), Error> {
    let (above, name) = entries::split(&told.path)?;
    let name = (entries::existing_dir(db, &above)?, name);
    let shown = (told.since, told.until, told.snapshot);
    if let Some(link) = &told.link {
        return insert_link(db, name, link, shown);
    }
    let (above, at) = entries::split(&told.at)?;
    insert_as(db, name, (entries::existing_dir(db, &above)?, at), shown)
}

/// Returns rows after `after`, at most `limit`, as a log tells of them, each with its number; `None` beside the number
/// of a row to whose name or thing no path leads.
pub(crate) fn told(
    db: &Tx,
    after: i64,
    limit: usize,
) -> Result<Vec<(i64, Option<BygoneName>)>, Error> {
    let mut select = db.prepare(&format!("{COLUMNS} WHERE id > ?1 ORDER BY id LIMIT ?2"))?;
    let rows: Result<Vec<BygoneRow>, _> =
        select.query_map(params![after, limit as i64], bygone)?.collect();
    let tell = |row: BygoneRow| {
        let path = entries::path_of(db, row.dir)?.and_then(|dir| dir.join(&row.name).ok());
        let BygoneRow {
            id, since, until, snapshot, found: FoundEntry { place, attributes }, ..
        } = row;
        let (at, link) = match place {
            EntryPlace::Link(target) => (path.clone(), Some(BygoneLink { target, attributes })),
            EntryPlace::File(version) => (entries::path_of_version(db, version)?, None),
            EntryPlace::Dir(dir) => (entries::path_of(db, dir)?, None),
        };
        let name = |(path, at)| BygoneName { path, at, link, since, until, snapshot };
        Ok((id, path.zip(at).map(name)))
    };
    rows?.into_iter().map(tell).collect()
}

/// Returns a row about the given thing, if a snapshot shows it under some name.
pub(crate) fn of_place(db: &Tx, place: &EntryPlace) -> Result<Option<BygoneRow>, Error> {
    rows_of_place(db, place, 1).map(|mut rows| rows.pop())
}

/// Returns all rows about the given thing: one for each name under which snapshots show it.
pub(crate) fn all_of_place(db: &Tx, place: &EntryPlace) -> Result<Vec<BygoneRow>, Error> {
    rows_of_place(db, place, -1)
}

fn rows_of_place(db: &Tx, place: &EntryPlace, limit: i64) -> Result<Vec<BygoneRow>, Error> {
    let (column, number) = match place {
        EntryPlace::Link(_) => return Ok(Vec::new()), // a row has all that there is of a link
        EntryPlace::File(version) => ("version", version.0 as i64),
        EntryPlace::Dir(dir) => ("dir", dir.0),
    };
    let mut select =
        db.prepare(&format!("{COLUMNS} WHERE e.{column} = ?1 ORDER BY id LIMIT ?2"))?;
    select.query_map(params![number, limit], bygone)?.collect()
}

/// Returns whether a row is about a name in this directory.
pub(crate) fn is_any_of(db: &Tx, dir: DirId) -> Result<bool, Error> {
    db.prepare("SELECT 1 FROM bygone WHERE parent = ?1 LIMIT 1")?.exists(params![dir.0])
}

/// The outcome of one step that forgets rows.
pub(crate) struct Released {
    /// The things that no snapshot shows any more.
    pub not_shown: Vec<EntryPlace>,
    /// True if no row is left for another step.
    pub all: bool,
}

/// Handles at most `limit` rows that a snapshot which has ended showed: each row goes to another snapshot that shows
/// its thing, or is forgotten.
pub(crate) fn release(db: &Tx, ended: SnapshotId, limit: usize) -> Result<Released, Error> {
    let mut select = db.prepare(&format!("{COLUMNS} WHERE snapshot = ?1 ORDER BY id LIMIT ?2"))?;
    let rows: Result<Vec<BygoneRow>, _> =
        select.query_map(params![ended.0 as i64, limit as i64], bygone)?.collect();
    let rows = rows?;
    let mut not_shown = Vec::new();
    for row in &rows {
        let shows = |number: &SnapshotId| (row.since..row.until).contains(number);
        match snapshot_rows::covering(db, row.dir)?.into_iter().find(shows) {
            Some(other) => {
                db.prepare("UPDATE bygone SET snapshot = ?2 WHERE id = ?1")?
                    .execute(params![row.id, other.0 as i64])?;
            }
            None => not_shown.extend(forget(db, row)?),
        }
    }
    Ok(Released { not_shown, all: rows.len() < limit })
}

/// Forgets a row. Returns what it was about, if no other row is about that.
fn forget(db: &Tx, row: &BygoneRow) -> Result<Option<EntryPlace>, Error> {
    db.prepare("DELETE FROM bygone WHERE id = ?1")?.execute(params![row.id])?;
    let place = &row.found.place;
    Ok(of_place(db, place)?.is_none().then(|| place.clone()))
}

/// Forgets rows of a directory that is no more, at most `limit`.
pub(crate) fn forget_of(db: &Tx, dir: DirId, limit: usize) -> Result<Released, Error> {
    let mut select = db.prepare(&format!("{COLUMNS} WHERE e.parent = ?1 ORDER BY id LIMIT ?2"))?;
    let rows: Result<Vec<BygoneRow>, _> =
        select.query_map(params![dir.0, limit as i64], bygone)?.collect();
    let rows = rows?;
    let mut not_shown = Vec::new();
    for row in &rows {
        not_shown.extend(forget(db, row)?);
    }
    Ok(Released { not_shown, all: rows.len() < limit })
}
