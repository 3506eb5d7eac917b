//! Operations on files that are read, and on files whose redundancy is judged.

use crate::chunks::{
    followed::{self, Followed, ToFollow},
    units::{self, FilePage, PageLimit},
};
use crate::members::grants::SeenSpaces;
use crate::names::entries::{self, EntryPlace};
use crate::pool_records::spaces::Space;
use crate::versions::open::{self, OpenedPage};
use crate::{Catalog, Error};
use potluck_core::ids::{MemberId, VersionId};
use potluck_core::path::PoolPath;

impl Catalog {
    /// Opens a file, or with `recursive` a page of the tree at the path.
    pub async fn open_files(
        &self,
        path: PoolPath,
        recursive: bool,
        after: Option<String>,
    ) -> Result<OpenedPage, Error> {
        self.read(move |db| open::open(db, &path, recursive, after.as_deref())).await
    }

    /// Opens a file with a lease of `member`. The file stays whole for as long as the member renews the lease.
    pub async fn open_leased(
        &self,
        path: PoolPath,
        member: MemberId,
        now_ms: u64,
    ) -> Result<OpenedPage, Error> {
        loop {
            let page = self.open_files(path.clone(), false, None).await?;
            let [file] = &page.files[..] else { return Ok(page) };
            let version = file.version;
            self.state.leases.take(member, path.space(), version, now_ms);
            // The file may have been replaced or removed before the lease was there.
            let at = path.clone();
            let now = self.read(move |db| Ok(entries::existing(db, &at)?.place)).await?;
            if matches!(now, EntryPlace::File(now) if now == version) {
                return Ok(page);
            }
        }
    }

    /// Notes that leases which were given before `now_ms` are forgotten: until readers have had the time to renew them,
    /// any version may be open, and is left whole if it loses its name.
    pub fn leases_are_forgotten(&self, now_ms: u64) {
        self.state.leases.are_forgotten(now_ms);
    }

    /// Renews the leases of a member that has these versions of a space still open. Returns those whose leases ran
    /// out before, or that it never leased there; while [leases are forgotten](Self::leases_are_forgotten) the member is
    /// believed.
    pub async fn renew_leases(
        &self,
        member: MemberId,
        space: &str,
        versions: Vec<VersionId>,
        now_ms: u64,
    ) -> Vec<VersionId> {
        self.state.leases.renew(member, space, versions, now_ms)
    }

    /// Opens part `number` of a file that was at `path` as this version.
    pub async fn open_part(
        &self,
        path: PoolPath,
        version: VersionId,
        number: u32,
    ) -> Result<OpenedPage, Error> {
        self.read(move |db| open::open_part(db, &path, version, number)).await
    }

    /// Returns a page of the files of a space, each with its version and its layout.
    pub async fn files_of(
        &self,
        space: &Space,
        after: Option<String>,
        limit: PageLimit,
    ) -> Result<FilePage, Error> {
        let root = space.root;
        self.read(move |db| units::page(db, root, after.as_deref(), limit)).await
    }

    /// Returns a page of the files at a path, each with its version and its layout. A file at the path itself has an
    /// empty name. At the root of the pool, only the files in the spaces that are `seen` are returned.
    pub async fn files_at(
        &self,
        path: PoolPath,
        after: Option<String>,
        limit: PageLimit,
        seen: SeenSpaces,
    ) -> Result<FilePage, Error> {
        self.read(move |db| units::page_at(db, &path, after.as_deref(), limit, &seen)).await
    }

    /// Looks at the first of the given versions and parts, at least one. Returns each that a path leads to, with its
    /// layout, and how many were looked at.
    pub async fn files_followed(
        &self,
        versions: Vec<ToFollow>,
        limit: PageLimit,
    ) -> Result<(Vec<Followed>, usize), Error> {
        self.read(move |db| followed::some(db, &versions, limit)).await
    }

    /// Returns those of the given versions and parts that no path leads to any more.
    pub async fn pathless(&self, versions: Vec<VersionId>) -> Result<Vec<VersionId>, Error> {
        self.read(move |db| followed::pathless(db, &versions)).await
    }
}
