//! The versions of files, directories and links that the pool keeps after they were replaced or removed.

use crate::pool::Pool;
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_wire::control::{
    BringBack, BroughtBackAs, KeptAbout, KeptList, KeptListed, KeptScope, LetGo, MOST_LET_GO,
    Remove, Removed,
};
use potluck_wire::error::{ErrorKind, Failure, code};

impl Pool {
    /// Returns the entry at a path, and the older versions and removed entries that are kept of it, the latest first.
    ///
    /// Errors: [`code::NO_ENTRY`] where nothing is, and nothing is kept; [`code::NOT_KEPT`] where a directory above was
    /// removed.
    pub async fn versions(&self, path: &PoolPath) -> Result<KeptListed, Failure> {
        let (path, scope) = (path.clone(), KeptScope::OfName);
        self.call(&KeptList { path, scope, after: None }).await
    }

    /// Lists the kept versions and removed entries that `scope` chooses, at a path or at and below it.
    pub async fn kept_below(
        &self,
        path: &PoolPath,
        scope: KeptScope,
    ) -> Result<Vec<KeptAbout>, Failure> {
        let (mut kept, mut after) = (Vec::new(), None);
        loop {
            let page = self.call(&KeptList { path: path.clone(), scope, after }).await?;
            kept.extend(page.kept);
            after = page.next;
            if after.is_none() {
                return Ok(kept);
            }
        }
    }

    /// Returns the path at which this version of the entry that is, or was, at a path can be read.
    ///
    /// Errors: [`code::NOT_KEPT`] where the version is not kept.
    pub async fn version_at(
        &self,
        path: &PoolPath,
        number: VersionId,
    ) -> Result<PoolPath, Failure> {
        let listed = self.versions(path).await?;
        if listed.current.is_some_and(|current| current.version == Some(number)) {
            return Ok(path.clone());
        }
        let found = listed.kept.into_iter().find(|about| about.number == number);
        let at = found.map(|about| about.at);
        at.ok_or_else(|| {
            let what = format!("version {number} of {path} is not kept");
            Failure::new(ErrorKind::NotFound, code::NOT_KEPT, what)
                .hint(format!("`potluck versions {path}` lists those that are"))
        })
    }

    /// Makes a kept version of a path current again: the given version, or the one that was kept last. The entry that
    /// is at the path is kept in turn. With `removed` the entry must have been removed, and nothing may be at the
    /// path.
    ///
    /// Errors: [`code::NOT_KEPT`]; [`code::EXISTS`] where something is there that cannot give way.
    pub async fn bring_back(
        &self,
        path: &PoolPath,
        number: Option<VersionId>,
        removed: bool,
    ) -> Result<BroughtBackAs, Failure> {
        self.call(&BringBack { path: path.clone(), number, removed }).await
    }

    /// Lets the kept versions with these numbers, at `path` or below it, go for good. A failure may leave some of them
    /// gone already, since many are let go by several calls.
    pub async fn let_go(&self, path: &PoolPath, numbers: &[VersionId]) -> Result<(), Failure> {
        for numbers in numbers.chunks(MOST_LET_GO) {
            self.call(&LetGo { path: path.clone(), numbers: numbers.to_vec() }).await?;
        }
        Ok(())
    }

    /// Removes what is at a path as [`Pool::remove`] does. Nothing of it is kept, nor what was kept of its name before,
    /// whatever the policy says, except what a snapshot shows.
    pub async fn remove_forever(
        &self,
        path: &PoolPath,
        recursive: bool,
    ) -> Result<Removed, Failure> {
        self.call(&Remove {
            path: path.clone(),
            recursive,
            forever: true,
            only_if: Default::default(),
            soon: false,
        })
        .await
    }
}
