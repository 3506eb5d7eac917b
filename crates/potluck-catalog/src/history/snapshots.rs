//! Snapshots: a directory as it was at a moment, readable below it.
//!
//! A snapshot is a number and the directory that it shows: nothing is copied. It is an entry in `.potluck/snapshots` of
//! its directory, which leads to what names led to at that moment ([`crate::history::bygone`]).

use crate::checkpoints::checkpoint_rows;
use crate::error::Error;
use crate::history;
use crate::history::{
    bygone,
    snapshot_rows::{self, SnapshotRow},
    taken_snapshot::TakenSnapshot,
};
use crate::log::{changes, records::Record};
use crate::names;
use crate::names::entries::{self, DirId, EntryPlace, FoundEntry};
use crate::pool_records::{meta::Counter, spaces};
use crate::sql::Tx;
use crate::when::When;
use potluck_core::attributes::EntryAttributes;
use potluck_core::checkpoint::StagedPlace;
use potluck_core::ids::{SnapshotId, SpaceId};
use potluck_core::kept_place::{SNAPSHOT_DIR, SNAPSHOTS, SnapshotPlace, is_read_only};
use potluck_core::path::PoolPath;

/// The most snapshots that one directory may have: a change in a directory looks at all that cover it.
const MOST: u64 = 256;

fn place(dir: &PoolPath, name: &str) -> Result<(SnapshotPlace, PoolPath), Error> {
    let place = SnapshotPlace { dir: dir.clone(), name: name.into() };
    let at = place.path().map_err(|why| Error::BadSnapshotName(why.to_string()))?;
    Ok((place, at))
}

/// Takes a snapshot of a directory.
pub(crate) fn take(
    db: &Tx,
    dir: &PoolPath,
    name: &str,
    when: When,
) -> Result<TakenSnapshot, Error> {
    checkpoint_rows::check_not_kept(dir)?;
    if dir.space().is_empty() {
        return Err(Error::OutsideSpaces(dir.clone()));
    }
    if StagedPlace::of(dir).is_some() {
        return Err(Error::StagingPlace(dir.clone()));
    }
    let (_, at) = place(dir, name)?;
    let of = entries::existing_dir(db, dir)?;
    if snapshot_rows::count_of(db, of)? >= MOST {
        return Err(Error::TooManySnapshots { dir: dir.clone(), most: MOST });
    }
    if entries::resolve(db, &at)?.is_some() {
        return Err(Error::Exists(at));
    }
    names::admit_dirs(db, dir, entries::missing_dirs(db, &at)?)?;
    let number = SnapshotId(Counter::Snapshot.take(db, 1)? as u64);
    let taken = TakenSnapshot { at, number, made_wall_ms: when.wall_ms, by: when.by };
    put(db, &taken)?;
    changes::tell(db, Record::Snapshot(taken.clone()))?;
    Ok(taken)
}

/// Makes the row and the entry of a snapshot that is taken, or that a log tells of.
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

/// Removes a snapshot; what only it kept is let go in the background.
pub(crate) fn remove(db: &Tx, dir: &PoolPath, name: &str) -> Result<(), Error> {
    let (_, at) = place(dir, name)?;
    let none = || Error::NoSnapshot(at.clone());
    let above = at.parent().ok_or_else(none)?;
    let holder = match entries::resolve(db, &above)?.map(|found| found.place) {
        Some(EntryPlace::Dir(holder)) => holder,
        _ => return Err(none()),
    };
    let found = entries::lookup(db, holder, name)?.map(|found| found.place);
    let Some(number) = found.and_then(|place| place.snapshot()) else { return Err(none()) };
    let space = spaces::named(db, dir.space())?.id;
    end(db, space, (holder, name), number)?;
    changes::tell(db, Record::Removed { path: at.clone() })?;
    // The directories that hold snapshots are removed with the last of them.
    let mut below = (holder, above);
    for name in [SNAPSHOTS, SNAPSHOT_DIR] {
        let Some(parent) = below.1.parent() else { break };
        if entries::has_children(db, below.0)? {
            break;
        }
        let parent_dir = entries::existing_dir(db, &parent)?;
        entries::delete(db, parent_dir, name)?;
        entries::dir_ended(db, space, below.0)?;
        changes::tell(db, Record::Removed { path: below.1 })?;
        below = (parent_dir, parent);
    }
    Ok(())
}

/// Ends the snapshot at a path, as a log tells; does nothing if none is there.
pub(crate) fn forget_at(db: &Tx, path: &PoolPath) -> Result<(), Error> {
    let (Some(_), Some(above)) = (SnapshotPlace::of(path), path.parent()) else { return Ok(()) };
    let holder = match entries::resolve(db, &above)?.map(|found| found.place) {
        Some(EntryPlace::Dir(holder)) => holder,
        _ => return Ok(()),
    };
    let name = path.file_name().unwrap_or_default();
    let found = entries::lookup(db, holder, name)?.map(|found| found.place);
    let Some(number) = found.and_then(|place| place.snapshot()) else { return Ok(()) };
    end(db, spaces::named(db, path.space())?.id, (holder, name), number)
}

/// Ends a snapshot and removes its entry.
fn end(
    db: &Tx,
    space: SpaceId,
    (holder, name): (DirId, &str),
    number: SnapshotId,
) -> Result<(), Error> {
    snapshot_rows::end(db, number)?;
    entries::delete(db, holder, name)?;
    entries::dir_ended(db, space, DirId::of_snapshot(number))
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

/// Lets go, in one step, some of what a snapshot that has ended kept, and returns whether there may be more to do.
pub(crate) fn release(db: &Tx, limit: usize, when: When) -> Result<bool, Error> {
    let Some(ended) = snapshot_rows::any_ended(db)? else { return Ok(false) };
    let released = bygone::release(db, ended, limit)?;
    for place in &released.not_shown {
        history::not_shown(db, place, when)?;
    }
    if released.all {
        snapshot_rows::forget(db, ended, limit)?;
    }
    Ok(true)
}
