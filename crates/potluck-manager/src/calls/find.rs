//! How members find the pool again when its manager moves.

use super::Answer;
use crate::callers::Caller;
use crate::service::Service;
use potluck_wire::control::{Find, Found};
use potluck_wire::error::Failure;
use std::sync::Arc;

/// Donors named at most: one that knows is enough.
const DONORS: usize = 8;

impl Answer for Find {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Found, Failure> {
        let now = service.time.tick();
        let donors = {
            let pool = service.pool();
            let live = pool.live_donors(now).into_iter().take(DONORS);
            live.filter_map(|donor| Some(pool.contact(donor, now)?.addresses)).collect()
        };
        Ok(Found { manager: service.whereabouts(), donors })
    }
}
