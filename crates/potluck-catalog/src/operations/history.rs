//! Operations on files, directories and links that were replaced or removed and are kept.

use crate::checkpoints::checkpoint_rows;
use crate::history::{
    kept, snapshots,
    taken_snapshot::TakenSnapshot,
    {self, BroughtBack},
};
use crate::when::When;
use crate::{Catalog, Durability, Error, SeenSpaces};
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_wire::control::{KeptListed, KeptScope};

/// The most kept things that one transaction lets go: each may have a thousand chunks.
const LET_GO_AT_ONCE: usize = 8;

impl Catalog {
    /// Returns a page of what is kept of a name, or below a directory.
    pub async fn kept(
        &self,
        path: PoolPath,
        scope: KeptScope,
        after: Option<String>,
        now_ms: u64,
        seen: SeenSpaces,
    ) -> Result<KeptListed, Error> {
        self.read(move |db| kept::list(db, &path, scope, after.as_deref(), now_ms, &seen)).await
    }

    /// Brings a kept thing back to the name that it had: the one with this `number`, or the one that was kept last. An
    /// entry that has the name now is kept in turn. With `removed`, the thing must have been removed, and nothing may
    /// have the name.
    pub async fn bring_back(
        &self,
        path: PoolPath,
        number: Option<VersionId>,
        removed: bool,
        when: When,
    ) -> Result<BroughtBack, Error> {
        let bring = move |db: &_| {
            checkpoint_rows::check_writable(db, &path, None)?;
            history::bring_back(db, &path, number, removed, when)
        };
        self.write(Durability::Disk, bring).await
    }

    /// Lets go for good those of the given things that are kept of `path` or below it, a few in each transaction. A
    /// thing that a snapshot shows stays for the snapshot.
    pub async fn let_go(
        &self,
        path: PoolPath,
        numbers: Vec<VersionId>,
        when: When,
    ) -> Result<(), Error> {
        for numbers in numbers.chunks(LET_GO_AT_ONCE) {
            let (path, numbers) = (path.clone(), numbers.to_vec());
            let let_go = move |db: &_| history::let_go_of(db, &path, &numbers, when);
            self.write(Durability::Disk, let_go).await?;
        }
        Ok(())
    }

    /// Takes a snapshot of a directory, which can be read below the directory from then on.
    pub async fn take_snapshot(
        &self,
        dir: PoolPath,
        name: String,
        when: When,
    ) -> Result<TakenSnapshot, Error> {
        self.write(Durability::Disk, move |db| snapshots::take(db, &dir, &name, when)).await
    }

    /// Removes a snapshot; what only it kept is let go in the background.
    pub async fn remove_snapshot(&self, dir: PoolPath, name: String) -> Result<(), Error> {
        self.write(Durability::Disk, move |db| snapshots::remove(db, &dir, &name)).await
    }

    /// Returns the snapshots of a directory, the oldest first.
    pub async fn snapshots(&self, dir: PoolPath) -> Result<Vec<TakenSnapshot>, Error> {
        self.read(move |db| snapshots::of_dir(db, &dir)).await
    }
}
