//! Answers the calls by which members find the pool again when its manager moves.

use super::Answer;
use crate::callers::CallingMember;
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::shared_pool::SharedPool;
use crate::tasks::signpost::OwnWhereabouts;
use potluck_wire::control::{Find, Found};
use potluck_wire::error::Failure;

handles! {
    /// The handles for telling where the manager is.
    pub struct FindCalls {
        time: PoolTime,
        pool: SharedPool,
        whereabouts: OwnWhereabouts,
    }
}

/// The most donors that are named in a reply: one that knows the manager is enough.
const DONORS: usize = 8;

impl Answer<Find> for FindCalls {
    async fn answer(self, _call: Find, _: CallingMember) -> Result<Found, Failure> {
        let now = self.time.tick();
        let donors = {
            let pool = self.pool.lock();
            let live = pool.live_donors(now).into_iter().take(DONORS);
            live.filter_map(|donor| Some(pool.contact(donor, now)?.addresses)).collect()
        };
        Ok(Found { manager: self.whereabouts.signed(), donors })
    }
}
