//! What programs do in a pool: open and write files, and change names and directories.

use crate::file::File;
use crate::pool::Pool;
use crate::write::options::PutOptions;
use crate::write::session::Session;
use crate::writer::{Attributes, Writer};
use potluck_core::path::PoolPath;
use potluck_core::policy::Policy;
use potluck_wire::control::{
    Entry, EntryKind, List, Listing, MakeDir, Move, Remove, Removed, SpaceCreate, SpaceCreated,
    SpaceInfo, SpaceList, SpaceRemove, Stat, Stated, Usage, Used,
};
use potluck_wire::error::{ErrorKind, Failure, code};

impl Pool {
    /// Opens a file for reading. One call to the manager; none follows while its donors answer.
    pub async fn open(&self, path: &PoolPath) -> Result<File, Failure> {
        File::open(self, path).await
    }

    /// Opens a session for files below `root`, which become visible one by one as they are finished.
    /// `options.atomic` is not for sessions: it is an error.
    pub async fn session(&self, root: &PoolPath, options: &PutOptions) -> Result<Session, Failure> {
        if options.atomic {
            let what = "files of a session become visible one by one";
            return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                .hint("store them with `put`, which makes all visible at one moment"));
        }
        Session::open(self, root, options).await
    }

    /// Writes one file in a session of its own.
    pub async fn create(
        &self,
        path: &PoolPath,
        options: &PutOptions,
        attributes: Attributes,
    ) -> Result<Writer, Failure> {
        Ok(self.session(path, options).await?.create(path.clone(), attributes))
    }

    /// A part of what is in a directory, a space, or with `pot://` the pool, in order of the names; with
    /// `recursive` of all that is below, parents before children. Continues `after` [`Listing::next`].
    /// A file lists itself, with the relative path "".
    pub async fn list_page(
        &self,
        path: &PoolPath,
        recursive: bool,
        after: Option<String>,
    ) -> Result<Listing, Failure> {
        self.call(&List { path: path.clone(), recursive, after }).await
    }

    /// All pages of a listing.
    pub async fn list(&self, path: &PoolPath, recursive: bool) -> Result<Vec<Entry>, Failure> {
        let mut page = self.list_page(path, recursive, None).await?;
        let mut entries = page.entries;
        while page.next.is_some() {
            page = self.list_page(path, recursive, page.next).await?;
            entries.append(&mut page.entries);
        }
        Ok(entries)
    }

    /// What is known of a path; of a file also who holds it and how safe it is.
    pub async fn stat(&self, path: &PoolPath) -> Result<Stated, Failure> {
        self.call(&Stat { path: path.clone(), chunks: false }).await
    }

    /// What is known of a path and of every chunk of a file.
    pub async fn stat_chunks(&self, path: &PoolPath) -> Result<Stated, Failure> {
        self.call(&Stat { path: path.clone(), chunks: true }).await
    }

    /// The kind of the entry at a path, if one is there.
    pub async fn kind(&self, path: &PoolPath) -> Result<Option<EntryKind>, Failure> {
        if path.space().is_empty() {
            return Ok(Some(EntryKind::Dir));
        }
        match self.stat(path).await {
            Ok(stated) => Ok(Some(stated.entry.kind)),
            Err(failure) if failure.code == code::NO_ENTRY => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Sums over a file or tree, and over each of its direct children.
    pub async fn usage(&self, path: &PoolPath) -> Result<Used, Failure> {
        let mut used = self.call(&Usage { path: path.clone(), after: None }).await?;
        while let Some(after) = used.next.take() {
            let part = Usage { path: path.clone(), after: Some(after) };
            used.add(self.call(&part).await?);
        }
        Ok(used)
    }

    /// Makes a directory; with `parents` those above it that are missing too, and one that is there is no error.
    pub async fn make_dir(&self, path: &PoolPath, parents: bool) -> Result<(), Failure> {
        self.call(&MakeDir { path: path.clone(), parents }).await.map(drop)
    }

    /// Moves a file or directory to the path `to` of the same space, atomically. A file that is there is
    /// replaced, or with `no_replace` an error ([`code::EXISTS`]).
    pub async fn rename(
        &self,
        from: &PoolPath,
        to: &PoolPath,
        no_replace: bool,
    ) -> Result<(), Failure> {
        self.call(&Move { from: from.clone(), to: to.clone(), no_replace }).await.map(drop)
    }

    /// Removes a file, or with `recursive` a directory with all that is in it.
    pub async fn remove(&self, path: &PoolPath, recursive: bool) -> Result<Removed, Failure> {
        self.call(&Remove { path: path.clone(), recursive }).await
    }

    /// The spaces of the pool.
    pub async fn spaces(&self) -> Result<Vec<SpaceInfo>, Failure> {
        Ok(self.call(&SpaceList {}).await?.spaces)
    }

    /// Makes a space; admins may.
    pub async fn create_space(&self, name: &str, policy: Policy) -> Result<SpaceCreated, Failure> {
        self.call(&SpaceCreate { name: name.into(), policy }).await
    }

    /// Removes a space, with `recursive` also one that is not empty; admins may.
    pub async fn remove_space(&self, name: &str, recursive: bool) -> Result<(), Failure> {
        self.call(&SpaceRemove { name: name.into(), recursive }).await.map(drop)
    }
}
