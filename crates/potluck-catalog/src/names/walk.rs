//! Walks a tree in order of names, parents before children, page by page.

use crate::error::Error;
use crate::members::grants::SeenSpaces;
use crate::names::entries::{
    self, ATTRIBUTES, DirId, ENTRY_COLUMNS, EntryPlace, FoundEntry, PLACE,
};
use crate::sql::{Tx, params};
use crate::versions::{self, COLUMNS};
use potluck_core::attributes::EntryAttributes;
use potluck_core::checkpoint::CheckpointId;
use potluck_core::ids::SnapshotId;
use potluck_core::kept_place::is_reserved;
use potluck_core::link_target::LinkTarget;
use potluck_pool::redundancy::Version;
use std::collections::VecDeque;

/// The most entries that are fetched at once from one directory.
const FETCH: usize = 256;

/// An entry that a walk met.
#[derive(Debug, Clone)]
pub struct WalkedEntry {
    /// The path of the entry, relative to where the walk began.
    pub path: String,
    /// The attributes of the entry.
    pub attributes: EntryAttributes,
    /// The directory, the file's version or the target of the link.
    pub what: What,
    /// The first snapshot that shows the entry; for an entry met in a snapshot, that snapshot itself.
    pub since: SnapshotId,
    /// True if the entry is never purged from a series; false for an entry met in a snapshot.
    pub pinned: bool,
    /// The pool's time, in milliseconds, at which the entry was used last as a step of a series; 0 if that is not
    /// known, and for an entry met in a snapshot.
    pub used_ms: u64,
}

/// The kind of an entry.
#[derive(Debug, Clone)]
pub enum What {
    /// The entry is a directory.
    Dir(DirId),
    /// The entry is a file, with its current version.
    File(Box<Version>),
    /// The entry is a symbolic link.
    Link(LinkTarget),
}

/// An entry whose record cannot be read.
#[derive(Debug, Clone)]
pub struct BrokenEntry {
    /// The path of the entry, relative to where the walk began.
    pub path: String,
    /// The damage of the record, in words.
    pub why: String,
}

/// A walk in progress. The path of the last item is the cursor from which another walk goes on,
/// also when the tree has changed meanwhile.
pub struct Walk<'db> {
    db: &'db Tx,
    recursive: bool,
    levels: Vec<Level>,
    /// The spaces that are shown when the walk is of the root of the pool; others are passed over.
    seen: SeenSpaces,
    /// True if directories in which checkpoints stage their files are passed over.
    hides_staged: bool,
    /// True if directories in which old versions are kept and snapshots are read are passed over.
    hides_kept: bool,
}

struct Level {
    dir: DirId,
    /// The path of the directory with a trailing slash, or nothing for the root of the walk.
    prefix: String,
    /// The last name that was fetched.
    after: String,
    fetched: VecDeque<Result<WalkedEntry, BrokenEntry>>,
    exhausted: bool,
}

impl Level {
    fn new(dir: DirId, prefix: String, after: &str) -> Self {
        let fetched = VecDeque::new();
        Self { dir, prefix, after: after.into(), fetched, exhausted: false }
    }
}

impl<'db> Walk<'db> {
    /// Walks the directory `dir`, going on after `cursor`.
    pub(crate) fn new(
        db: &'db Tx,
        dir: DirId,
        recursive: bool,
        cursor: Option<&str>,
    ) -> Result<Self, Error> {
        Self::of_seen(db, dir, recursive, cursor, &SeenSpaces::ALL)
    }

    /// Walks the directory `dir`, going on after `cursor`; of the root of the pool only the spaces that are `seen`.
    pub(crate) fn of_seen(
        db: &'db Tx,
        dir: DirId,
        recursive: bool,
        cursor: Option<&str>,
        seen: &SeenSpaces,
    ) -> Result<Self, Error> {
        let seen = if dir == DirId::ROOT { seen.clone() } else { SeenSpaces::ALL };
        let mut walk = Self {
            db,
            recursive,
            levels: Vec::new(),
            seen,
            hides_staged: false,
            hides_kept: false,
        };
        let mut next = Some((dir, String::new()));
        for name in cursor.into_iter().flat_map(|cursor| cursor.split('/')) {
            let Some((dir, prefix)) = next else { break };
            let below = entries::lookup(db, dir, name)?;
            let path = format!("{prefix}{name}/");
            walk.levels.push(Level::new(dir, prefix, name));
            next = match below {
                // A cursor must not lead into a directory that the walk itself would pass over.
                Some(FoundEntry { place: EntryPlace::Dir(below), .. })
                    if recursive && walk.seen.has_below_root(&path) =>
                {
                    Some((below, path))
                }
                _ => None,
            };
        }
        if let Some((dir, prefix)) = next {
            walk.levels.push(Level::new(dir, prefix, ""));
        }
        Ok(walk)
    }

    /// Passes over directories in which checkpoints stage their files. That is for trees that are shown to people, and
    /// not for the work that keeps files safe. A walk that begins in such a directory shows what is in it.
    pub fn without_staged(self) -> Self {
        Self { hides_staged: true, ..self }
    }

    /// Passes over directories in which old versions are kept and snapshots are read.
    pub fn without_kept(self) -> Self {
        Self { hides_kept: true, ..self }
    }

    /// Passes over all that is hidden from people.
    pub fn visible(self) -> Self {
        self.without_staged().without_kept()
    }

    fn hides(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        (self.hides_staged && CheckpointId::of_staging_name(name).is_some())
            || (self.hides_kept && is_reserved(name))
    }

    /// Passes over what is left of directories that are `depth` or more levels below the root of the walk.
    pub fn pass_over_below(&mut self, depth: usize) {
        self.levels.truncate(depth);
    }

    /// Returns the next entry.
    ///
    /// Errors: [`Error::Damaged`] at an entry whose record is damaged.
    pub fn next_item(&mut self) -> Result<Option<WalkedEntry>, Error> {
        match self.next_or_broken()? {
            Some(Err(broken)) => Err(Error::Damaged(broken.why)),
            Some(Ok(item)) => Ok(Some(item)),
            None => Ok(None),
        }
    }

    /// Returns the next entry, or the damage of its record, after which the walk can go on.
    pub fn next_or_broken(&mut self) -> Result<Option<Result<WalkedEntry, BrokenEntry>>, Error> {
        loop {
            let is_top = self.levels.len() == 1;
            let Some(level) = self.levels.last_mut() else { return Ok(None) };
            if level.fetched.is_empty() && !level.exhausted {
                fetch(self.db, level)?;
            }
            match level.fetched.pop_front() {
                None => {
                    self.levels.pop();
                }
                Some(Ok(item))
                    if is_top && !self.seen.has_below_root(&item.path)
                        || self.hides(&item.path) => {}
                Some(item) => {
                    if let Ok(item) = &item
                        && let What::Dir(dir) = item.what
                        && self.recursive
                        && dir.snapshot().is_none()
                    {
                        self.levels.push(Level::new(dir, format!("{}/", item.path), ""));
                    }
                    return Ok(Some(item));
                }
            }
        }
    }
}

fn fetch(db: &Tx, level: &mut Level) -> Result<(), Error> {
    let Some(dir) = entries::shown(db, level.dir)? else {
        level.exhausted = true;
        return Ok(());
    };
    let by = dir.shown_by();
    let order = format!("ORDER BY e.name LIMIT {FETCH}");
    let mut rows = match by {
        None => db.prepare(&format!(
            "SELECT e.name, {PLACE}, {ATTRIBUTES}, {COLUMNS}, e.since, e.pinned, e.used_ms
             FROM entries e LEFT JOIN versions v ON v.id = e.version
             WHERE e.parent = ?1 AND e.name > ?2 {order}"
        ))?,
        Some(_) => db.prepare(&format!(
            "SELECT e.*, {COLUMNS}, ?2, 0, 0 FROM ({}) e LEFT JOIN versions v ON v.id = e.version {order}",
            entries::as_shown(&format!(" AND e.name > ?3 {order}"))
        ))?,
    };
    let mut rows = match by {
        None => rows.query(params![dir.0, level.after])?,
        Some(snapshot) => rows.query(params![dir.0, snapshot.0 as i64, level.after])?,
    };
    let mut fetched = 0;
    while let Some(row) = rows.next()? {
        fetched += 1;
        let name: String = row.get(0)?;
        if by.is_some() && is_reserved(&name) {
            level.after = name;
            continue;
        }
        let found = FoundEntry::of(&row, 1)?;
        let since = SnapshotId(row.get::<i64>(1 + ENTRY_COLUMNS + versions::COLUMN_COUNT)? as u64);
        let pinned = row.get(2 + ENTRY_COLUMNS + versions::COLUMN_COUNT)?;
        let used_ms = row.get::<i64>(3 + ENTRY_COLUMNS + versions::COLUMN_COUNT)? as u64;
        let path = format!("{}{name}", level.prefix);
        level.after = name;
        let what = match found.place.shown_as(dir) {
            EntryPlace::Dir(dir) => What::Dir(dir),
            EntryPlace::Link(target) => What::Link(target),
            EntryPlace::File(version) => match versions::of_row(&row, 1 + ENTRY_COLUMNS) {
                Ok(Some(version)) => What::File(Box::new(version)),
                unreadable => {
                    let why = match unreadable {
                        Err(why) => format!("version {version}: {why}"),
                        Ok(_) => format!("version {version} is missing"),
                    };
                    level.fetched.push_back(Err(BrokenEntry { path, why }));
                    continue;
                }
            },
        };
        let attributes = match &what {
            What::Dir(_) | What::Link(_) => found.attributes,
            What::File(version) => version.attributes,
        };
        let walked = WalkedEntry { path, attributes, what, since, pinned, used_ms };
        level.fetched.push_back(Ok(walked));
    }
    level.exhausted = fetched < FETCH;
    Ok(())
}
