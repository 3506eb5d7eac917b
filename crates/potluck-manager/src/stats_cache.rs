//! The figures over the whole catalog, which are counted again only when the last count is too old.

use crate::pool_time::PoolTime;
use crate::shared_pool::SharedPool;
use potluck_catalog::{Catalog, Error, ReadFor, Stats};
use potluck_core::clock::Tick;
use std::sync::{Mutex, MutexGuard};

/// The divisor for the share of time that counting may take: a small catalog is counted at every call, a huge one
/// every few seconds.
const SHARE: u32 = 20;

/// The last count, with the moment until which it is good.
#[derive(Default)]
pub struct StatsCache {
    cached: Mutex<CachedMetrics>,
    /// The lock that a caller holds while it counts; the others wait, and take its figures.
    counting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct CachedMetrics {
    /// The number of times that the figures were forgotten.
    forgotten: u64,
    count: Option<(Stats, Tick)>,
}

impl CachedMetrics {
    fn good(&self, now: Tick) -> Option<Stats> {
        let (stats, good_until) = self.count.as_ref()?;
        (now < *good_until).then(|| stats.clone())
    }

    /// Keeps figures that were counted from the moment when [`Self::forgotten`] was `forgotten`, unless figures were
    /// forgotten since.
    fn keep(&mut self, forgotten: u64, stats: Stats, good_until: Tick) {
        if self.forgotten == forgotten {
            self.count = Some((stats, good_until));
        }
    }

    fn forget(&mut self) {
        self.forgotten += 1;
        self.count = None;
    }
}

impl StatsCache {
    /// Returns the figures, counted now or not long ago: a count is good for [`SHARE`] times the time that it took.
    pub async fn get(
        &self,
        catalog: &Catalog,
        time: &PoolTime,
        pool: &SharedPool,
    ) -> Result<Stats, Error> {
        if let Some(stats) = self.cached().good(time.tick()) {
            return Ok(stats);
        }
        let _counting = self.counting.lock().await;
        let began = time.tick();
        let forgotten = {
            let cached = self.cached();
            if let Some(stats) = cached.good(began) {
                return Ok(stats);
            }
            cached.forgotten
        };
        let dead = pool.lock().dead(began);
        // All callers wait for the count, which must not wait for other reads of the one that began it.
        let stats = catalog.read_by(ReadFor::Manager).stats(dead).await?;
        let ended = time.tick();
        let good_until = ended + ended.saturating_sub(began) * SHARE;
        self.cached().keep(forgotten, stats.clone(), good_until);
        Ok(stats)
    }

    /// Returns the figures of the last count, however old; `None` before the first and after [`Self::forget`].
    pub fn latest(&self) -> Option<Stats> {
        self.cached().count.as_ref().map(|(stats, _)| stats.clone())
    }

    /// Forgets the figures, because something changed that the next caller must see.
    pub fn forget(&self) {
        self.cached().forget();
    }

    fn cached(&self) -> MutexGuard<'_, CachedMetrics> {
        self.cached.lock().expect("no holder panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_began_before_a_change_is_not_kept_after_it() {
        let mut cached = CachedMetrics::default();
        let (now, later) = (Tick::from_secs(1), Tick::from_secs(9));
        let began = cached.forgotten;
        cached.forget(); // while it counts
        cached.keep(began, Stats::default(), later);
        assert!(cached.good(now).is_none());
        cached.keep(cached.forgotten, Stats { files: 1, ..Stats::default() }, later);
        assert_eq!(cached.good(now).map(|stats| stats.files), Some(1));
        assert!(cached.good(later).is_none());
    }
}
