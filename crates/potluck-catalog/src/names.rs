//! Changes to names: makes, moves and removes entries.

pub(crate) mod copies;
pub(crate) mod dir_id;
pub(crate) mod dir_policies;
pub(crate) mod dir_times;
pub(crate) mod entries;
pub(crate) mod entry_attributes;
pub(crate) mod links;
pub(crate) mod lists;
pub(crate) mod walk;

use crate::chunks::ReferenceCounts;
use crate::error::Error;
use crate::history::{
    bygone, snapshots, trash, {self, LeavingEntry},
};
use crate::log::{changes, records::Record};
use crate::members::quotas;
use crate::names::{
    dir_times::touched,
    entries::{DirId, EntryPlace, split},
    walk::{Walk, What},
};
use crate::pool_records::spaces::{self, Sums};
use crate::sql::Tx;
use crate::versions;
use crate::versions::visible;
use crate::when::When;
use potluck_core::attributes::{AttributesToSet, EntryAttributes, FileTime};
use potluck_core::ids::VersionId;
use potluck_core::kept_place::SNAPSHOT_DIR;
use potluck_core::path::{MAX_PATH, PoolPath};
use potluck_wire::control::{Condition, OnlyIf, Removed};

/// The most entries of a tree that are counted when it is removed: less than a tenth of a second, so that a removal
/// waits for no turn behind sums of other trees.
const COUNTED: usize = 10_000;

/// Makes a directory. With `parents`, missing directories above it are made too, and a directory that is there already
/// is no error, whatever its attributes.
pub(crate) fn make_dir(
    db: &Tx,
    path: &PoolPath,
    parents: bool,
    attributes: EntryAttributes,
) -> Result<(), Error> {
    if !parents || path.space().is_empty() {
        let (above, name) = split(path)?;
        if entries::lookup(db, entries::existing_dir(db, &above)?, name)?.is_some() {
            return Err(Error::Exists(path.clone()));
        }
    }
    admit_dirs(db, path, entries::missing_dirs(db, path)?)?;
    visible::make_dirs(db, path, attributes, attributes.mtime).map(drop)
}

/// Refuses to add so many directories to the space of a path where a quota leaves no room for them.
pub(crate) fn admit_dirs(db: &Tx, path: &PoolPath, dirs: u64) -> Result<(), Error> {
    quotas::admit(db, spaces::named(db, path.space())?.id, Sums::of_dirs(dirs))
}

/// Sets attributes of a file, which has to be of `version` if one is given, or of a directory, a link or a space. The
/// permissions of a link stay. Neither version nor content changes, and a client that opened the file before keeps the
/// attributes that it was told then.
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
            match new.changes(before) {
                true => entry_attributes::put(db, path, &found.place, before.with(new)),
                false => Ok(()),
            }
        }
        EntryPlace::Dir(_) if version.is_some() => Err(Error::IsADirectory(path.clone())),
        EntryPlace::Link(target) if version.is_some() => {
            Err(Error::IsALink { path: path.clone(), target })
        }
        EntryPlace::Dir(_) | EntryPlace::Link(_) => {
            let is_link = matches!(found.place, EntryPlace::Link(_));
            // The permissions of a link have no meaning.
            let permissions = new.permissions.filter(|_| !is_link);
            let new = AttributesToSet { permissions, ..new };
            match new.changes(found.attributes) {
                true => entry_attributes::put(db, path, &found.place, found.attributes.with(new)),
                false => Ok(()),
            }
        }
    }
}

/// Refuses the move of a directory that would give something below it a path longer than any may be. If the directory's
/// path gets longer, this reads the whole tree, so it is called before the move and outside of its transaction. The
/// path of an entry that is put there in between may still become too long; the log leaves such an entry out and says
/// so.
pub(crate) fn check_lengths(db: &Tx, from: &PoolPath, to: &PoolPath) -> Result<(), Error> {
    let (before, after) = (from.to_string().len(), to.to_string().len());
    if after <= before {
        return Ok(());
    }
    let EntryPlace::Dir(dir) = entries::existing(db, from)?.place else { return Ok(()) };
    let bytes = after + entries::longest_below(db, dir)?;
    if bytes > MAX_PATH { Err(Error::TooLong { to: to.clone(), bytes }) } else { Ok(()) }
}

/// Moves an entry inside its space. Unless `no_replace` is set, a file or link replaces a file or link, and a directory
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
    use EntryPlace::{Dir, File, Link};
    let moved_dir = match moved.place {
        Dir(dir) => Some(dir),
        File(_) | Link(_) => None,
    };
    let mut there = target.map(|target| target.place);
    match (moved.place, &there) {
        (_, None) => {}
        (File(_) | Link(_), Some(File(_) | Link(_))) => {}
        (Dir(_), Some(Dir(dir))) => check_empty(db, *dir, to, Error::NotEmpty)?,
        (File(_) | Link(_), Some(Dir(_))) => {
            return Err(Error::IsADirectory(to.clone()));
        }
        (Dir(_), Some(File(_) | Link(_))) => {
            return Err(Error::NotADirectory(to.clone()));
        }
    }
    if no_replace && there.is_some() {
        return Err(Error::Exists(to.clone()));
    }
    let was_pinned = there.is_some() && entries::is_pinned(db, to_dir, to_name)?;
    if let Some(place) = &there {
        // A directory that is replaced is empty to people. It counts as removed, and not as an older version of what
        // takes its place.
        let removed = matches!(place, Dir(_));
        let leaving = LeavingEntry { dir: to_dir, path: to, place, removed };
        match history::keep(db, &leaving, history::retention(db, to, when)?, when)? {
            true => there = None,
            false => entries::delete(db, to_dir, to_name)?,
        }
    }
    bygone::note(db, (from_dir, from), when)?;
    entries::rename(db, (from_dir, from_name), (to_dir, to_name))?;
    changes::tell(db, Record::Moved { from: from.clone(), to: to.clone() })?;
    entry_attributes::is_renamed(db, to, when)?;
    if was_pinned {
        history::stay_pinned(db, to)?;
    }
    if let Some(dir) = moved_dir {
        snapshots::moved(db, dir, from_dir, to_dir)?;
    }
    history::forget_name(db, (from_dir, from), false, when)?;
    let now = FileTime::of_ms(when.wall_ms);
    touched(db, &from_above, from_dir, now)?;
    touched(db, &to_above, to_dir, now)?;
    there.map_or(Ok(()), |place| drop_place(db, to, &place, when))
}

/// Refuses a change meant for empty directories, if people see something in the directory, checkpoints stage files
/// there, or it has snapshots.
fn check_empty(
    db: &Tx,
    dir: DirId,
    path: &PoolPath,
    not_empty: fn(PoolPath) -> Error,
) -> Result<(), Error> {
    if entries::has_visible(db, dir)? {
        return Err(not_empty(path.clone()));
    }
    if entries::has_staged(db, dir)? {
        return Err(Error::HasCheckpoint(path.clone()));
    }
    if entries::lookup(db, dir, SNAPSHOT_DIR)?.is_some() {
        return Err(Error::HasSnapshots(path.clone()));
    }
    Ok(())
}

/// Refuses a removal if something else is at the path than the caller meant.
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

/// Refuses a change if `version` is given and the file at the path is not of it.
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

/// Removes a file, a link, or a directory: an empty one, or with `recursive` any. An entry that its policy or a
/// snapshot keeps is moved to where it is kept. Any other tree is unlinked at once and taken apart in the background;
/// until then its files are in the sums of its space, as their chunks are on donors.
pub(crate) fn remove(db: &Tx, path: &PoolPath, recursive: bool, when: When) -> Result<(), Error> {
    let (above, name) = split(path)?;
    let place = entries::existing(db, path)?.place;
    let parent = entries::existing_dir(db, &above)?;
    if let EntryPlace::Dir(dir) = place
        && !recursive
    {
        check_empty(db, dir, path, Error::NotRecursive)?;
    }
    let leaving = LeavingEntry { dir: parent, path, place: &place, removed: true };
    let retention = history::retention(db, path, when)?;
    let now = FileTime::of_ms(when.wall_ms);
    let kept = history::keep(db, &leaving, retention, when)?;
    // What was removed under this name before stays where there is a trash, also if this entry is not kept because
    // nothing is in it.
    let is_final = retention.removed.is_none();
    if kept && is_final {
        // Only a snapshot keeps the entry, so nothing else is kept under its name either.
        history::forget_name(db, (parent, path), true, when)?;
    }
    if kept {
        return touched(db, &above, parent, now);
    }
    changes::tell(db, Record::Removed { path: path.clone() })?;
    entries::delete(db, parent, name)?;
    history::forget_name(db, (parent, path), is_final, when)?;
    touched(db, &above, parent, now)?;
    drop_place(db, path, &place, when)
}

/// Ends what no path leads to any more, and takes a file or a link from the sums of its space. A directory in which
/// anything is left, or a snapshot shows anything, is taken apart in the background.
fn drop_place(db: &Tx, path: &PoolPath, place: &EntryPlace, when: When) -> Result<(), Error> {
    let space = spaces::named(db, path.space())?.id;
    let mut sums = Sums::default();
    match place {
        EntryPlace::File(version) => {
            let mut counts = ReferenceCounts::new(db, when.pool_ms);
            let deleted = versions::delete(db, *version, &mut counts)?;
            sums.deleted(deleted.data, deleted.in_catalog);
            counts.close()?;
        }
        EntryPlace::Link(_) => sums.sub(0),
        EntryPlace::Dir(dir) if history::is_void(db, *dir)? => {
            entries::dir_ended(db, space, *dir)?;
        }
        EntryPlace::Dir(dir) => trash::throw(db, *dir, space)?,
    }
    spaces::add_sums(db, space, sums)
}

/// Counts the files and links that [`remove`] would remove, looking at [`COUNTED`] entries at most.
pub(crate) fn count(db: &Tx, path: &PoolPath) -> Result<Removed, Error> {
    let mut removed = Removed::default();
    let mut add = |bytes: u64| {
        removed.files += 1;
        removed.bytes += bytes;
    };
    match entries::existing(db, path)?.place {
        EntryPlace::File(version) => add(versions::data_of(db, version)?),
        EntryPlace::Link(_) => add(0),
        EntryPlace::Dir(dir) => {
            let (mut walk, mut left) = (Walk::new(db, dir, true, None)?.without_kept(), COUNTED);
            while let Some(item) = walk.next_or_broken()? {
                if left == 0 {
                    removed.more = true;
                    break;
                }
                left -= 1;
                match item.map(|item| item.what) {
                    Ok(What::File(version)) => add(version.data()),
                    // An entry whose record is damaged is removed all the same.
                    Ok(What::Link(_)) | Err(_) => add(0),
                    Ok(What::Dir(_)) => {}
                }
            }
        }
    }
    Ok(removed)
}
