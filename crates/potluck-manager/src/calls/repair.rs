//! Looking at repair and steering it; absence, trust, scrub.

use super::{Answer, concerned};
use crate::callers::Caller;
use crate::pool_status;
use crate::probation;
use crate::repair;
use crate::service::Service;
use potluck_wire::control::{
    Away, Done, RepairAction, RepairControl, RepairState, RepairStatus, ScrubNow, Trust,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::sync::Arc;
use std::time::Duration;

/// The reason that an admin's pause gives.
const PAUSED: &str = "an admin paused it: `potluck repair resume` goes on";

/// Nothing is made again meanwhile: who is away for longer has left.
const LONGEST_ABSENCE: Duration = Duration::from_secs(365 * 86_400);

impl Answer for RepairStatus {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<RepairState, Failure> {
        let stats = service.stats.get(&service.catalog, &service.time).await?;
        let state = service.pool().repair_state(service.time.tick());
        Ok(pool_status::repair_state(&service, state, &stats))
    }
}

impl Answer for RepairControl {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<RepairState, Failure> {
        let paused = (self.action == RepairAction::Pause).then(|| PAUSED.to_string());
        service.catalog.pause_repair(paused.clone()).await?;
        let now = service.time.tick();
        let (state, breaker) = {
            let mut pool = service.pool();
            pool.repairs.paused = paused;
            if self.action == RepairAction::Now {
                pool.dismiss_silent(now);
            }
            if self.action != RepairAction::Pause {
                pool.declare_dead(now);
            }
            (pool.repair_state(now), pool.circuit_breaker())
        };
        repair::note_circuit_breaker(&service, &breaker).await?;
        if self.action != RepairAction::Pause {
            service.scan_state.hurry(now);
        }
        let stats = service.stats.get(&service.catalog, &service.time).await?;
        Ok(pool_status::repair_state(&service, state, &stats))
    }
}

impl Answer for Away {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<Done, Failure> {
        let donor = concerned(&service, &caller, self.donor)?;
        if Duration::from_millis(self.for_ms) > LONGEST_ABSENCE {
            let what = "an absence of at most 365 days can be announced";
            return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                .hint("`potluck nodes drain` moves what a machine holds that is away for longer"));
        }
        let absent = (self.for_ms > 0).then(|| Duration::from_millis(self.for_ms));
        let until_ms = absent.map(|_| service.time.now_ms().saturating_add(self.for_ms));
        service.catalog.announce_away(donor, until_ms).await?;
        let now = service.time.tick();
        service.pool().announce(donor, absent.map(|absent| now.saturating_add(absent)));
        Ok(Done {})
    }
}

impl Answer for Trust {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<Done, Failure> {
        let donor = concerned(&service, &caller, Some(self.donor))?;
        probation::begin(&service, donor).await?;
        Ok(Done {})
    }
}

impl Answer for ScrubNow {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<Done, Failure> {
        let now = service.time.tick();
        let donors = match self.donor {
            Some(donor) => vec![concerned(&service, &caller, Some(donor))?],
            None => service.pool().live_donors(now),
        };
        let mut pool = service.pool();
        donors.into_iter().for_each(|donor| pool.order_scrub(donor, self.rate, now));
        Ok(Done {})
    }
}
