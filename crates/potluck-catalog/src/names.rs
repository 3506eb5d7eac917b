//! Changes to names: making, moving and removing entries.

use super::bygone;
use super::changes::{self, ChangeOp};
use super::chunks::ReferenceCounts;
use super::dir_policies;
use super::dir_times::touched;
use super::entries::{self, DirId, EntryPlace, split};
use super::error::Error;
use super::history::{self, LeavingEntry};
use super::snapshots;
use super::spaces::{self, Sums};
use super::trash;
use super::versions;
use super::visible;
use super::walk::{Walk, What};
use super::when::When;
use crate::sql::Tx;
use potluck_core::attributes::{AttributesToSet, EntryAttributes, FileTime};
use potluck_core::ids::VersionId;
use potluck_core::kept_place::SNAPSHOT_DIR;
use potluck_core::path::{MAX_PATH, PoolPath};
use potluck_wire::control::{Condition, OnlyIf, Removed};

/// Entries of a tree that are counted when it is removed: less than a tenth of a second, so that a removal waits
/// for no turn behind sums of other trees.
const COUNTED: usize = 10_000;

/// Makes a directory; with `parents` also those above it, and one that exists is as good, whatever its attributes.
pub(crate) fn make_dir(
    db: &Tx,
    path: &PoolPath,
    parents: bool,
    attributes: EntryAttributes,
) -> Result<(), Error> {
    if parents && !path.space().is_empty() {
        return visible::make_dirs(db, path, attributes, attributes.mtime).map(drop);
    }
    let (above, name) = split(path)?;
    let parent = entries::existing_dir(db, &above)?;
    if entries::lookup(db, parent, name)?.is_some() {
        return Err(Error::Exists(path.clone()));
    }
    entries::make_dir(db, parent, name, attributes)?;
    changes::append(db, &ChangeOp::Dir(path.clone(), attributes))?;
    touched(db, &above, parent, attributes.mtime)
}

/// Sets attributes of a file, which has to be of `version` if one is given, of a directory or of a space. Neither
/// version nor content changes, and what opened the file before goes on with what it was told then.
pub(crate) fn set_attributes(
    db: &Tx,
    path: &PoolPath,
    version: Option<VersionId>,
    new: AttributesToSet,
) -> Result<(), Error> {
    if path.space().is_empty() {
        return Err(Error::OutsideSpaces(path.clone()));
    }
    let found = entries::existing(db, path)?;
    match found.place {
        EntryPlace::File(id) => {
            if let Some(expected) = version {
                visible::check_condition(db, path, Condition::IfVersion(expected), Some(id))?;
            }
            let before = versions::get(db, id)?.attributes;
            let attributes = before.with(new);
            if attributes == before {
                return Ok(());
            }
            versions::set_attributes(db, id, attributes)?;
            changes::append(db, &ChangeOp::VersionAttributes(id))
        }
        EntryPlace::Dir(_) if version.is_some() => Err(Error::IsADirectory(path.clone())),
        EntryPlace::Link(target) if version.is_some() => {
            Err(Error::IsALink { path: path.clone(), target })
        }
        EntryPlace::Dir(_) | EntryPlace::Link(_) => {
            let is_link = matches!(found.place, EntryPlace::Link(_));
            // Nothing asks for those of a link.
            let permissions = new.permissions.filter(|_| !is_link);
            let attributes = found.attributes.with(AttributesToSet { permissions, ..new });
            if attributes == found.attributes {
                return Ok(());
            }
            let (parent, name) = match split(path) {
                Ok((above, name)) => (entries::existing_dir(db, &above)?, name),
                Err(_) => (DirId::ROOT, path.space()),
            };
            entries::set_attributes(db, parent, name, attributes)?;
            changes::append(db, &ChangeOp::PathAttributes(path.clone(), attributes))
        }
    }
}

/// Refuses the move of a directory that would give something below it a path longer than any may be.
/// It reads the whole tree where its path gets longer, so it is asked before the move and outside of
/// its transaction. What somebody puts there in between may still become too long; the log leaves
/// that out and says so.
pub(crate) fn check_lengths(db: &Tx, from: &PoolPath, to: &PoolPath) -> Result<(), Error> {
    let (before, after) = (from.to_string().len(), to.to_string().len());
    if after <= before {
        return Ok(());
    }
    let EntryPlace::Dir(dir) = entries::existing(db, from)?.place else { return Ok(()) };
    let bytes = after + entries::longest_below(db, dir)?;
    if bytes > MAX_PATH { Err(Error::TooLong { to: to.clone(), bytes }) } else { Ok(()) }
}

/// Moves an entry inside its space. A file replaces a file unless `no_replace`; a directory
/// replaces an empty directory, as rename(2) does.
pub(crate) fn move_entry(
    db: &Tx,
    from: &PoolPath,
    to: &PoolPath,
    no_replace: bool,
    when: When,
) -> Result<(), Error> {
    let (from_above, from_name) = split(from)?;
    let (to_above, to_name) = split(to)?;
    if from.space() != to.space() {
        return Err(Error::AcrossSpaces { from: from.clone(), to: to.clone() });
    }
    let moved = entries::existing(db, from)?;
    if from == to {
        return Ok(());
    }
    if to.is_inside(from) {
        return Err(Error::IntoItself { from: from.clone(), to: to.clone() });
    }
    let from_dir = entries::existing_dir(db, &from_above)?;
    let to_dir = entries::existing_dir(db, &to_above)?;
    let target = entries::lookup(db, to_dir, to_name)?;
    let (mut replaced, mut emptied) = (None, None);
    let is_there = target.is_some();
    use EntryPlace::{Dir, File, Link};
    let moved_dir = match moved.place {
        Dir(dir) => Some(dir),
        File(_) | Link(_) => None,
    };
    match (moved.place, target.map(|target| target.place)) {
        (_, None) => {}
        (File(_) | Link(_), Some(File(_) | Link(_))) if no_replace => {
            return Err(Error::Exists(to.clone()));
        }
        (File(_) | Link(_), Some(File(version))) => replaced = Some(Some(version)),
        (File(_) | Link(_), Some(Link(_))) => replaced = Some(None),
        (Dir(_), Some(Dir(dir))) => {
            if entries::has_visible(db, dir)? {
                return Err(Error::NotEmpty(to.clone()));
            }
            if entries::has_staged(db, dir)? {
                return Err(Error::HasCheckpoint(to.clone()));
            }
            if entries::lookup(db, dir, SNAPSHOT_DIR)?.is_some() {
                return Err(Error::HasSnapshots(to.clone()));
            }
            emptied = Some(dir);
        }
        (File(_) | Link(_), Some(Dir(_))) => {
            return Err(Error::IsADirectory(to.clone()));
        }
        (Dir(_), Some(File(_) | Link(_))) => {
            return Err(Error::NotADirectory(to.clone()));
        }
    }
    if let Some(Some(version)) = replaced {
        let place = &File(version);
        let leaving = LeavingEntry { dir: to_dir, path: to, place, removed: false };
        if history::keep(db, &leaving, history::retention(db, to, when)?, when)? {
            replaced = None;
        }
    } else if is_there {
        bygone::note(db, (to_dir, to), when)?;
    }
    bygone::note(db, (from_dir, from), when)?;
    if is_there {
        entries::delete(db, to_dir, to_name)?;
    }
    entries::rename(db, (from_dir, from_name), (to_dir, to_name))?;
    changes::append(db, &ChangeOp::Moved { from: from.clone(), to: to.clone() })?;
    if let Some(dir) = moved_dir {
        snapshots::moved(db, dir, from_dir, to_dir)?;
    }
    if let Some(dir) = emptied {
        throw_emptied(db, dir, to)?;
    }
    history::forget_name(db, (from_dir, from), false, when)?;
    let now = FileTime::of_ms(when.wall_ms);
    touched(db, &from_above, from_dir, now)?;
    touched(db, &to_above, to_dir, now)?;
    match replaced {
        Some(version) => drop_file(db, to, version, when),
        None => Ok(()),
    }
}

/// Ends a directory that no path leads to any more.
fn throw_emptied(db: &Tx, dir: DirId, path: &PoolPath) -> Result<(), Error> {
    match entries::has_children(db, dir)? {
        true => trash::throw(db, dir, spaces::named(db, path.space())?.id),
        false => dir_policies::forget(db, dir),
    }
}

/// Refuses to remove something else than was meant.
pub(crate) fn check_meant(db: &Tx, path: &PoolPath, only_if: OnlyIf) -> Result<(), Error> {
    let is_dir = || -> Result<bool, Error> {
        Ok(matches!(entries::existing(db, path)?.place, EntryPlace::Dir(_)))
    };
    match only_if {
        OnlyIf::Directory if !is_dir()? => Err(Error::NotADirectory(path.clone())),
        OnlyIf::NoDirectory if is_dir()? => Err(Error::IsADirectory(path.clone())),
        OnlyIf::Version(version) => check_version(db, path, Some(version)),
        OnlyIf::Anything | OnlyIf::Directory | OnlyIf::NoDirectory => Ok(()),
    }
}

/// Refuses a change where a file is to be of `version`, and is of another.
pub(crate) fn check_version(
    db: &Tx,
    path: &PoolPath,
    version: Option<VersionId>,
) -> Result<(), Error> {
    let Some(expected) = version else { return Ok(()) };
    let there = entries::resolve(db, path)?.and_then(|found| match found.place {
        EntryPlace::File(version) => Some(version),
        EntryPlace::Dir(_) | EntryPlace::Link(_) => None,
    });
    visible::check_condition(db, path, Condition::IfVersion(expected), there)
}

/// Removes a file, or a directory: an empty one, or with `recursive` any. A tree is unlinked at
/// once and taken apart in the background; until then its files are in the sums of its space, as
/// their chunks are on donors.
pub(crate) fn remove(db: &Tx, path: &PoolPath, recursive: bool, when: When) -> Result<(), Error> {
    let (above, name) = split(path)?;
    let place = entries::existing(db, path)?.place;
    let parent = entries::existing_dir(db, &above)?;
    let mut keeps = true;
    if let EntryPlace::Dir(dir) = place {
        if !recursive && entries::has_visible(db, dir)? {
            return Err(Error::NotRecursive(path.clone()));
        }
        if !recursive && entries::has_staged(db, dir)? {
            return Err(Error::HasCheckpoint(path.clone()));
        }
        if !recursive && entries::lookup(db, dir, SNAPSHOT_DIR)?.is_some() {
            return Err(Error::HasSnapshots(path.clone()));
        }
        keeps = entries::has_children(db, dir)?;
    }
    let leaving = LeavingEntry { dir: parent, path, place: &place, removed: true };
    let retention = history::retention(db, path, when)?;
    let now = FileTime::of_ms(when.wall_ms);
    let kept = match keeps {
        true => history::keep(db, &leaving, retention, when)?,
        false => bygone::note(db, (parent, path), when).map(|()| false)?,
    };
    if kept && retention.removed.is_none() {
        // It is kept for a snapshot alone.
        history::forget_name(db, (parent, path), true, when)?;
    }
    if kept {
        return touched(db, &above, parent, now);
    }
    changes::append(db, &ChangeOp::Removed(path.clone()))?;
    entries::delete(db, parent, name)?;
    history::forget_name(db, (parent, path), true, when)?;
    touched(db, &above, parent, now)?;
    match place {
        EntryPlace::File(version) => drop_file(db, path, Some(version), when),
        EntryPlace::Link(_) => drop_file(db, path, None, when),
        EntryPlace::Dir(dir) => throw_emptied(db, dir, path),
    }
}

/// Ends the version of a file that is gone, and takes the file, or the link without one, from the sums of its space.
fn drop_file(
    db: &Tx,
    path: &PoolPath,
    version: Option<VersionId>,
    when: When,
) -> Result<(), Error> {
    let mut bytes = 0;
    if let Some(version) = version {
        let mut counts = ReferenceCounts::new(db, when.pool_ms);
        bytes = versions::delete(db, version, &mut counts)?.size;
        counts.close()?;
    }
    let mut sums = Sums::default();
    sums.sub(bytes as i64);
    spaces::add_sums(db, spaces::named(db, path.space())?.id, sums)
}

/// Counts the files that [`remove`] would remove, [`COUNTED`] entries at most.
pub(crate) fn count(db: &Tx, path: &PoolPath) -> Result<Removed, Error> {
    let mut removed = Removed::default();
    let mut add = |bytes: u64| {
        removed.files += 1;
        removed.bytes += bytes;
    };
    match entries::existing(db, path)?.place {
        EntryPlace::File(version) => add(versions::get(db, version)?.size),
        EntryPlace::Link(_) => add(0),
        EntryPlace::Dir(dir) => {
            let (mut walk, mut left) = (Walk::new(db, dir, true, None)?.without_kept(), COUNTED);
            while let Some(item) = walk.next_item()? {
                if left == 0 {
                    removed.more = true;
                    break;
                }
                left -= 1;
                match item.what {
                    What::File(version) => add(version.size),
                    What::Link(_) => add(0),
                    What::Dir(_) => {}
                }
            }
        }
    }
    Ok(removed)
}
