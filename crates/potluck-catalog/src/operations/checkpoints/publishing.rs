//! Makes the files of a checkpoint visible: its staging directory takes the place of the target, which moves one
//! entry however many files are in it, or what is in it is merged into directories that are there.

use crate::checkpoints::{checkpoint_rows, open_checkpoint::OpenCheckpoint};
use crate::error::Error;
use crate::history::{snapshot_rows, snapshots};
use crate::log::{apply, records::Record};
use crate::names::{
    dir_policies,
    entries::{self, DirId, EntryPlace, split},
};
use crate::operations::{
    commits::visible::check_condition,
    history::keeping::{self, LeavingEntry},
    names::directories::{admit_dirs, make_dirs, touched},
};
use crate::pool_records::spaces;
use crate::sql::Tx;
use crate::versions;
use crate::when::When;
use potluck_core::attributes::{EntryAttributes, FileTime};
use potluck_core::checkpoint::CommitStyle;
use potluck_core::ids::VersionId;
use potluck_core::kept_place::is_reserved;
use potluck_core::path::PoolPath;
use potluck_core::policy::{Override, Retention};
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

/// Makes what is staged visible. Directories above the target that are missing are made.
pub(crate) fn publish(
    db: &Tx,
    open: &OpenCheckpoint,
    how: Conditions,
    when: When,
) -> Result<(), Error> {
    let OpenCheckpoint { staging, target, style, .. } = open;
    let staged = entries::existing_dir(db, staging)?;
    let mut work = Publication {
        db,
        how,
        target,
        when,
        left: MOST_MERGED,
        merged: Vec::new(),
        pinned: Vec::new(),
        policies: Vec::new(),
        modified: Vec::new(),
    };
    match (style, entries::resolve(db, target)?.map(|found| found.place)) {
        (CommitStyle::Merge, Some(EntryPlace::Dir(dir))) => work.merge(staged, dir, target)?,
        (CommitStyle::Share, _) => return Err(Error::Bug("a shared file is no directory".into())),
        // Merging into a directory that does not exist makes it of all that is staged.
        (CommitStyle::Replace | CommitStyle::Merge, _) => work.replace(staged)?,
    }
    let Publication { merged, pinned, policies, modified, .. } = work;
    let (from, to, style) = (staging.clone(), target.clone(), *style);
    apply::write_at(db, Record::Published { from, to, style, merged }, when.pool_ms)?;
    for (path, over) in policies {
        apply::write(db, Record::Policy { path, over })?;
    }
    pinned.iter().try_for_each(|path| keeping::stay_pinned(db, path))?;
    let now = FileTime::of_ms(when.wall_ms);
    modified.iter().try_for_each(|path| touched(db, path, now))
}

/// Staged files that are to become visible.
struct Publication<'a> {
    db: &'a Tx,
    how: Conditions,
    target: &'a PoolPath,
    when: When,
    /// The number of entries that may still be put into directories that are there.
    left: usize,
    /// The paths of the entries that are put into such directories; none where the staging directory becomes the target.
    merged: Vec<PoolPath>,
    /// The paths of those entries, or of the target, that are to be pinned because what they replace is.
    pinned: Vec<PoolPath>,
    /// The policies that directories of the same names had.
    policies: Vec<(PoolPath, Override)>,
    /// The paths of directories in which there are new names.
    modified: Vec<PoolPath>,
}

impl Publication<'_> {
    /// Prepares the place of the target for the staging directory.
    fn replace(&mut self, staged: DirId) -> Result<(), Error> {
        let Self { db, target, when, .. } = *self;
        let (above, name) = split(target)?;
        admit_dirs(db, &above, entries::missing_dirs(db, &above)?)?;
        let made = EntryAttributes::of_dir(when.wall_ms);
        let parent = make_dirs(db, &above, made, made.mtime)?;
        self.modified.push(above);
        match entries::lookup(db, parent, name)?.map(|found| found.place) {
            None => {}
            Some(EntryPlace::File(_) | EntryPlace::Link(_)) => {
                return Err(Error::NotADirectory(target.clone()));
            }
            Some(place @ EntryPlace::Dir(_)) => {
                let retention = keeping::retention(db, target, when)?;
                check_replaceable(db, target, retention)?;
                self.policies = handed_over(db, target, staged)?;
                if entries::is_pinned(db, parent, name)? {
                    self.pinned.push(target.clone());
                }
                let (path, removed) = (target, false);
                let leaving = LeavingEntry { dir: parent, path, place: &place, removed };
                keeping::keep(db, &leaving, retention, when)?;
            }
        }
        Ok(())
    }

    fn too_many(&self) -> Error {
        Error::TooManyMerged { target: self.target.clone(), most: MOST_MERGED }
    }

    /// Prepares one directory, which is at `path`, for what is in another.
    fn merge(&mut self, from: DirId, to: DirId, path: &PoolPath) -> Result<(), Error> {
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
                    self.merge(below, there, &at)?;
                    continue;
                }
                (EntryPlace::Dir(_), Some(_)) => return Err(Error::NotADirectory(at)),
                (_, Some(EntryPlace::Dir(_))) => return Err(Error::IsADirectory(at)),
                (EntryPlace::File(new), Some(EntryPlace::File(old))) => {
                    let kept = match retention {
                        Some(kept) => kept,
                        // One retention holds for all files of this directory, so it is looked up once.
                        None => keeping::retention(self.db, &at, self.when)?,
                    };
                    retention = Some(kept);
                    self.file((to, &at), new, old, kept)?;
                }
                (EntryPlace::File(_), Some(EntryPlace::Link(target))) => {
                    return Err(Error::IsALink { path: at, target });
                }
                (EntryPlace::Link(_), Some(EntryPlace::File(_))) => return Err(Error::IsAFile(at)),
                (EntryPlace::Link(_), Some(EntryPlace::Link(_))) => {
                    if self.how.condition != Condition::Always {
                        return Err(Error::Exists(at));
                    }
                    keeping::note_bygone(self.db, (to, &at))?;
                }
            }
            if was_pinned {
                self.pinned.push(at.clone());
            }
            self.merged.push(at);
        }
        if has_new {
            self.modified.push(path.clone());
        }
        Ok(())
    }

    /// Keeps the version of a file that another takes the place of, if its policy says so and the conditions allow that.
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
        keeping::keep(self.db, &leaving, retention, self.when).map(drop)
    }
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

/// Returns the policies that the directory at `target` and those below it have, for the directories of the same names in
/// `staged`, which replaces it. All policies of the space are looked at, because most spaces have few.
fn handed_over(
    db: &Tx,
    target: &PoolPath,
    staged: DirId,
) -> Result<Vec<(PoolPath, Override)>, Error> {
    let mut policies = Vec::new();
    for dir in dir_policies::in_space(db, spaces::named(db, target.space())?.id)? {
        let Some(path) = entries::path_of(db, dir)?.filter(|path| path.is_inside(target)) else {
            continue;
        };
        let names = &path.names()[target.names().len()..];
        let is_there = names.is_empty()
            || matches!(entries::below(db, staged, &names.join("/"))?, Some(EntryPlace::Dir(_)));
        if is_there {
            policies.push((path, dir_policies::get(db, dir)?));
        }
    }
    Ok(policies)
}
