//! Gives the files that are there the redundancy of a changed policy as their goal.

use crate::handles::handles;
use potluck_catalog::{Catalog, Error, OpenCheckpoint};
use potluck_core::path::PoolPath;
use potluck_core::policy::Policy;

handles! {
    /// The handles for giving files goals.
    pub struct FileGoals {
        catalog: Catalog,
    }
}

/// The files whose redundancy is to change, or would.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChangingFiles {
    /// The number of files.
    pub files: u64,
    /// The size of the files in bytes of plaintext.
    pub bytes: u64,
    /// The approximate number of bytes that are stored in addition while the files have both redundancies.
    pub needs_bytes: u64,
}

impl FileGoals {
    /// Gives the files below a path, and those that are staged for it, the redundancy of `policy` as their goal at the
    /// pool's time `set_at`, and counts them. Without `set_at` it only counts them.
    ///
    /// Files of sessions that are open are written with the policy of before, and get this one's redundancy as their
    /// goal when they become visible.
    pub async fn set(
        &self,
        path: &PoolPath,
        policy: &Policy,
        set_at: Option<u64>,
    ) -> Result<ChangingFiles, Error> {
        let mut changing = ChangingFiles::default();
        self.set_below(path, policy, set_at, &mut changing).await?;
        for staged in self.staged_for(path).await? {
            match self.set_below(&staged, policy, set_at, &mut changing).await {
                // Nothing is staged for the path, or the checkpoint ended meanwhile.
                Err(Error::NoEntry(_) | Error::NotADirectory(_)) => {}
                done => done?,
            }
        }
        Ok(changing)
    }

    async fn set_below(
        &self,
        path: &PoolPath,
        policy: &Policy,
        set_at: Option<u64>,
        changing: &mut ChangingFiles,
    ) -> Result<(), Error> {
        let mut after = None;
        loop {
            let policy = policy.clone();
            let page = self.catalog.follow_policy(path.clone(), policy, after, set_at).await?;
            changing.files += page.files;
            changing.bytes += page.bytes;
            changing.needs_bytes += page.needs_bytes;
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Returns the places that stand for `path` in the staging directories of checkpoints whose targets are at or above
    /// `path`, except for staging directories that are below `path` themselves.
    async fn staged_for(&self, path: &PoolPath) -> Result<Vec<PoolPath>, Error> {
        let open = self.catalog.checkpoints().await?.open.into_iter();
        let staged =
            open.filter(|open| path.is_inside(&open.target) && !open.staging.is_inside(path));
        let below = |open: OpenCheckpoint| {
            let names = &path.names()[open.target.names().len()..];
            open.staging.join_all(names.iter().map(String::as_str)).ok()
        };
        Ok(staged.filter_map(below).collect())
    }
}
