//! Operations on series of steps, of which old steps are purged.

pub(crate) mod steps;

use crate::names::entries;
use crate::operations::series::steps::{Series, SeriesStep};
use crate::when::When;
use crate::{Catalog, Durability, Error};
use potluck_core::path::PoolPath;
use std::sync::Arc;

impl Catalog {
    /// Returns the directories of which steps are purged.
    pub async fn all_series(&self) -> Result<Vec<PoolPath>, Error> {
        self.read(steps::all).await
    }

    /// Returns the steps of a directory, and what its rule says of each.
    pub async fn series(&self, path: PoolPath, when: When) -> Result<Series, Error> {
        let read = self.state.leases.leased(when.pool_ms);
        self.read(move |db| steps::look(db, &path, read.clone(), when)).await
    }

    /// Purges, in one transaction, those of the given steps that may go and are as they were when the series was looked
    /// at. Returns their names.
    pub async fn purge_steps(
        &self,
        looked_at: Arc<Series>,
        steps: Vec<SeriesStep>,
        when: When,
    ) -> Result<Vec<String>, Error> {
        let purge = move |db: &_| steps::purge(db, &looked_at, &steps, when);
        self.write(Durability::Disk, purge).await
    }

    /// Notes that these steps of a series were used at `now_ms`, in the pool's time without its leaps.
    pub async fn note_steps(
        &self,
        path: PoolPath,
        names: Vec<String>,
        now_ms: u64,
    ) -> Result<(), Error> {
        let note = move |db: &crate::sql::Tx| steps::note_steps(db, &path, &names, now_ms);
        self.write(Durability::Disk, note).await
    }

    /// Notes the use of the steps that lead to a path which is read or written, and of those below it, in series that
    /// purge unused steps. Mostly nothing is to be noted, and this only reads. `now_ms` is the pool's time without its
    /// leaps.
    pub async fn note_use(&self, path: PoolPath, now_ms: u64) -> Result<(), Error> {
        let steps = self.read(move |db| steps::used_by(db, &path, now_ms)).await?;
        if steps.is_empty() {
            return Ok(());
        }
        let note = move |db: &crate::sql::Tx| {
            steps.iter().try_for_each(|(dir, name)| entries::set_used(db, *dir, name, now_ms))
        };
        self.write(Durability::Disk, note).await
    }

    /// Pins an entry, so that it is never purged from a series, or takes the pin away.
    pub async fn pin(&self, path: PoolPath, pinned: bool) -> Result<(), Error> {
        self.write(Durability::Disk, move |db| steps::pin(db, &path, pinned)).await
    }
}
