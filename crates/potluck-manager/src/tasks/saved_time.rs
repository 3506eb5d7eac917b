//! Saves the pool's time, for the next term of the manager.

use crate::callers::KnownMembers;
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::shared_pool::SharedPool;
use potluck_catalog::{Catalog, Error};
use std::sync::Arc;

handles! {
    /// The handles for saving the time.
    pub struct SavedTime {
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        members: Arc<KnownMembers>,
    }
}

impl SavedTime {
    /// Saves the pool's time now, and the times when donors were heard and members were seen.
    pub async fn save(&self) -> Result<(), Error> {
        let now_ms = self.time.now_ms();
        let (silences, traffic) = {
            let (mut pool, now) = (self.pool.lock(), self.time.tick());
            pool.keep_traffic(now_ms as i64);
            (pool.silences(now), pool.traffic_to_save(now))
        };
        let heard: Vec<_> = silences
            .into_iter()
            .map(|(donor, silent)| (donor, now_ms.saturating_sub(silent.as_millis() as u64)))
            .collect();
        // The time and the moments at which donors were heard are saved together, so that the silence of each donor can
        // be told from them after a crash.
        let seen = self.members.seen();
        self.catalog.save_time(now_ms, seen, heard, traffic).await
    }
}
