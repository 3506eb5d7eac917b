//! Notes where donors are, and whether the manager and members reach them.

use super::Pool;
use crate::donor_table::DonorContact;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId};
use potluck_wire::addresses::{Address, Addresses};
use std::collections::BTreeSet;
use std::net::IpAddr;

impl Pool {
    /// Returns the donors with known addresses that are not heard now, each with the last of these.
    pub fn missing(&self, now: Tick) -> Vec<(DonorId, Addresses)> {
        self.located().filter(|(donor, _)| !self.is_heard(*donor, now)).collect()
    }

    /// Returns the donors whose addresses are known, each with the last of these.
    pub fn located(&self) -> impl Iterator<Item = (DonorId, Addresses)> {
        let known = self.donors.iter().map(|(id, donor)| (id, donor.record.addresses.clone()));
        known.filter(|(_, addresses)| !addresses.is_empty())
    }

    /// Returns whether these are the addresses that the catalog has of a donor; `true` for an unknown donor.
    pub fn is_at(&self, donor: DonorId, addresses: &Addresses) -> bool {
        self.donors.get(donor).is_none_or(|donor| donor.record.addresses == *addresses)
    }

    /// Notes where a donor is, as the catalog has it by now.
    pub fn moved(&mut self, donor: DonorId, addresses: Addresses) {
        if let Some(donor) = self.donors.get_mut(donor) {
            // A machine changes some of its addresses where it is, and all of them only when it goes elsewhere.
            let had = |host| donor.record.addresses.iter().any(|address| address.host() == host);
            let stays = addresses.iter().any(|address| had(address.host()));
            if !stays && !donor.record.addresses.is_empty() {
                donor.traffic.is_on_another_line();
            }
            donor.record.addresses = addresses;
        }
    }

    /// Returns the donors that are heard, have listed what they hold, and whose addresses are to be tried now.
    pub fn due_for_a_try(&self, now: Tick) -> Vec<DonorContact> {
        let due = |donor: &DonorId| {
            self.donors
                .registration(*donor)
                .is_some_and(|registration| registration.reach.next <= now)
        };
        let heard = self.live_donors(now).into_iter().filter(due);
        heard.filter_map(|donor| self.contact(donor, now)).collect()
    }

    /// Notes that a member reaches a donor at none of its addresses. The manager tries soon: a donor that does not
    /// answer the manager either has died or is closed to all, and that shows by itself. So a member who lies can raise
    /// an alarm in his own name and nothing more. The address `from` which the report came is kept: where several
    /// members in one place report, the place may be at fault.
    pub fn not_reached_by(&mut self, member: MemberId, from: IpAddr, donor: DonorId, now: Tick) {
        if let Some(registration) = self.donors.registration_mut(donor) {
            registration.reach.complain(member, from, now);
        }
    }

    /// Returns the members who said lately that they do not reach a live donor, though the manager does, and from how
    /// many addresses they said so.
    pub fn unreached_by(&self, donor: DonorId, now: Tick) -> (Vec<MemberId>, u64) {
        let registration = self.donors.registration(donor).filter(|_| self.is_heard(donor, now));
        let said = registration.into_iter().flat_map(|it| it.reach.unreached_by(now));
        let (members, from): (Vec<_>, BTreeSet<_>) = said.unzip();
        (members, from.len() as u64)
    }

    /// Notes that a donor's addresses were tried: those at which it was reached come first from now on.
    pub fn tried(
        &mut self,
        donor: DonorId,
        addresses: &Addresses,
        reached: &[Address],
        why: String,
        now: Tick,
    ) {
        let Some(registration) = self.donors.registration_mut(donor) else { return };
        if registration.addresses != *addresses {
            return; // it registered anew meanwhile
        }
        match reached {
            [] if registration.reach.failed(why, now) => {
                tracing::warn!(%donor, "cannot be reached: {}", registration.reach.why);
            }
            [] => {}
            _ => {
                if registration.reach.reached(now) {
                    tracing::info!(%donor, "can be reached again");
                }
                registration.addresses = addresses.preferring(|address| reached.contains(address));
            }
        }
    }
}
