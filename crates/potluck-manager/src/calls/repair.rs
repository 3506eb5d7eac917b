//! Answers the calls that show and steer repair, and those about absence, trust and scrubs.

use super::{Answer, concerned};
use crate::callers::CallingMember;
use crate::handles::handles;
use crate::inquiries::Inquiries;
use crate::pool_status::Overview;
use crate::pool_time::PoolTime;
use crate::scan_state::ScanState;
use crate::shared_pool::SharedPool;
use crate::stats_cache::StatsCache;
use potluck_catalog::{Catalog, DonorNote};
use potluck_core::ids::DonorId;
use potluck_core::size::duration;
use potluck_wire::control::{
    Away, Done, RepairAction, RepairControl, RepairState, RepairStatus, ScrubNow, Trust,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::token::Role;
use std::sync::Arc;
use std::time::Duration;

handles! {
    /// The handles for steering repair.
    pub struct RepairCalls {
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        stats: Arc<StatsCache>,
        scan_state: Arc<ScanState>,
        inquiries: Inquiries,
        overview: Overview,
    }
}

/// The reason that is shown while an admin's pause stops repair.
const PAUSED: &str = "an admin paused it: `potluck repair resume` goes on";

/// The longest absence that anybody may announce. The donor's chunks are not made again meanwhile, and a donor that is
/// away for longer has left.
const LONGEST_ABSENCE: Duration = Duration::from_secs(365 * 86_400);

impl Answer<RepairStatus> for RepairCalls {
    async fn answer(self, _call: RepairStatus, _: CallingMember) -> Result<RepairState, Failure> {
        let stats = self.stats.get(&self.catalog, &self.time, &self.pool).await?;
        Ok(self.overview.repair_state(&stats))
    }
}

impl Answer<RepairControl> for RepairCalls {
    async fn answer(self, call: RepairControl, _: CallingMember) -> Result<RepairState, Failure> {
        let paused = (call.action == RepairAction::Pause).then(|| PAUSED.to_string());
        let now = self.time.tick();
        let breaker = {
            let mut pool = self.pool.lock();
            pool.repairs.paused.clone_from(&paused);
            if call.action == RepairAction::Now {
                pool.declare_silent_dead(now);
            }
            if call.action != RepairAction::Pause {
                pool.declare_dead(now);
            }
            pool.circuit_breaker()
        };
        self.catalog.note_repair(paused, breaker).await?;
        if call.action != RepairAction::Pause {
            self.scan_state.changed_anywhere(now); // an admin who asks for repair wants all files looked at
            self.scan_state.hurry(now);
        }
        let stats = self.stats.get(&self.catalog, &self.time, &self.pool).await?;
        Ok(self.overview.repair_state(&stats))
    }
}

impl Answer<Away> for RepairCalls {
    async fn answer(self, call: Away, caller: CallingMember) -> Result<Done, Failure> {
        let donor = concerned(&self.pool, &caller, call.donor)?;
        let asked = Duration::from_millis(call.for_ms);
        if asked > LONGEST_ABSENCE {
            let what = "an absence of at most 365 days can be announced";
            return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                .hint("`potluck drain` moves what a machine holds that is away for longer"));
        }
        if caller.member()?.role == Role::Donor && !asked.is_zero() {
            self.check_own_word(donor, asked)?;
        }
        let absent = (call.for_ms > 0).then(|| Duration::from_millis(call.for_ms));
        let until_ms = absent.map(|_| self.time.without_leaps_ms().saturating_add(call.for_ms));
        self.catalog.note_donor(donor, DonorNote::AwayUntil(until_ms)).await?;
        let now = self.time.tick();
        self.pool.lock().announce(donor, absent.map(|absent| now.saturating_add(absent)));
        Ok(Done {})
    }
}

impl RepairCalls {
    /// Refuses an absence that a donor announces for itself and that lasts too long, counted from when the donor was
    /// last heard. Otherwise a silent donor's owner could put off repair for ever.
    fn check_own_word(&self, donor: DonorId, asked: Duration) -> Result<(), Failure> {
        let (silent, longest) = {
            let pool = self.pool.lock();
            (pool.silence(donor, self.time.tick()).unwrap_or_default(), pool.longest_absence())
        };
        if silent.saturating_add(asked) <= longest {
            return Ok(());
        }
        let longest = duration(longest.as_secs());
        let what = format!(
            "a donor's owner can announce an absence of at most {longest} since it was heard"
        );
        Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what).hint(
            "an admin can announce more, with `potluck nodes away`, and set `manager.longest-absence`",
        ))
    }
}

impl Answer<Trust> for RepairCalls {
    async fn answer(self, call: Trust, caller: CallingMember) -> Result<Done, Failure> {
        let donor = concerned(&self.pool, &caller, Some(call.donor))?;
        self.inquiries.begin_probation(donor).await?;
        Ok(Done {})
    }
}

impl Answer<ScrubNow> for RepairCalls {
    async fn answer(self, call: ScrubNow, caller: CallingMember) -> Result<Done, Failure> {
        let now = self.time.tick();
        let donors = match call.donor {
            Some(donor) => vec![concerned(&self.pool, &caller, Some(donor))?],
            None => self.pool.lock().live_donors(now),
        };
        let mut pool = self.pool.lock();
        donors.into_iter().for_each(|donor| pool.order_scrub(donor, call.rate, now));
        Ok(Done {})
    }
}
