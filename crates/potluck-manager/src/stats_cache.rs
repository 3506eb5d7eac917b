//! Figures over the whole catalog, counted no more often than they are worth.

use crate::catalog::stats::{Stats, count};
use crate::catalog::{Catalog, Error};
use crate::pool_time::PoolTime;
use potluck_core::clock::Tick;
use std::sync::Mutex;

/// Counting may take one part in so many of the time: a small catalog is counted at every call, a
/// huge one every few seconds.
const SHARE: u32 = 20;

/// The last count, while it is good.
#[derive(Default)]
pub struct StatsCache(Mutex<Option<(Stats, Tick)>>);

impl StatsCache {
    /// The figures, counted now or a moment ago.
    pub async fn get(&self, catalog: &Catalog, time: &PoolTime) -> Result<Stats, Error> {
        let began = time.tick();
        if let Some((stats, good_until)) = &*self.0.lock().expect("no holder panics")
            && began < *good_until
        {
            return Ok(stats.clone());
        }
        let stats = catalog.read(count).await?;
        let ended = time.tick();
        let good_until = ended + ended.saturating_sub(began) * SHARE;
        *self.0.lock().expect("no holder panics") = Some((stats.clone(), good_until));
        Ok(stats)
    }

    /// Something changed that who asks next must see.
    pub fn forget(&self) {
        *self.0.lock().expect("no holder panics") = None;
    }
}
