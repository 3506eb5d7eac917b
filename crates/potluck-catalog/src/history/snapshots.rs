//! Snapshots: a directory as it was at a moment, readable below it.
//!
//! A snapshot is a number and the directory that it shows: nothing is copied. It is an entry in `.potluck/snapshots` of
//! its directory, which leads to what names led to at that moment ([`crate::history::bygone`]).

use crate::error::Error;
use crate::history::{
    snapshot_rows::{self, SnapshotRow},
    taken_snapshot::TakenSnapshot,
};
use crate::names::entries::{self, DirId, EntryPlace, FoundEntry};
use crate::sql::Tx;
use potluck_core::attributes::EntryAttributes;
use potluck_core::kept_place::{SNAPSHOT_DIR, SNAPSHOTS, SnapshotPlace, is_read_only};
use potluck_core::path::PoolPath;

/// Returns the place of a snapshot, and the path by which it is read.
pub(crate) fn place(dir: &PoolPath, name: &str) -> Result<(SnapshotPlace, PoolPath), Error> {
    let place = SnapshotPlace { dir: dir.clone(), name: name.into() };
    let at = place.path().map_err(|why| Error::BadSnapshotName(why.to_string()))?;
    Ok((place, at))
}

/// Makes the row and the entry of a snapshot.
pub(crate) fn put(db: &Tx, taken: &TakenSnapshot) -> Result<(), Error> {
    let outside = || Error::OutsideSpaces(taken.at.clone());
    let place = SnapshotPlace::of(&taken.at).ok_or_else(outside)?;
    let of = entries::existing_dir(db, &place.dir)?;
    let TakenSnapshot { number, made_wall_ms, by, .. } = *taken;
    snapshot_rows::put(db, &SnapshotRow { number, dir: of, made_wall_ms, by })?;
    let attributes = EntryAttributes::of_dir(made_wall_ms);
    let mut holder = of;
    for name in [SNAPSHOT_DIR, SNAPSHOTS] {
        holder = match entries::lookup(db, holder, name)? {
            Some(FoundEntry { place: EntryPlace::Dir(next), .. }) => next,
            Some(_) => return Err(Error::NotADirectory(taken.at.clone())),
            None => entries::make_dir(db, holder, name, attributes)?,
        };
    }
    entries::add_snapshot(db, holder, &place.name, number, attributes)
}

/// Returns the snapshots of a directory, the oldest first.
pub(crate) fn of_dir(db: &Tx, dir: &PoolPath) -> Result<Vec<TakenSnapshot>, Error> {
    let of = entries::existing_dir(db, dir)?;
    let mut taken = Vec::new();
    for row in snapshot_rows::of(db, of)? {
        let name = entries::name_of(db, row.number)?;
        if let Some((_, at)) = name.and_then(|name| place(dir, &name).ok()) {
            let SnapshotRow { number, made_wall_ms, by, .. } = row;
            taken.push(TakenSnapshot { at, number, made_wall_ms, by });
        }
    }
    Ok(taken)
}

/// Returns a directory at or below a path that has snapshots, if there is one that was not removed. All directories with
/// snapshots are looked at, because most pools have few.
pub(crate) fn any_below(db: &Tx, path: &PoolPath) -> Result<Option<PoolPath>, Error> {
    for dir in snapshot_rows::dirs(db)? {
        let dir = entries::path_of(db, dir)?;
        let found = dir.filter(|dir| dir.is_inside(path) && !is_read_only(dir));
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Returns all snapshots, with their paths.
pub(crate) fn all(db: &Tx) -> Result<Vec<TakenSnapshot>, Error> {
    let mut taken = Vec::new();
    for SnapshotRow { number, made_wall_ms, by, .. } in snapshot_rows::all(db)? {
        if let Some(at) = entries::path_of(db, DirId::of_snapshot(number))? {
            taken.push(TakenSnapshot { at, number, made_wall_ms, by });
        }
    }
    Ok(taken)
}

/// Notes that a directory was moved from one directory to another: snapshots that showed what is in it still do.
pub(crate) fn moved(db: &Tx, dir: DirId, from: DirId, to: DirId) -> Result<(), Error> {
    let covering = snapshot_rows::covering(db, from)?;
    if covering.is_empty() || from == to {
        return Ok(());
    }
    let still = snapshot_rows::covering(db, to)?;
    for number in covering.into_iter().filter(|number| !still.contains(number)) {
        snapshot_rows::cover(db, dir, number)?;
    }
    Ok(())
}
