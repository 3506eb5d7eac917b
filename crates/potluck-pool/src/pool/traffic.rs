//! Traffic between members and donors: what is told of it, and what is kept.

use super::Pool;
use potluck_core::clock::{Tick, UnixMillis};
use potluck_core::ids::{DonorId, MemberId};
use potluck_wire::control::{DonorTraffic, MOST_TOLD};

impl Pool {
    /// Notes what a member tells of its traffic. A donor has no say here on itself or on others.
    pub fn told_traffic(&mut self, member: MemberId, told: &[DonorTraffic], now: Tick) {
        if self.donors.get(DonorId(member.0)).is_some() {
            return;
        }
        for DonorTraffic { donor, traffic } in told.iter().take(MOST_TOLD) {
            if let Some(known) = self.donors.get_mut(*donor) {
                known.traffic.measured(member, traffic, now);
            }
        }
    }

    /// Moves what is new into the histories of donors.
    pub fn keep_traffic(&mut self, now: UnixMillis) {
        self.donors.all.values_mut().for_each(|donor| donor.traffic.keep(now));
    }
}
