//! Entries: the directories, files and links that names in directories stand for.

use crate::attribute_columns::columns;
use crate::error::Error;
use crate::history::snapshot_rows;
pub use crate::names::dir_id::DirId;
use crate::pool_records::meta::Counter;
use crate::sql::{Row, Tx, params};
use potluck_core::attributes::{EntryAttributes, FileOwner, FileTime, Permissions};
use potluck_core::checkpoint::CheckpointId;
use potluck_core::ids::{SnapshotId, VersionId};
use potluck_core::kept_place::is_reserved;
use potluck_core::link_target::LinkTarget;
use potluck_core::path::{MAX_PATH, PoolPath};

/// Returns the directory behind the entry of a snapshot, as the snapshot shows it, and any other directory unchanged;
/// `None` if the snapshot has ended.
pub(crate) fn shown(db: &Tx, dir: DirId) -> Result<Option<DirId>, Error> {
    let Some(number) = dir.snapshot() else { return Ok(Some(dir)) };
    Ok(snapshot_rows::get(db, number)?.map(|row| DirId::as_shown(row.dir.0, Some(number))))
}

/// Returns a query for the names, the [`PLACE`] and the [`ATTRIBUTES`] of the entries of directory `?1` that snapshot
/// `?2` shows: present ones and those that names led to then. `rest` is added to the conditions of both halves.
pub(crate) fn as_shown(rest: &str) -> String {
    let of = |table, until| {
        format!(
            "SELECT * FROM (
                 SELECT e.name, {PLACE}, {ATTRIBUTES} FROM {table} e
                 WHERE e.parent = ?1 AND e.since <= ?2{until}{rest})"
        )
    };
    format!("{} UNION ALL {}", of("entries", ""), of("bygone", " AND e.until > ?2"))
}

/// The thing that an entry stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryPlace {
    /// The entry leads to a directory.
    Dir(DirId),
    /// The entry leads to a file's current version.
    File(VersionId),
    /// The entry is a symbolic link, which leads nowhere in the catalog: it is never followed here.
    Link(LinkTarget),
}

/// An entry, as it was found in the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundEntry {
    /// The thing that the entry stands for.
    pub place: EntryPlace,
    /// The attributes of a directory or a link; meaningless for a file, whose attributes are with its version.
    pub attributes: EntryAttributes,
}

impl FoundEntry {
    /// Reads an entry from its columns, of which [`PLACE`] begins at `at` and [`ATTRIBUTES`] follows.
    pub fn of(row: &Row<'_>, at: usize) -> Result<Self, Error> {
        Ok(Self { place: EntryPlace::of(row, at)?, attributes: attributes_of(row, at + 3)? })
    }
}

/// Reads [`ATTRIBUTES`] from column `at` on.
fn attributes_of(row: &Row<'_>, at: usize) -> Result<EntryAttributes, Error> {
    let (mtime, permissions): (Option<i64>, Option<u32>) = (row.get(at)?, row.get(at + 1)?);
    let mtime = FileTime(mtime.unwrap_or_default());
    let permissions = Permissions::of_mode(permissions.unwrap_or_default());
    let owner = FileOwner::of_columns(row.get(at + 2)?, row.get(at + 3)?);
    let changed = FileTime(row.get::<Option<i64>>(at + 4)?.unwrap_or_default());
    let accessed = row.get::<Option<i64>>(at + 5)?.map(FileTime);
    Ok(EntryAttributes { mtime, permissions, owner, changed, accessed })
}

/// The columns of an entry `e` that say what it is.
pub(crate) const PLACE: &str = "e.dir, e.version, e.target";
/// The columns of an entry `e` that follow [`PLACE`], with its attributes.
pub(crate) const ATTRIBUTES: &str =
    "e.mtime_ns, e.permissions, e.uid, e.gid, e.ctime_ns, e.atime_ns";
/// The number of columns that [`PLACE`] and [`ATTRIBUTES`] name.
pub(crate) const ENTRY_COLUMNS: usize = 9;

impl EntryPlace {
    /// Reads [`PLACE`] from column `at` on.
    pub fn of(row: &Row<'_>, at: usize) -> Result<Self, Error> {
        let (dir, version): (Option<i64>, Option<i64>) = (row.get(at)?, row.get(at + 1)?);
        match (dir, version, row.get::<Option<String>>(at + 2)?) {
            (Some(dir), None, None) => Ok(Self::Dir(DirId::now(dir))),
            (None, Some(version), None) => Ok(Self::File(VersionId(version as u64))),
            (None, None, Some(target)) => target
                .try_into()
                .map(Self::Link)
                .map_err(|why| Error::Damaged(format!("an entry: {why}"))),
            _ => Err(Error::Damaged("an entry is neither file nor directory nor link".into())),
        }
    }
}

impl EntryPlace {
    /// Returns the snapshot that the entry is of, if it is the entry of one.
    pub(crate) fn snapshot(&self) -> Option<SnapshotId> {
        match self {
            Self::Dir(dir) => dir.snapshot(),
            Self::File(_) | Self::Link(_) => None,
        }
    }

    /// Returns a directory as the snapshot that shows its parent shows it, and anything else unchanged.
    pub(crate) fn shown_as(self, parent: DirId) -> Self {
        match self {
            Self::Dir(dir) => Self::Dir(DirId::as_shown(dir.0, parent.shown_by())),
            other => other,
        }
    }
}

/// Returns the entry `name` of a directory, if there is one. As a snapshot shows a directory, entries that are hidden
/// from people are not there.
pub(crate) fn lookup(db: &Tx, parent: DirId, name: &str) -> Result<Option<FoundEntry>, Error> {
    let Some(parent) = shown(db, parent)? else { return Ok(None) };
    if let Some(snapshot) = parent.shown_by() {
        if is_hidden(name) {
            return Ok(None);
        }
        let found = db
            .prepare(&as_shown(" AND e.name = ?3"))?
            .query_one(params![parent.0, snapshot.0 as i64, name], |row| FoundEntry::of(row, 1))?;
        let as_parent =
            |found: FoundEntry| FoundEntry { place: found.place.shown_as(parent), ..found };
        return Ok(found.map(as_parent));
    }
    db.prepare(&format!(
        "SELECT {PLACE}, {ATTRIBUTES} FROM entries e WHERE e.parent = ?1 AND e.name = ?2"
    ))?
    .query_one(params![parent.0, name], |row| FoundEntry::of(row, 0))
}

/// Finds the entry at `path`; `None` if nothing is there.
///
/// Errors: [`Error::NoSpaceNamed`], or [`Error::NotADirectory`] if a file or a link is on the way.
pub(crate) fn resolve(db: &Tx, path: &PoolPath) -> Result<Option<FoundEntry>, Error> {
    let (place, attributes) = (EntryPlace::Dir(DirId::ROOT), EntryAttributes::of_dir(0));
    let mut found = FoundEntry { place, attributes };
    if path.space().is_empty() {
        return Ok(Some(found));
    }
    found = lookup(db, DirId::ROOT, path.space())?
        .ok_or_else(|| Error::NoSpaceNamed(path.space().into()))?;
    for (depth, name) in path.names().iter().enumerate() {
        let EntryPlace::Dir(dir) = found.place else {
            return Err(Error::NotADirectory(path.ancestor(depth)));
        };
        match lookup(db, dir, name)? {
            Some(next) => found = next,
            None => return Ok(None),
        }
    }
    Ok(Some(found))
}

/// Finds what is at a path relative to a directory, if anything is.
pub(crate) fn below(db: &Tx, dir: DirId, relative: &str) -> Result<Option<EntryPlace>, Error> {
    let mut place = EntryPlace::Dir(dir);
    for name in relative.split('/') {
        let EntryPlace::Dir(dir) = place else { return Ok(None) };
        let Some(found) = lookup(db, dir, name)? else { return Ok(None) };
        place = found.place;
    }
    Ok(Some(place))
}

/// Finds the entry at `path`, where something must be.
pub(crate) fn existing(db: &Tx, path: &PoolPath) -> Result<FoundEntry, Error> {
    resolve(db, path)?.ok_or_else(|| Error::NoEntry(path.clone()))
}

/// Returns the directory at `path`, which must be one.
pub(crate) fn existing_dir(db: &Tx, path: &PoolPath) -> Result<DirId, Error> {
    match existing(db, path)?.place {
        EntryPlace::Dir(dir) => Ok(dir),
        EntryPlace::File(_) | EntryPlace::Link(_) => Err(Error::NotADirectory(path.clone())),
    }
}

/// Returns the path above a path, and its last name.
///
/// Errors: [`Error::OutsideSpaces`] for the root and for spaces themselves.
pub(crate) fn split(path: &PoolPath) -> Result<(PoolPath, &str), Error> {
    let outside = || Error::OutsideSpaces(path.clone());
    let parent = path.parent().ok_or_else(outside)?;
    Ok((parent, path.file_name().ok_or_else(outside)?))
}

/// Returns the directory at `path`, made with all its parents where they are missing; those that are made get these
/// attributes.
pub(crate) fn make_dirs(
    db: &Tx,
    path: &PoolPath,
    attributes: EntryAttributes,
) -> Result<DirId, Error> {
    let space = lookup(db, DirId::ROOT, path.space())?;
    let Some(FoundEntry { place: EntryPlace::Dir(root), .. }) = space else {
        return Err(Error::NoSpaceNamed(path.space().into()));
    };
    let mut dir = root;
    let mut made = 0;
    for (depth, name) in path.names().iter().enumerate() {
        dir = match lookup(db, dir, name)? {
            Some(FoundEntry { place: EntryPlace::Dir(next), .. }) => next,
            Some(_) => return Err(Error::NotADirectory(path.ancestor(depth + 1))),
            None => {
                made += 1;
                add_dir(db, dir, name, attributes)?
            }
        };
    }
    // All new directories are counted at once, and not by a walk up for each: a path may have two thousand names.
    count_dirs(db, root, made)?;
    Ok(dir)
}

/// Makes a directory where nothing is.
pub(crate) fn make_dir(
    db: &Tx,
    parent: DirId,
    name: &str,
    attributes: EntryAttributes,
) -> Result<DirId, Error> {
    let dir = add_dir(db, parent, name, attributes)?;
    count_dir(db, parent)?;
    Ok(dir)
}

/// Makes a directory. The caller counts it.
fn add_dir(
    db: &Tx,
    parent: DirId,
    name: &str,
    attributes: EntryAttributes,
) -> Result<DirId, Error> {
    let dir = DirId::now(Counter::Dir.take(db, 1)?);
    add(db, parent, name, (Some(dir), None), attributes)?;
    Ok(dir)
}

/// Counts one directory more below another, in the sums of the space. Spaces themselves count nowhere.
fn count_dir(db: &Tx, parent: DirId) -> Result<(), Error> {
    let mut select = db.prepare("SELECT parent FROM entries WHERE dir = ?1")?;
    let (mut at, mut depth) = (parent, 0);
    loop {
        let above: Option<i64> = select.query_one(params![at.0], |row| row.get(0))?;
        match above.map(DirId::now) {
            None => return Ok(()),
            Some(DirId::ROOT) => break,
            Some(above) => at = above,
        }
        depth += 1;
        if depth > MAX_PATH {
            return Err(Error::Damaged(format!("directory {} is inside itself", parent.0)));
        }
    }
    count_dirs(db, at, 1)
}

/// Counts so many directories more in the space with this root.
fn count_dirs(db: &Tx, root: DirId, more: u64) -> Result<(), Error> {
    if more == 0 {
        return Ok(());
    }
    db.prepare("UPDATE spaces SET dirs = dirs + ?2 WHERE root = ?1")?
        .execute(params![root.0, more as i64])?;
    Ok(())
}

/// Returns the number of directories that [`make_dirs`] would make for `path`; 0 where it would fail.
pub(crate) fn missing_dirs(db: &Tx, path: &PoolPath) -> Result<u64, Error> {
    let Some(FoundEntry { place: EntryPlace::Dir(mut dir), .. }) =
        lookup(db, DirId::ROOT, path.space())?
    else {
        return Ok(0);
    };
    for (depth, name) in path.names().iter().enumerate() {
        match lookup(db, dir, name)?.map(|found| found.place) {
            Some(EntryPlace::Dir(next)) => dir = next,
            Some(_) => return Ok(0),
            None => return Ok((path.names().len() - depth) as u64),
        }
    }
    Ok(0)
}

/// Puts a directory or a link, which have attributes of their own, where nothing is.
fn add(
    db: &Tx,
    parent: DirId,
    name: &str,
    (dir, target): (Option<DirId>, Option<&LinkTarget>),
    attributes: EntryAttributes,
) -> Result<(), Error> {
    let (mtime, permissions, uid, gid, ctime, atime) = columns(attributes);
    let (dir, target) = (dir.map(|dir| dir.0), target.map(LinkTarget::as_str));
    db.prepare(
        "INSERT INTO entries (parent, name, dir, target, mtime_ns, permissions, uid, gid, ctime_ns,
             atime_ns, since)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,
             (SELECT value FROM meta WHERE key = 'next_snapshot'))",
    )?
    .execute(params![
        parent.changing()?,
        name,
        dir,
        target,
        mtime,
        permissions,
        uid,
        gid,
        ctime,
        atime
    ])?;
    Ok(())
}

/// Puts a file where nothing is, or in the place of another.
pub(crate) fn put_file(
    db: &Tx,
    parent: DirId,
    name: &str,
    version: VersionId,
) -> Result<(), Error> {
    db.prepare(
        "INSERT INTO entries (parent, name, version, since)
         VALUES (?1, ?2, ?3, (SELECT value FROM meta WHERE key = 'next_snapshot'))
         ON CONFLICT (parent, name) DO UPDATE
         SET version = excluded.version, since = excluded.since",
    )?
    .execute(params![parent.changing()?, name, version.0 as i64])?;
    Ok(())
}

/// Makes a symbolic link where nothing is.
pub(crate) fn make_link(
    db: &Tx,
    parent: DirId,
    name: &str,
    target: &LinkTarget,
    attributes: EntryAttributes,
) -> Result<(), Error> {
    add(db, parent, name, (None, Some(target)), attributes)
}

/// Sets the attributes of a directory or a link, and returns whether it is there.
pub(crate) fn set_attributes(
    db: &Tx,
    parent: DirId,
    name: &str,
    attributes: EntryAttributes,
) -> Result<bool, Error> {
    let (mtime, permissions, uid, gid, ctime, atime) = columns(attributes);
    let mut update = db.prepare(
        "UPDATE entries
         SET mtime_ns = ?3, permissions = ?4, uid = ?5, gid = ?6, ctime_ns = ?7, atime_ns = ?8
         WHERE parent = ?1 AND name = ?2",
    )?;
    let set =
        update.execute(params![parent.0, name, mtime, permissions, uid, gid, ctime, atime])?;
    Ok(set > 0)
}

/// Sets the modification time of a directory, which is changed by that. Returns false if it had these times before, or
/// no entry leads to it.
pub(crate) fn touch(db: &Tx, dir: DirId, mtime: FileTime) -> Result<bool, Error> {
    let changed = db
        .prepare(
            "UPDATE entries SET mtime_ns = ?2, ctime_ns = ?2
             WHERE dir = ?1 AND (coalesce(mtime_ns, 0) <> ?2 OR coalesce(ctime_ns, 0) < ?2)",
        )?
        .execute(params![dir.0, mtime.0])?;
    Ok(changed > 0)
}

/// Gives an entry another place and name, which nothing has.
pub(crate) fn rename(
    db: &Tx,
    (from, name): (DirId, &str),
    (to, new_name): (DirId, &str),
) -> Result<(), Error> {
    db.prepare(
        "UPDATE entries
         SET parent = ?3, name = ?4, since = (SELECT value FROM meta WHERE key = 'next_snapshot')
         WHERE parent = ?1 AND name = ?2",
    )?
    .execute(params![from.changing()?, name, to.changing()?, new_name])?;
    Ok(())
}

/// Returns the first snapshot that shows an entry under its name, taken or yet to be taken; `None` if there is no
/// entry.
pub(crate) fn since(db: &Tx, parent: DirId, name: &str) -> Result<Option<SnapshotId>, Error> {
    db.prepare("SELECT since FROM entries WHERE parent = ?1 AND name = ?2")?
        .query_one(params![parent.0, name], |row| Ok(SnapshotId(row.get::<i64>(0)? as u64)))
}

/// Sets the first snapshot that shows an entry, as a log tells.
pub(crate) fn set_since(
    db: &Tx,
    parent: DirId,
    name: &str,
    since: SnapshotId,
) -> Result<(), Error> {
    db.prepare("UPDATE entries SET since = ?3 WHERE parent = ?1 AND name = ?2")?
        .execute(params![parent.changing()?, name, since.0 as i64])?;
    Ok(())
}

/// Sets whether an entry is never purged.
pub(crate) fn set_pinned(db: &Tx, parent: DirId, name: &str, pinned: bool) -> Result<(), Error> {
    db.prepare("UPDATE entries SET pinned = ?3 WHERE parent = ?1 AND name = ?2")?
        .execute(params![parent.changing()?, name, pinned])?;
    Ok(())
}

/// Returns whether an entry is never purged; false if there is none.
pub(crate) fn is_pinned(db: &Tx, parent: DirId, name: &str) -> Result<bool, Error> {
    let pinned: Option<bool> = db
        .prepare("SELECT pinned FROM entries WHERE parent = ?1 AND name = ?2")?
        .query_one(params![parent.0, name], |row| row.get(0))?;
    Ok(pinned.unwrap_or(false))
}

/// Returns the pool's time, in milliseconds, at which an entry was used last as a step of a series; 0 if that is not
/// known, and `None` if there is no entry.
pub(crate) fn used_ms(db: &Tx, parent: DirId, name: &str) -> Result<Option<u64>, Error> {
    db.prepare("SELECT used_ms FROM entries WHERE parent = ?1 AND name = ?2")?
        .query_one(params![parent.0, name], |row| Ok(row.get::<i64>(0)? as u64))
}

/// Notes the pool's time, in milliseconds, at which an entry was used as a step of a series.
pub(crate) fn set_used(db: &Tx, parent: DirId, name: &str, used_ms: u64) -> Result<(), Error> {
    db.prepare("UPDATE entries SET used_ms = ?3 WHERE parent = ?1 AND name = ?2")?
        .execute(params![parent.changing()?, name, used_ms as i64])?;
    Ok(())
}

/// Puts the entry of a snapshot where nothing is.
pub(crate) fn add_snapshot(
    db: &Tx,
    parent: DirId,
    name: &str,
    number: SnapshotId,
    attributes: EntryAttributes,
) -> Result<(), Error> {
    add(db, parent, name, (Some(DirId::of_snapshot(number)), None), attributes)?;
    count_dir(db, parent)
}

/// Returns the name of the entry of a snapshot, if there is one.
pub(crate) fn name_of(db: &Tx, number: SnapshotId) -> Result<Option<String>, Error> {
    db.prepare("SELECT name FROM entries WHERE dir = ?1")?
        .query_one(params![DirId::of_snapshot(number).0], |row| row.get(0))
}

/// Returns the directory and the name that lead to a directory or a file's version; `None` if no entry does, and for a
/// link.
pub(crate) fn holder_of(db: &Tx, place: &EntryPlace) -> Result<Option<(DirId, String)>, Error> {
    let (column, number) = match place {
        EntryPlace::Dir(dir) => ("dir", dir.0),
        EntryPlace::File(version) => ("version", version.0 as i64),
        EntryPlace::Link(_) => return Ok(None),
    };
    db.prepare(&format!("SELECT parent, name FROM entries WHERE {column} = ?1"))?
        .query_one(params![number], |row| Ok((DirId::now(row.get(0)?), row.get(1)?)))
}

/// Returns the path that leads to a version now, if one does.
pub(crate) fn path_of_version(db: &Tx, version: VersionId) -> Result<Option<PoolPath>, Error> {
    let Some((dir, name)) = holder_of(db, &EntryPlace::File(version))? else { return Ok(None) };
    Ok(path_of(db, dir)?.and_then(|dir| dir.join(&name).ok()))
}

/// Removes an entry from its directory.
pub(crate) fn delete(db: &Tx, parent: DirId, name: &str) -> Result<(), Error> {
    db.prepare("DELETE FROM entries WHERE parent = ?1 AND name = ?2")?
        .execute(params![parent.changing()?, name])?;
    Ok(())
}

/// Returns the length in bytes of the longest path below a directory, relative to it and with the slash before it; 0 if
/// the directory is empty. What a checkpoint stages counts with the path that it gets at the commit, if that is longer.
pub(crate) fn longest_below(db: &Tx, dir: DirId) -> Result<usize, Error> {
    let longest: Option<i64> = db
        .prepare(
            "WITH RECURSIVE below (dir, bytes) AS (
                 VALUES (?1, 0)
                 UNION ALL
                 SELECT e.dir, below.bytes + 1
                     + max(octet_length(e.name), ifnull(octet_length(c.target), 0))
                 FROM below JOIN entries e ON e.parent = below.dir
                 LEFT JOIN checkpoints c ON c.dir = e.dir)
             SELECT max(bytes) FROM below",
        )?
        .query_one(params![dir.0], |row| row.get(0))?;
    Ok(longest.unwrap_or(0) as usize)
}

/// Returns the path that leads to a directory; `None` if none does any more, or it would be too long.
pub(crate) fn path_of(db: &Tx, dir: DirId) -> Result<Option<PoolPath>, Error> {
    let mut select = db.prepare("SELECT parent, name FROM entries WHERE dir = ?1")?;
    let (mut names, mut at) = (Vec::new(), dir);
    while at != DirId::ROOT {
        let above: Option<(i64, String)> =
            select.query_one(params![at.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let Some((parent, name)) = above else { return Ok(None) };
        // A name and its slash take at least two bytes of a path, so more names than that form a circle.
        if names.len() > MAX_PATH / 2 {
            return Err(Error::Damaged(format!("directory {} is inside itself", dir.0)));
        }
        names.push(name);
        at = DirId::now(parent);
    }
    let path = PoolPath::root().join_all(names.iter().rev().map(String::as_str));
    // A directory that was moved to where its path would be too long cannot be reached.
    Ok(path.ok())
}

/// Returns the entries of a directory in order of their names, at most `limit` of them.
pub(crate) fn children(
    db: &Tx,
    dir: DirId,
    limit: usize,
) -> Result<Vec<(String, EntryPlace)>, Error> {
    let mut rows = db.prepare(&format!(
        "SELECT e.name, {PLACE} FROM entries e WHERE e.parent = ?1 ORDER BY e.name LIMIT ?2"
    ))?;
    let mut rows = rows.query(params![dir.0, limit as i64])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push((row.get(0)?, EntryPlace::of(&row, 1)?));
    }
    Ok(found)
}

/// Returns whether a directory has entries that are not hidden from people.
pub(crate) fn has_visible(db: &Tx, dir: DirId) -> Result<bool, Error> {
    has(db, dir, |name| !is_hidden(name))
}

/// Returns whether an entry of this name is hidden from people: the staging directory of a checkpoint, or the place of
/// old versions and snapshots.
fn is_hidden(name: &str) -> bool {
    CheckpointId::of_staging_name(name).is_some() || is_reserved(name)
}

/// Returns whether checkpoints stage files in a directory.
pub(crate) fn has_staged(db: &Tx, dir: DirId) -> Result<bool, Error> {
    has(db, dir, |name| CheckpointId::of_staging_name(name).is_some())
}

fn has(db: &Tx, dir: DirId, is_one: impl Fn(&str) -> bool) -> Result<bool, Error> {
    let mut rows = db.prepare("SELECT name FROM entries WHERE parent = ?1")?;
    let mut rows = rows.query(params![dir.0])?;
    while let Some(row) = rows.next()? {
        if is_one(&row.get::<String>(0)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether a directory has entries, hidden ones included.
pub(crate) fn has_children(db: &Tx, dir: DirId) -> Result<bool, Error> {
    db.prepare("SELECT 1 FROM entries WHERE parent = ?1 LIMIT 1")?.exists(params![dir.0])
}
