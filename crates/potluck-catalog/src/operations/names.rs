//! Names: listings, facts, sums, and changes.

pub(crate) mod attributes;
pub(crate) mod copies;
pub(crate) mod directories;
pub(crate) mod links;

use crate::checkpoints::checkpoint_rows;
use crate::kept_replies::{RepeatableCall, RepliesTo};
use crate::log::{apply, records::Record};
use crate::members::grants::SeenSpaces;
use crate::names::{
    dir_policies,
    entries::{self, DirId, EntryPlace, split},
    lists::{self, EntryFacts},
    walk::{Walk, What},
};
use crate::operations::{
    checkpoints::{self, staging},
    commits::visible,
    history::keeping::{self, LeavingEntry},
    names::{
        copies::{Copied, CopyOutcome, CopyRequest},
        directories::touched,
    },
};
use crate::sql::Tx;
use crate::versions;
use crate::when::When;
use crate::{Catalog, Durability, Error};
use potluck_core::attributes::{AttributesToSet, EntryAttributes, FileTime};
use potluck_core::ids::{MemberId, SessionId, VersionId};
use potluck_core::kept_place::SNAPSHOT_DIR;
use potluck_core::path::{MAX_PATH, PoolPath};
use potluck_core::policy::AckLevel;
use potluck_pool::DonorSnapshot;
use potluck_wire::control::{
    Condition, ListedEntry, Listing, NewLink, OnlyIf, Removed, Used, UsedUpTo,
};
use std::collections::BTreeSet;

/// The most entries of a tree that are counted when it is removed: less than a tenth of a second, so that a removal
/// waits for no turn behind sums of other trees.
const COUNTED: usize = 10_000;

impl Catalog {
    /// Returns a page of the entries of a directory after `after`, or with `recursive` of the tree there. At the root
    /// of the pool, only the spaces that are `seen` are listed.
    pub async fn list_directory(
        &self,
        path: PoolPath,
        recursive: bool,
        after: Option<String>,
        seen: SeenSpaces,
    ) -> Result<Listing, Error> {
        self.read(move |db| lists::list(db, &path, recursive, after.as_deref(), &seen)).await
    }

    /// Returns the entries behind names of directories, or for a directory the error why it has none.
    pub async fn look_up(
        &self,
        dirs: Vec<(PoolPath, Vec<String>)>,
    ) -> Result<Vec<Result<Vec<Option<ListedEntry>>, Error>>, Error> {
        self.read(move |db| Ok(lists::look_up(db, &dirs))).await
    }

    /// Returns the entry at a path, the policy that holds there, and the version of a file.
    pub async fn stat(&self, path: PoolPath) -> Result<EntryFacts, Error> {
        self.read(move |db| lists::stat(db, &path)).await
    }

    /// Returns the sums of the part of a tree that follows `after`, of about `most` entries and chunks.
    pub async fn usage(
        &self,
        path: PoolPath,
        after: Option<UsedUpTo>,
        most: u64,
        seen: SeenSpaces,
    ) -> Result<Used, Error> {
        self.read_long(move |db| lists::usage(db, &path, after.as_ref(), most, &seen)).await
    }

    /// Makes a directory with these attributes. With `parents`, missing directories above it are made too, and a
    /// directory that is there already is no error.
    pub async fn make_directory(
        &self,
        path: PoolPath,
        parents: bool,
        attributes: EntryAttributes,
    ) -> Result<(), Error> {
        let make = move |db: &_| {
            staging::check_writable(db, &path, None)?;
            directories::make_dir(db, &path, parents, attributes)
        };
        self.write(Durability::Disk, make).await
    }

    /// Makes symbolic links, with [`Condition::Always`] also in the place of others. Returns those that were refused,
    /// with the reasons.
    pub async fn make_links(
        &self,
        links: Vec<NewLink>,
        parents: bool,
        condition: Condition,
        when: When,
    ) -> Result<Vec<(PoolPath, Error)>, Error> {
        let make = move |db: &_| links::make_all(db, &links, parents, condition, when);
        self.write(Durability::Disk, make).await
    }

    /// Sets attributes of a file, which has to be of `version` if one is given, or of a directory, a link or a space.
    pub async fn set_attributes(
        &self,
        path: PoolPath,
        version: Option<VersionId>,
        new: AttributesToSet,
    ) -> Result<(), Error> {
        let set = move |db: &_| {
            checkpoint_rows::check_not_kept(&path)?;
            attributes::set_attributes(db, &path, version, new)
        };
        self.write(Durability::Disk, set).await
    }

    /// Moves a file, a link or a directory to another path in its space. If `replaces` is given, the file there must be
    /// of that version; with `no_replace`, nothing may be there.
    pub async fn rename(
        &self,
        from: PoolPath,
        to: PoolPath,
        no_replace: bool,
        replaces: Option<VersionId>,
        when: When,
    ) -> Result<(), Error> {
        let (source, target) = (from.clone(), to.clone());
        let check = move |db: &_| {
            check_lengths(db, &source, &target)?;
            // An empty directory at the target is replaced, and may be kept with what was kept in it.
            match keeping::check_lengths(db, &target, when) {
                Err(why @ Error::TooLongToKeep(_)) => Err(why),
                _ => Ok(()), // the move itself tells what else is wrong
            }
        };
        self.read(check).await?;
        let durability = self.durability(when, [&from, &to]).await?;
        let rename = move |db: &_| {
            staging::check_removable(db, &from)?;
            staging::check_removable(db, &to)?;
            check_version(db, &to, replaces)?;
            move_entry(db, &from, &to, no_replace, when)
        };
        self.write(durability, rename).await
    }

    /// Removes a file, a link or a directory, with `recursive` also one that has entries, if it is what `only_if` says.
    /// Returns the number and size of the files that were there just before.
    pub async fn remove(
        &self,
        path: PoolPath,
        only_if: OnlyIf,
        recursive: bool,
        when: When,
    ) -> Result<Removed, Error> {
        let there = path.clone();
        let count = move |db: &_| {
            keeping::check_lengths(db, &there, when)?;
            count(db, &there)
        };
        let removed = self.read(count).await?;
        let durability = self.durability(when, [&path]).await?;
        let remove = move |db: &_| {
            staging::check_removable(db, &path)?;
            check_meant(db, &path, only_if)?;
            checkpoints::end_sharing(db, &path, when.pool_ms)?;
            remove(db, &path, recursive, when)
        };
        self.write(durability, remove).await?;
        Ok(removed)
    }

    /// Returns what a change of these names has to survive: a power cut, if `when` says so or the ack level of one of
    /// them is `disk`.
    pub(super) async fn durability<'a>(
        &self,
        when: When,
        paths: impl IntoIterator<Item = &'a PoolPath>,
    ) -> Result<Durability, Error> {
        if when.durability == Durability::Disk {
            return Ok(Durability::Disk);
        }
        let dirs: BTreeSet<PoolPath> = paths.into_iter().filter_map(PoolPath::parent).collect();
        let needs_disk = move |db: &_| {
            for dir in &dirs {
                if dir_policies::effective(db, dir)?.ack == AckLevel::Disk {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        Ok(match self.read(needs_disk).await? {
            true => Durability::Disk,
            false => when.durability,
        })
    }

    /// Copies a page of files inside the pool. A file is refused if too few of its holders are there in the snapshot.
    /// If this `page` of the member's `copy` was made before, the reply of then is returned; `reply` makes the text that is kept
    /// for that.
    pub async fn copy_files(
        &self,
        (member, copy, page): (MemberId, SessionId, u32),
        wanted: CopyRequest,
        donors: DonorSnapshot,
        when: When,
        reply: impl Fn(&Copied) -> Result<String, Error> + Send + 'static,
    ) -> Result<CopyOutcome, Error> {
        let replies = RepliesTo { member, call: RepeatableCall::Copy, id: copy };
        let work = move |db: &_| {
            let view = donors.current();
            copies::copy(db, (replies, page), &wanted, &view, when, &reply)
        };
        self.write(Durability::Disk, work).await
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
    let (from_above, _) = split(from)?;
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
    let there = target.map(|target| target.place);
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
        keeping::keep(db, &leaving, keeping::retention(db, to, when)?, when)?;
    }
    keeping::note_bygone(db, (from_dir, from))?;
    apply::write_at(db, Record::Moved { from: from.clone(), to: to.clone() }, when.pool_ms)?;
    attributes::is_renamed(db, to, when)?;
    if was_pinned {
        keeping::stay_pinned(db, to)?;
    }
    keeping::forget_name(db, (from_dir, from), false, when)?;
    let now = FileTime::of_ms(when.wall_ms);
    if from_above != to_above {
        touched(db, &from_above, now)?;
    }
    touched(db, &to_above, now)
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
    let (above, _) = split(path)?;
    let place = entries::existing(db, path)?.place;
    let parent = entries::existing_dir(db, &above)?;
    if let EntryPlace::Dir(dir) = place
        && !recursive
    {
        check_empty(db, dir, path, Error::NotRecursive)?;
    }
    let leaving = LeavingEntry { dir: parent, path, place: &place, removed: true };
    let retention = keeping::retention(db, path, when)?;
    let kept = keeping::keep(db, &leaving, retention, when)?;
    if !kept {
        apply::write_at(db, Record::Removed { path: path.clone() }, when.pool_ms)?;
    }
    // What was removed under this name before stays where there is a trash. If only a snapshot keeps the entry, nothing
    // else is kept under its name either.
    keeping::forget_name(db, (parent, path), retention.removed.is_none(), when)?;
    touched(db, &above, FileTime::of_ms(when.wall_ms))
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
