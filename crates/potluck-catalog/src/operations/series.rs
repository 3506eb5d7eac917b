//! Series of steps, of which old ones are purged.

use crate::series::{self, Series};
use crate::when::When;
use crate::{Catalog, Durability, Error};
use potluck_core::path::PoolPath;

impl Catalog {
    /// The directories of which steps are purged.
    pub async fn all_series(&self) -> Result<Vec<PoolPath>, Error> {
        self.read(series::all).await
    }

    /// The steps of a directory, and what its rule says of each.
    pub async fn series(&self, path: PoolPath, when: When) -> Result<Series, Error> {
        let read = self.state.leases.leased(when.pool_ms);
        self.read(move |db| series::look(db, &path, &read, when.wall_ms)).await
    }

    /// Purges those of these steps that the rule still lets go, that are not pinned and that nobody reads, in one transaction;
    /// gives their names.
    pub async fn purge_steps(
        &self,
        path: PoolPath,
        names: Vec<String>,
        when: When,
    ) -> Result<Vec<String>, Error> {
        let purge = move |db: &crate::sql::Tx| {
            let read = db.leases().leased(when.pool_ms);
            series::purge(db, &path, &names, &read, when)
        };
        self.write(Durability::Disk, purge).await
    }

    /// Has a file or directory never be purged, or be purged as others.
    pub async fn pin(&self, path: PoolPath, pinned: bool) -> Result<(), Error> {
        self.write(Durability::Disk, move |db| series::pin(db, &path, pinned)).await
    }
}
