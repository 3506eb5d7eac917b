//! Judges whether a donor is live, suspect, silent, away or dead: what its silence means by the pool's limits and by
//! its owner's announcements.

use super::donor_table::DonorTable;
use super::limits::PoolLimits;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_wire::control::DonorState;
use std::time::Duration;

impl DonorTable {
    /// Returns how long a donor has been silent; `None` if it was never heard. Silence during an earlier term of the
    /// manager counts, the time between its end and this term's start does not: nobody listened.
    pub fn silence(&self, donor: DonorId, now: Tick) -> Option<Duration> {
        let donor = self.all.get(&donor)?;
        Some(match donor.heard {
            Some(heard) => now.saturating_sub(heard),
            None => donor.record.silent_before? + now.saturating_sub(self.started),
        })
    }

    /// Returns how long a donor may be silent before it is given up: what it asked for, but no less than the pool's
    /// grace, and no more than the longest absence that the pool grants anybody.
    pub fn grace(&self, donor: DonorId, limits: &PoolLimits) -> Duration {
        let own = self.all.get(&donor).and_then(|donor| donor.record.grace);
        own.unwrap_or_default().min(limits.longest_absence).max(limits.grace)
    }

    pub fn state(&self, id: DonorId, now: Tick, limits: &PoolLimits) -> DonorState {
        let Some(donor) = self.all.get(&id) else { return DonorState::Silent };
        if donor.has_never_lent() {
            return DonorState::Joined;
        }
        let heard = donor.heard.map(|heard| now.saturating_sub(heard));
        let well = !donor.diskless() && !donor.is_off() && !donor.hung_up;
        if well && heard.is_some_and(|silent| silent <= limits.suspect_after) {
            return DonorState::Live;
        }
        let unheard = || now.saturating_sub(self.started);
        let silent = self.silence(id, now).unwrap_or_else(unheard);
        let announced = donor.is_announced(now);
        if donor.record.declared_dead || (silent > self.grace(id, limits) && !announced) {
            return DonorState::Dead;
        }
        match heard {
            _ if announced => DonorState::Away,
            Some(silent) if silent <= limits.silent_after => DonorState::Suspect,
            _ => DonorState::Silent,
        }
    }

    pub fn is_live(&self, donor: DonorId, now: Tick, limits: &PoolLimits) -> bool {
        self.is_registered(donor) && self.state(donor, now, limits) == DonorState::Live
    }
}
