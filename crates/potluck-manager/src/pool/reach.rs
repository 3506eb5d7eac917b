//! How donors were reached when the manager tried.

use super::Pool;
use super::donors::Contact;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_wire::addresses::{Address, Addresses};
use std::time::Duration;

/// A donor that was reached is tried again so much later.
const AGAIN: Duration = Duration::from_secs(300);
/// One that was not is tried again so soon: somebody may be at its firewall.
const SOON: Duration = Duration::from_secs(5);
/// So many tries in a row without an answer are no accident.
const FAILED: u32 = 2;

/// How a donor was reached since it registered.
#[derive(Debug, Default)]
pub struct Reach {
    /// When to try next.
    next: Tick,
    /// Tries in a row that nobody answered.
    failures: u32,
    /// What came of the last try.
    why: String,
}

impl Reach {
    /// Why nobody reaches the donor, if so.
    pub fn unreachable(&self) -> Option<&str> {
        (self.failures >= FAILED).then_some(self.why.as_str())
    }
}

impl Pool {
    /// Donors that have not registered since the manager's start, and where they were before.
    pub fn missing(&self) -> Vec<(DonorId, Addresses)> {
        let missing = self.donors.iter().filter(|(_, donor)| donor.life.is_none());
        let known = missing.map(|(id, donor)| (id, donor.record.addresses.clone()));
        known.filter(|(_, addresses)| !addresses.is_empty()).collect()
    }

    /// Notes where a donor is; whether that is news.
    pub fn moved(&mut self, donor: DonorId, addresses: &Addresses) -> bool {
        let Some(donor) = self.donors.get_mut(donor) else { return false };
        let moved = donor.record.addresses != *addresses;
        donor.record.addresses.clone_from(addresses);
        moved
    }

    /// Donors that are heard and whose addresses are to be tried.
    pub fn due_for_a_try(&self, now: Tick) -> Vec<Contact> {
        let due =
            |donor: &DonorId| self.donors.life(*donor).is_some_and(|life| life.reach.next <= now);
        let heard = self.live_donors(now).into_iter().filter(due);
        heard.filter_map(|donor| self.contact(donor, now)).collect()
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
        let Some(life) = self.donors.life_mut(donor) else { return };
        if life.addresses != *addresses {
            return; // it registered anew meanwhile
        }
        let reach = &mut life.reach;
        match reached {
            [] => {
                (reach.failures, reach.why) = (reach.failures + 1, why);
                reach.next = now + SOON;
                if reach.failures == FAILED {
                    tracing::warn!(%donor, "cannot be reached: {}", reach.why);
                }
            }
            _ => {
                if reach.failures >= FAILED {
                    tracing::info!(%donor, "can be reached again");
                }
                reach.failures = 0;
                reach.next = now + AGAIN;
                life.addresses = addresses.preferring(|address| reached.contains(address));
            }
        }
    }
}
