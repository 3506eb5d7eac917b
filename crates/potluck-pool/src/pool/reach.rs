//! Whether donors are reached by the manager and by members.

use super::Pool;
use crate::donor_table::DonorContact;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId};
use potluck_wire::addresses::{Address, Addresses};
use std::collections::BTreeSet;
use std::net::IpAddr;

impl Pool {
    /// Donors that are not heard now, and where they were before.
    pub fn missing(&self, now: Tick) -> Vec<(DonorId, Addresses)> {
        self.located().filter(|(donor, _)| !self.is_heard(*donor, now)).collect()
    }

    /// All donors, and where they are or were.
    pub fn located(&self) -> impl Iterator<Item = (DonorId, Addresses)> {
        let known = self.donors.iter().map(|(id, donor)| (id, donor.record.addresses.clone()));
        known.filter(|(_, addresses)| !addresses.is_empty())
    }

    /// Whether a donor is where the catalog says, as far as it is known at all.
    pub fn is_at(&self, donor: DonorId, addresses: &Addresses) -> bool {
        self.donors.get(donor).is_none_or(|donor| donor.record.addresses == *addresses)
    }

    /// Notes where a donor is, as the catalog has it by now.
    pub fn moved(&mut self, donor: DonorId, addresses: Addresses) {
        if let Some(donor) = self.donors.get_mut(donor) {
            donor.record.addresses = addresses;
        }
    }

    /// Donors that are heard and whose addresses are to be tried.
    pub fn due_for_a_try(&self, now: Tick) -> Vec<DonorContact> {
        let due = |donor: &DonorId| {
            self.donors
                .registration(*donor)
                .is_some_and(|registration| registration.reach.next <= now)
        };
        let heard = self.live_donors(now).into_iter().filter(due);
        heard.filter_map(|donor| self.contact(donor, now)).collect()
    }

    /// A member says that it reaches a donor nowhere. The manager tries soon: a donor that does not answer it
    /// either has died or is closed to all, and that shows by itself. So a member who lies can raise an
    /// alarm in his own name and nothing more. It comes `from` an address: for several in one place, that may be what is
    /// wrong.
    pub fn not_reached_by(&mut self, member: MemberId, from: IpAddr, donor: DonorId, now: Tick) {
        if let Some(registration) = self.donors.registration_mut(donor) {
            registration.reach.complain(member, from, now);
        }
    }

    /// Members who said lately that they do not reach a live donor, though the manager does, and from how many addresses
    /// they did.
    pub fn unreached_by(&self, donor: DonorId, now: Tick) -> (Vec<MemberId>, u64) {
        let registration = self.donors.registration(donor).filter(|_| self.is_heard(donor, now));
        let said = registration.into_iter().flat_map(|it| it.reach.unreached_by(now));
        let (members, from): (Vec<_>, BTreeSet<_>) = said.unzip();
        (members, from.len() as u64)
    }

    /// A donor's addresses were tried: those at which it was reached come first from now on.
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
