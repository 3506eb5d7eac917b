//! Traffic between members and donors: what is told of it, and what is kept.

use super::Pool;
use crate::donor_table::{DonorContact, Registration};
use crate::known_traffic::{KnownTraffic, SavedTraffic};
use potluck_core::clock::{Tick, UnixMillis};
use potluck_core::ids::{DonorId, MemberId};
use potluck_core::traffic::BothWays;
use potluck_wire::addresses::Addresses;
use potluck_wire::control::{DonorTraffic, MOST_TOLD};
use std::ops::Bound;

/// The donors of which the traffic is saved at once: some hundred kilobytes.
const SAVED_AT_ONCE: usize = 64;

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

    /// Chooses a donor for a diagnostic transfer: one that is heard, was reached, is limited by nothing, and of which a
    /// rate is not known. It is not chosen again for a while.
    pub fn choose_for_diagnosis(&mut self, now: Tick) -> Option<DonorContact> {
        let chosen = self.live_donors(now).into_iter().find(|donor| {
            let Some(known) = self.donors.get_mut(*donor) else { return false };
            let is_ready = known.registration.as_ref().is_some_and(|registration| {
                // Its limits are in its heartbeats.
                let is_heard = registration.write_sequence.is_some();
                let BothWays { read, written } = registration.load.limits;
                let is_free = is_heard && read.is_none() && written.is_none();
                is_free && registration.reach.was_reached()
            });
            is_ready && known.traffic.begin_diagnosis(now)
        });
        self.contact(chosen?, now)
    }

    /// Notes that a donor refused a diagnostic transfer.
    pub fn refused_diagnosis(&mut self, donor: DonorId, now: Tick) {
        if let Some(known) = self.donors.get_mut(donor) {
            known.traffic.refused_diagnosis(now);
        }
    }

    /// Notes what a diagnostic transfer told, unless the donor has gone to another line meanwhile.
    pub fn diagnosed(&mut self, donor: DonorId, at: &Addresses, rates: BothWays<u64>) {
        let Some(known) = self.donors.get_mut(donor) else { return };
        let is_there = |it: &Registration| at.iter().any(|address| it.addresses.contains(address));
        if known.registration.as_ref().is_some_and(is_there) {
            known.traffic.diagnosed(rates);
        }
    }

    /// Returns what is to be saved now of some donors' traffic. All donors have their turns, a few each time, so that
    /// the cost of a save does not grow with the pool.
    pub fn traffic_to_save(&mut self, now: Tick) -> Vec<(DonorId, SavedTraffic)> {
        let later = (Bound::Excluded(self.traffic_saved_to), Bound::Unbounded);
        let after = self.donors.all.range(later);
        let others = self.donors.all.range(..=self.traffic_saved_to);
        let next = after.chain(others).filter(|(_, donor)| donor.heard.is_some());
        let saved = next.take(SAVED_AT_ONCE).map(|(id, donor)| (*id, donor.traffic.saved(now)));
        let saved: Vec<_> = saved.collect();
        self.traffic_saved_to = saved.last().map_or(DonorId(0), |(id, _)| *id);
        saved
    }

    /// Takes over what an earlier term of the manager knew of a donor's traffic.
    pub fn recall_traffic(&mut self, donor: DonorId, saved: SavedTraffic, now: Tick) {
        if let Some(known) = self.donors.get_mut(donor) {
            known.traffic = KnownTraffic::recalled(saved, now);
        }
    }

    /// Moves what is new into the histories of donors.
    pub fn keep_traffic(&mut self, now: UnixMillis) {
        self.donors.all.values_mut().for_each(|donor| donor.traffic.keep(now));
    }
}
