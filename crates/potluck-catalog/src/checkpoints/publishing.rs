//! Makes the files of a checkpoint visible: its staging directory takes the place of the target, which moves one
//! entry however many files are in it, or what is in it is merged into directories that are there.

use crate::checkpoints::checkpoint_rows;
use crate::chunks::ReferenceCounts;
use crate::error::Error;
use crate::history::{
    bygone, snapshot_rows, snapshots, trash, {self, LeavingEntry},
};
use crate::names;
use crate::names::{
    dir_policies,
    dir_times::touched,
    entries::{self, DirId, EntryPlace},
};
use crate::pool_records::spaces::{self, Sums};
use crate::sql::Tx;
use crate::versions;
use crate::versions::visible::{check_condition, make_dirs};
use crate::when::{WhatIsKept, When};
use potluck_core::attributes::{EntryAttributes, FileTime};
use potluck_core::checkpoint::CommitStyle;
use potluck_core::ids::{SpaceId, VersionId};
use potluck_core::kept_place::is_reserved;
use potluck_core::path::PoolPath;
use potluck_core::policy::Retention;
use potluck_wire::control::Condition;

/// The most entries that a commit puts one by one into directories that are there, in one job of the catalog's
/// writer: some ten milliseconds. A file that takes the place of another counts twice; a directory that is not there
/// yet counts once, with all below it.
const MOST_MERGED: usize = 4096;

/// The conditions under which a staged file may take the place of one that is there.
#[derive(Debug, Clone, Copy)]
pub struct Conditions {
    /// The condition that the file that is there must meet.
    pub condition: Condition,
    /// True if an empty staged file must not take the place of a file that has content.
    pub spare_content: bool,
}

impl Conditions {
    /// No conditions: files are replaced, whatever they are.
    pub const NONE: Self = Self { condition: Condition::Always, spare_content: false };
}

/// The entries that became visible by a commit.
#[derive(Debug, Default)]
pub(crate) struct PublishedEntries {
    /// The paths of the entries that a merge put into directories that were there; none where the staging directory
    /// became the target.
    pub merged: Vec<PoolPath>,
    /// The paths of those entries, or of the target, that are to be pinned because what they replaced was.
    pub pinned: Vec<PoolPath>,
}

/// Makes what is staged visible. Directories above the target that are missing are made.
pub(crate) fn publish(
    db: &Tx,
    (staging, target): (&PoolPath, &PoolPath),
    style: CommitStyle,
    how: Conditions,
    when: When,
) -> Result<PublishedEntries, Error> {
    let outside = || Error::OutsideSpaces(target.clone());
    let holder = entries::existing_dir(db, &staging.parent().ok_or_else(outside)?)?;
    let staged = Staged {
        dir: entries::existing_dir(db, staging)?,
        at: (holder, staging.file_name().ok_or_else(outside)?),
    };
    let there = entries::resolve(db, target)?.map(|found| found.place);
    match (style, there) {
        (CommitStyle::Merge, Some(EntryPlace::Dir(dir))) => {
            let (sums, left) = (Sums::default(), MOST_MERGED);
            let counts = ReferenceCounts::new(db, when.pool_ms);
            let space = spaces::named(db, target.space())?.id;
            let entries = PublishedEntries::default();
            let mut merge = Merge { db, how, target, space, when, counts, sums, left, entries };
            merge.directory(staged.dir, dir, target)?;
            let Merge { counts, sums, entries: published, .. } = merge;
            counts.close()?;
            entries::delete(db, staged.at.0, staged.at.1)?;
            entries::dir_ended(db, space, staged.dir)?;
            spaces::add_sums(db, space, sums)?;
            Ok(published)
        }
        (CommitStyle::Share, _) => Err(Error::Bug("a shared file is no directory".into())),
        // Merging into a directory that does not exist makes it of all that is staged.
        (CommitStyle::Replace | CommitStyle::Merge, _) => {
            let above = target.parent().ok_or_else(outside)?;
            if when.keeps != WhatIsKept::AsTheLogSays {
                names::admit_dirs(db, &above, entries::missing_dirs(db, &above)?)?;
            }
            let made = EntryAttributes::of_dir(when.wall_ms);
            let parent = make_dirs(db, &above, made, made.mtime)?;
            let is_pinned = replace(db, &staged, parent, target, when)?;
            touched(db, &above, parent, made.mtime)?;
            let pinned = is_pinned.then(|| target.clone()).into_iter().collect();
            Ok(PublishedEntries { merged: Vec::new(), pinned })
        }
    }
}

/// A staging directory, and the entry that leads to it.
struct Staged<'a> {
    dir: DirId,
    at: (DirId, &'a str),
}

/// Puts a staging directory in the place of the target, with the policies that directories of the same names had. Returns
/// whether it is to be pinned, as what was there before was.
fn replace(
    db: &Tx,
    staged: &Staged<'_>,
    parent: DirId,
    target: &PoolPath,
    when: When,
) -> Result<bool, Error> {
    let name = target.file_name().ok_or_else(|| Error::OutsideSpaces(target.clone()))?;
    let was_pinned = entries::is_pinned(db, parent, name)?;
    match entries::lookup(db, parent, name)?.map(|found| found.place) {
        None => {}
        Some(EntryPlace::File(_) | EntryPlace::Link(_)) => {
            return Err(Error::NotADirectory(target.clone()));
        }
        Some(EntryPlace::Dir(old)) => {
            let space = spaces::named(db, target.space())?.id;
            let retention = history::retention(db, target, when)?;
            if when.keeps != WhatIsKept::AsTheLogSays {
                check_replaceable(db, target, retention)?;
            }
            dir_policies::hand_over(db, space, old, staged.dir)?;
            let place = &EntryPlace::Dir(old);
            let leaving = LeavingEntry { dir: parent, path: target, place, removed: false };
            if !history::keep(db, &leaving, retention, when)? {
                entries::delete(db, parent, name)?;
                trash::throw(db, old, space)?;
            }
        }
    }
    entries::rename(db, staged.at, (parent, name))?;
    Ok(was_pinned)
}

/// Refuses to replace a directory if what others stage in it, or its snapshots, would be lost. Where the directory is
/// kept, its snapshots come back with it, but nothing that is staged there ever becomes visible.
fn check_replaceable(db: &Tx, target: &PoolPath, retention: Retention) -> Result<(), Error> {
    if let Some(dir) = checkpoint_rows::any_below(db, target)? {
        return Err(Error::HasCheckpoint(dir));
    }
    if retention.replaced.is_none()
        && let Some(dir) = snapshots::any_below(db, target)?
    {
        return Err(Error::HasSnapshots(dir));
    }
    Ok(())
}

/// A merge of staged files into directories that are there.
struct Merge<'a> {
    db: &'a Tx,
    how: Conditions,
    target: &'a PoolPath,
    /// The space that the staged files and the target are in.
    space: SpaceId,
    when: When,
    /// The changes to the references of the chunks of files that are replaced.
    counts: ReferenceCounts<'a>,
    sums: Sums,
    /// The number of entries that may still be put.
    left: usize,
    /// The entries that were put.
    entries: PublishedEntries,
}

impl Merge<'_> {
    fn too_many(&self) -> Error {
        Error::TooManyMerged { target: self.target.clone(), most: MOST_MERGED }
    }

    /// Moves what is in one directory into another, which is at `path`.
    fn directory(&mut self, from: DirId, to: DirId, path: &PoolPath) -> Result<(), Error> {
        let (mut has_new, mut retention) = (false, None);
        for (name, place) in entries::children(self.db, from, self.left + 1)? {
            self.left = self.left.checked_sub(1).ok_or_else(|| self.too_many())?;
            let at = path.join(&name).map_err(|_| {
                let bytes = path.to_string().len() + 1 + name.len();
                Error::TooLong { to: path.clone(), bytes }
            })?;
            // What is kept in a directory, and its snapshots, are of this directory and of no other.
            if is_reserved(&name) {
                return Err(Error::KeptPlace(at));
            }
            let there = entries::lookup(self.db, to, &name)?.map(|found| found.place);
            let was_pinned = there.is_some() && entries::is_pinned(self.db, to, &name)?;
            match (place, there) {
                (_, None) => has_new = true,
                (EntryPlace::Dir(below), Some(EntryPlace::Dir(there))) => {
                    // It was moved here from where a snapshot shows it, and would end.
                    if !snapshot_rows::covering(self.db, below)?.is_empty() {
                        return Err(Error::HasSnapshots(at));
                    }
                    self.directory(below, there, &at)?;
                    entries::delete(self.db, from, &name)?;
                    entries::dir_ended(self.db, self.space, below)?;
                    continue;
                }
                (EntryPlace::Dir(_), Some(_)) => return Err(Error::NotADirectory(at)),
                (_, Some(EntryPlace::Dir(_))) => return Err(Error::IsADirectory(at)),
                (EntryPlace::File(new), Some(EntryPlace::File(old))) => {
                    let kept = match retention {
                        Some(kept) => kept,
                        // One retention holds for all files of this directory, so it is looked up once.
                        None => history::retention(self.db, &at, self.when)?,
                    };
                    retention = Some(kept);
                    self.file((to, &at), new, old, kept)?;
                    entries::delete(self.db, to, &name)?;
                }
                (EntryPlace::File(_), Some(EntryPlace::Link(target))) => {
                    return Err(Error::IsALink { path: at, target });
                }
                (EntryPlace::Link(_), Some(EntryPlace::File(_))) => return Err(Error::IsAFile(at)),
                (EntryPlace::Link(_), Some(EntryPlace::Link(_))) => {
                    if self.how.condition != Condition::Always {
                        return Err(Error::Exists(at));
                    }
                    self.sums.sub(0);
                    bygone::note(self.db, (to, &at), self.when)?;
                    entries::delete(self.db, to, &name)?;
                }
            }
            entries::rename(self.db, (from, &name), (to, &name))?;
            if was_pinned {
                self.entries.pinned.push(at.clone());
            }
            self.entries.merged.push(at);
        }
        if has_new {
            touched(self.db, path, to, FileTime::of_ms(self.when.wall_ms))?;
        }
        Ok(())
    }

    /// Keeps or ends the version of a file that another takes the place of, if the conditions allow that.
    fn file(
        &mut self,
        (dir, path): (DirId, &PoolPath),
        new: VersionId,
        old: VersionId,
        retention: Retention,
    ) -> Result<(), Error> {
        let Conditions { condition, spare_content } = self.how;
        check_condition(self.db, path, condition, Some(old))?;
        if spare_content && versions::get(self.db, new)?.size == 0 {
            check_condition(self.db, path, Condition::IfEmpty, Some(old))?;
        }
        // A file that replaces another is as much work again, so it counts twice.
        self.left = self.left.checked_sub(1).ok_or_else(|| self.too_many())?;
        let place = &EntryPlace::File(old);
        let leaving = LeavingEntry { dir, path, place, removed: false };
        if history::keep(self.db, &leaving, retention, self.when)? {
            return Ok(());
        }
        let old = versions::throw_away(self.db, old, &mut self.counts)?;
        self.sums.deleted(old.data, old.in_catalog);
        Ok(())
    }
}
