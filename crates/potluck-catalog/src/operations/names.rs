//! Names: listings, facts, sums, and changes.

use crate::checkpoints;
use crate::checkpoints::checkpoint_rows;
use crate::history;
use crate::kept_replies::{RepeatableCall, RepliesTo};
use crate::members::grants::SeenSpaces;
use crate::names;
use crate::names::{
    copies::{self, Copied, CopyOutcome, CopyRequest},
    dir_policies, links,
    lists::{self, EntryFacts},
};
use crate::when::When;
use crate::{Catalog, Durability, Error};
use potluck_core::attributes::{AttributesToSet, EntryAttributes};
use potluck_core::ids::{MemberId, SessionId, VersionId};
use potluck_core::path::PoolPath;
use potluck_core::policy::AckLevel;
use potluck_pool::DonorSnapshot;
use potluck_wire::control::{
    Condition, ListedEntry, Listing, NewLink, OnlyIf, Removed, Used, UsedUpTo,
};
use std::collections::BTreeSet;

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
            checkpoint_rows::check_writable(db, &path, None)?;
            names::make_dir(db, &path, parents, attributes)
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
            names::set_attributes(db, &path, version, new)
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
            names::check_lengths(db, &source, &target)?;
            // An empty directory at the target is replaced, and may be kept with what was kept in it.
            match history::check_lengths(db, &target, when) {
                Err(why @ Error::TooLongToKeep(_)) => Err(why),
                _ => Ok(()), // the move itself tells what else is wrong
            }
        };
        self.read(check).await?;
        let durability = self.durability(when, [&from, &to]).await?;
        let rename = move |db: &_| {
            checkpoint_rows::check_removable(db, &from)?;
            checkpoint_rows::check_removable(db, &to)?;
            names::check_version(db, &to, replaces)?;
            names::move_entry(db, &from, &to, no_replace, when)
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
            history::check_lengths(db, &there, when)?;
            names::count(db, &there)
        };
        let removed = self.read(count).await?;
        let durability = self.durability(when, [&path]).await?;
        let remove = move |db: &_| {
            checkpoint_rows::check_removable(db, &path)?;
            names::check_meant(db, &path, only_if)?;
            checkpoints::end_sharing(db, &path, when.pool_ms)?;
            names::remove(db, &path, recursive, when)
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
