//! Donors that answered puts with receipts that are not genuine: nobody can count on what they say to have stored, and
//! each file that is written over them fails. Such a receipt is proof only for the member that brings it,
//! which may have made the receipt up: so only that member's own sessions avoid the donor.

use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The time for which a member's sessions avoid a donor after its last false receipt.
const REMEMBERED: Duration = Duration::from_secs(86_400);

/// The time at which each member last brought a receipt of a donor that was not genuine.
#[derive(Debug, Default)]
pub struct FalseReceipts(BTreeMap<(MemberId, DonorId), Tick>);

impl FalseReceipts {
    /// Notes that a member brought a false receipt of a donor.
    pub fn note(&mut self, member: MemberId, donor: DonorId, now: Tick) {
        self.0.retain(|_, at| is_remembered(*at, now));
        self.0.insert((member, donor), now);
    }

    /// Returns the donors of which a member brought false receipts.
    pub fn seen_by(&self, member: MemberId, now: Tick) -> BTreeSet<DonorId> {
        let all = (member, DonorId(0))..=(member, DonorId(u32::MAX));
        let seen = self.0.range(all).filter(|(_, at)| is_remembered(**at, now));
        seen.map(|((_, donor), _)| *donor).collect()
    }

    /// Returns the members that brought false receipts of a donor.
    pub fn witnesses(&self, donor: DonorId, now: Tick) -> Vec<MemberId> {
        let seen = self.0.iter().filter(|((_, of), at)| *of == donor && is_remembered(**at, now));
        seen.map(|((member, _), _)| *member).collect()
    }

    /// Forgets a donor that is no longer in the pool.
    pub fn forget(&mut self, donor: DonorId) {
        self.0.retain(|(_, of), _| *of != donor);
    }
}

fn is_remembered(at: Tick, now: Tick) -> bool {
    now.saturating_sub(at) < REMEMBERED
}
