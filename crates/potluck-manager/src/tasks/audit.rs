//! Audit: donors prove that they still have the chunks that they say they have.
//!
//! The manager fetches a segment of a chunk, both drawn that moment, and proves it by the chunk's name; a donor that has
//! thrown the bytes away cannot send it. A challenge a minute to a tenth of the donors asks every donor some 140 times a
//! day: a donor that lost 5 % of its chunks is overlooked for a day less than once in a thousand times (promise R2). That
//! moves some 9 MiB a day from each donor.

use crate::handles::handles;
use crate::inquiries::Inquiries;
use crate::outcomes::Outcomes;
use crate::pool_time::PoolTime;
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use futures_util::{StreamExt, stream};
use potluck_catalog::{Catalog, Error};
use potluck_core::ids::DonorId;
use potluck_wire::env::Env;
use std::sync::Arc;
use tokio::time::MissedTickBehavior;

handles! {
    /// The handles for challenging donors.
    pub struct Audit {
        settings: Arc<Settings>,
        env: Env,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        inquiries: Inquiries,
    }
}

/// The divisor for the share of donors that are challenged each time: one donor in so many.
const SHARE: usize = 10;

/// The most donors that are challenged at once, so that one which does not answer does not hold up the others.
const AT_ONCE: usize = 8;

impl Audit {
    /// Challenges a share of the donors in turn at each interval, until it is dropped.
    pub async fn run(&self) {
        let mut interval = tokio::time::interval(self.settings.get().audit_every);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut turn, mut outcomes) = (0, Outcomes::default());
        loop {
            interval.tick().await;
            let live = self.pool.lock().live_donors(self.time.tick());
            let due = (turn..turn + live.len().div_ceil(SHARE)).map(|turn| live[turn % live.len()]);
            let due: Vec<DonorId> = due.collect();
            turn += due.len();
            let challenges = stream::iter(due).map(|donor| self.challenge(donor));
            let mut challenges = challenges.buffer_unordered(AT_ONCE);
            while let Some(outcome) = challenges.next().await {
                outcomes.note("auditing", outcome);
            }
        }
    }

    /// Challenges a donor about one of its chunks, drawn at random. A donor that fails has to look at its copy.
    async fn challenge(&self, donor: DonorId) -> Result<(), Error> {
        let drawn = self.catalog.sample(donor, 1, self.env.entropy.u64()).await?.pop();
        let Some(copy) = drawn else { return Ok(()) };
        if self.inquiries.is_right(donor, copy, true).await == Some(false) {
            self.pool.lock().accuse(donor, copy, None, self.time.tick());
        }
        Ok(())
    }
}
