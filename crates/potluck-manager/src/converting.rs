//! Conversion: versions that have all the redundancy of their goals give their earlier redundancy up.

use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::shared_pool::SharedPool;
use potluck_catalog::{Catalog, Error};
use potluck_core::ids::VersionId;
use potluck_core::policy::Redundancy;

handles! {
    /// The handles for changing redundancy.
    pub struct Conversions {
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
    }
}

/// The most versions in one job of the catalog's writer, which share one commit.
const PER_JOB: usize = 256;

impl Conversions {
    /// Changes those of `found` to their goals that still have all that these ask for. Returns how many it changed.
    pub async fn arrive(&self, mut found: Vec<(VersionId, Redundancy)>) -> Result<u64, Error> {
        let mut arrived = 0;
        while !found.is_empty() {
            let some: Vec<_> = found[..found.len().min(PER_JOB)].to_vec();
            let snapshot = self.pool.lock().snapshot(self.time.tick());
            let now_ms = self.time.now_ms();
            let (looked_at, there) = self.catalog.arrive(snapshot, some, now_ms).await?;
            found.drain(..looked_at);
            arrived += there;
        }
        Ok(arrived)
    }
}
