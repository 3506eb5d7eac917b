//! The calls by which programs use a pool: they open and write files, and change names and directories.
//!
//! Each of these calls the manager, so that the errors of [`Pool::call`] are possible beside those that a method
//! names.

use crate::attributes::Attributes;
use crate::file::File;
use crate::pool::Pool;
use crate::write::options::PutOptions;
use crate::write::session::Session;
use crate::writer::Writer;
use potluck_core::attributes::Permissions;
use potluck_core::path::PoolPath;
use potluck_core::policy::Policy;
use potluck_wire::control::{
    EntryKind, List, ListedEntry, Listing, MOST_DESCRIBED, MadeLinks, MakeDir, MakeLinks, Move,
    Remove, Removed, SetAttributes, SpaceCreate, SpaceCreated, SpaceInfo, SpaceList, SpaceRemove,
    Stat, Stated, Usage, Used,
};
use potluck_wire::error::{Failure, code};

impl Pool {
    /// Opens a file for reading. One call to the manager; none follows while its donors answer.
    ///
    /// Errors: [`code::NO_ENTRY`] and [`code::NO_SPACE_NAMED`] where nothing is there, [`code::NOT_RECURSIVE`] for a
    /// directory, [`ErrorKind::Integrity`](potluck_wire::error::ErrorKind::Integrity) where the recipe is not that of
    /// the file's digest.
    pub async fn open(&self, path: &PoolPath) -> Result<File, Failure> {
        File::open(self, path, false).await
    }

    /// Opens a file that is to stay readable for as long as it is open, though it is replaced or removed: its version
    /// is leased, and the client renews the leases of all such files until they are dropped.
    ///
    /// Errors: those of [`Pool::open`].
    pub async fn open_leased(&self, path: &PoolPath) -> Result<File, Failure> {
        File::open(self, path, true).await
    }

    /// Renews the leases of all files that are open under one now, instead of when they are due: a manager that has
    /// just started knows of none, and believes renewals only as long as a lease lasts.
    pub fn renew_leases_now(&self) {
        self.leases.renew_now();
    }

    /// Opens a session for files below `root`, which become visible one by one as they are finished.
    ///
    /// Errors: [`code::NO_SPACE_NAMED`], [`code::BAD_POLICY`];
    /// [`ErrorKind::NoSpace`](potluck_wire::error::ErrorKind::NoSpace) and [`code::DONORS_SILENT`] where the pool has
    /// too little room or too few donors, for good or for now; [`code::TOO_MANY_SESSIONS`].
    pub async fn session(&self, root: &PoolPath, options: &PutOptions) -> Result<Session, Failure> {
        Session::open(self, root, options).await
    }

    /// Begins to write one file in a session of its own.
    ///
    /// Errors: those of [`Pool::session`].
    pub async fn create(
        &self,
        path: &PoolPath,
        options: &PutOptions,
        attributes: Attributes,
    ) -> Result<Writer, Failure> {
        Ok(self.session(path, options).await?.create(path.clone(), attributes))
    }

    /// Lists a part of what is in a directory, a space, or with `pot://` the pool, in order of the names; with
    /// `recursive` a part of all that is below, parents before children. The part begins after `after`, which is
    /// [`Listing::next`] of the part before it. A file lists itself, with the relative path "".
    ///
    /// Errors: [`code::NO_ENTRY`] and [`code::NO_SPACE_NAMED`] where nothing is there, [`code::BAD_REQUEST`] for an
    /// `after` that no listing gave.
    pub async fn list_page(
        &self,
        path: &PoolPath,
        recursive: bool,
        after: Option<String>,
    ) -> Result<Listing, Failure> {
        self.call(&List { path: path.clone(), recursive, after }).await
    }

    /// Lists what is in a directory, as [`Pool::list_page`] does, to the end.
    ///
    /// Errors: those of [`Pool::list_page`].
    pub async fn list(
        &self,
        path: &PoolPath,
        recursive: bool,
    ) -> Result<Vec<ListedEntry>, Failure> {
        let mut page = self.list_page(path, recursive, None).await?;
        let mut entries = page.entries;
        while page.next.is_some() {
            page = self.list_page(path, recursive, page.next).await?;
            entries.append(&mut page.entries);
        }
        Ok(entries)
    }

    /// Returns the metadata of a path; of a file also which donors hold it and how safe it is, for which all its chunks
    /// are looked at, by several calls where there are many.
    ///
    /// Errors: [`code::NO_ENTRY`] and [`code::NO_SPACE_NAMED`] where nothing is there.
    pub async fn stat(&self, path: &PoolPath) -> Result<Stated, Failure> {
        self.stat_judged(path, false).await
    }

    /// Returns the metadata of a path as [`Pool::stat`] does, by one call, without what that says of donors and of how
    /// safe a file is.
    ///
    /// Errors: those of [`Pool::stat`].
    pub async fn stat_unjudged(&self, path: &PoolPath) -> Result<Stated, Failure> {
        let path = path.clone();
        self.call(&Stat { path, chunks: false, unjudged: true, room: false, after: None }).await
    }

    /// Returns what [`Pool::stat_unjudged`] does, and how much can be stored by the policy that holds at the path.
    ///
    /// Errors: those of [`Pool::stat`].
    pub async fn stat_room(&self, path: &PoolPath) -> Result<Stated, Failure> {
        let path = path.clone();
        self.call(&Stat { path, chunks: false, unjudged: true, room: true, after: None }).await
    }

    /// Returns the metadata of a path as [`Pool::stat`] does, and of a file also its chunks, the first
    /// [`MOST_DESCRIBED`] of them.
    ///
    /// Errors: those of [`Pool::stat`].
    pub async fn stat_chunks(&self, path: &PoolPath) -> Result<Stated, Failure> {
        self.stat_judged(path, true).await
    }

    /// Asks for all pages about a file, from the first one again if the file is replaced meanwhile.
    async fn stat_judged(&self, path: &PoolPath, chunks: bool) -> Result<Stated, Failure> {
        let page = |chunks, after| {
            let path = path.clone();
            Stat { path, chunks, unjudged: false, room: false, after }
        };
        let mut stated = self.call(&page(chunks, None)).await?;
        while let Some(after) = stated.next.take() {
            let has_room = stated.chunk_list.len() < MOST_DESCRIBED;
            let next = self.call(&page(chunks && has_room, Some(after))).await?;
            if next.entry.version == stated.entry.version {
                stated.add(next);
            } else {
                stated = self.call(&page(chunks, None)).await?;
            }
        }
        Ok(stated)
    }

    /// Returns the kind of the entry at a path; `None` where nothing is there.
    ///
    /// Errors: [`code::NO_SPACE_NAMED`]; a path at which nothing is, is no error.
    pub async fn kind(&self, path: &PoolPath) -> Result<Option<EntryKind>, Failure> {
        if path.space().is_empty() {
            return Ok(Some(EntryKind::Dir));
        }
        match self.stat_unjudged(path).await {
            Ok(stated) => Ok(Some(stated.entry.kind)),
            Err(failure) if failure.code == code::NO_ENTRY => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Returns the sums over a file or tree, and over each of its direct children.
    ///
    /// Errors: [`code::NO_ENTRY`] and [`code::NO_SPACE_NAMED`] where nothing is there, [`code::CATALOG`] of kind
    /// [`ErrorKind::Retry`](potluck_wire::error::ErrorKind::Retry) where too many wait for such sums.
    pub async fn usage(&self, path: &PoolPath) -> Result<Used, Failure> {
        let mut used = self.call(&Usage { path: path.clone(), after: None }).await?;
        while let Some(after) = used.next.take() {
            let part = Usage { path: path.clone(), after: Some(after) };
            used.add(self.call(&part).await?);
        }
        Ok(used)
    }

    /// Makes a directory; with `parents` also the missing ones above it, and one that is there is no error.
    ///
    /// Errors: [`code::EXISTS`], [`code::NO_ENTRY`] without `parents`, [`code::WRONG_KIND`] where a file is in the way,
    /// [`code::BAD_PATH`] for a path outside of spaces.
    pub async fn make_dir(&self, path: &PoolPath, parents: bool) -> Result<(), Failure> {
        let permissions = Permissions::DIR;
        let make = MakeDir { path: path.clone(), parents, permissions, owner: None };
        self.call(&make).await.map(drop)
    }

    /// Makes symbolic links in one space, at most [`potluck_wire::control::MAX_LINKS`] of them, as `call` says.
    ///
    /// Errors: that of the call as a whole; links that were not made alone are in the answer, with [`code::EXISTS`],
    /// [`code::WRONG_KIND`] where a file or directory is, [`code::NO_ENTRY`] where their directory is missing, or
    /// [`code::OVER_QUOTA`].
    pub async fn make_links(&self, call: &MakeLinks) -> Result<MadeLinks, Failure> {
        self.call(call).await
    }

    /// Sets the modification time, the permissions and the owner of a file or directory, as `call` says; a file keeps
    /// its version.
    ///
    /// Errors: [`code::NO_ENTRY`], [`code::WRONG_VERSION`] where the file is not of the version that is meant,
    /// [`code::BAD_PATH`] for the root of the pool.
    pub async fn set_attributes(&self, call: &SetAttributes) -> Result<(), Failure> {
        self.call(call).await.map(drop)
    }

    /// Moves a file or directory to the path `to` of the same space, atomically. A file replaces a file that is there, and
    /// a directory an empty directory; with `no_replace` that is an error ([`code::EXISTS`]).
    ///
    /// Errors: [`code::NO_ENTRY`], [`code::NOT_EMPTY`] and [`code::WRONG_KIND`] where a directory is in the way or
    /// is to replace a file, [`code::OVERLAP`] for a move into itself, [`code::BAD_PATH`] between spaces.
    pub async fn rename(
        &self,
        from: &PoolPath,
        to: &PoolPath,
        no_replace: bool,
    ) -> Result<(), Failure> {
        let (from, to) = (from.clone(), to.clone());
        self.call(&Move { from, to, no_replace, replaces: None, soon: false }).await.map(drop)
    }

    /// Removes a file, or with `recursive` a directory with all that is in it.
    ///
    /// Errors: [`code::NO_ENTRY`], [`code::NOT_RECURSIVE`] for a directory without `recursive`.
    pub async fn remove(&self, path: &PoolPath, recursive: bool) -> Result<Removed, Failure> {
        self.call(&Remove {
            path: path.clone(),
            recursive,
            forever: false,
            only_if: Default::default(),
            soon: false,
        })
        .await
    }

    /// Lists the spaces of the pool that this member may list.
    pub async fn spaces(&self) -> Result<Vec<SpaceInfo>, Failure> {
        Ok(self.call(&SpaceList {}).await?.spaces)
    }

    /// Makes a space, in which its maker has all rights.
    pub async fn create_space(&self, name: &str, policy: Policy) -> Result<SpaceCreated, Failure> {
        self.call(&SpaceCreate { name: name.into(), policy }).await
    }

    /// Removes a space, with `recursive` also one that is not empty.
    pub async fn remove_space(&self, name: &str, recursive: bool) -> Result<(), Failure> {
        self.call(&SpaceRemove { name: name.into(), recursive }).await.map(drop)
    }
}
