//! Failure domains: donors with one label fail together, and so do those on one machine.

use super::Pool;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_core::repair_plan::Domain;
use std::collections::{BTreeMap, BTreeSet};

impl Pool {
    /// Returns the failure domain of each donor. Machines with one label share a domain, and a machine without a label
    /// has its own; the label of a machine is that of its first donor.
    pub(super) fn domains(&self) -> BTreeMap<DonorId, Domain> {
        let mut labels: BTreeMap<&str, Domain> = BTreeMap::new();
        let mut machines: BTreeMap<DonorId, Domain> = BTreeMap::new();
        let mut domains = BTreeMap::new();
        for (number, (id, donor)) in (1..).zip(self.donors.iter()) {
            // A machine fails as one, whatever its donors say: they all speak for one owner.
            let machine = self.donors.machine(id);
            let first = self.donors.get(machine).unwrap_or(donor);
            let own = match &first.record.label {
                Some(label) => *labels.entry(label).or_insert(number),
                None => *machines.entry(machine).or_insert(number),
            };
            domains.insert(id, own);
        }
        domains
    }

    /// Returns how many machines take copies now, those counted as one that fail together.
    pub fn machines(&self, now: Tick) -> usize {
        self.takers(now).iter().map(|taker| taker.domain).collect::<BTreeSet<_>>().len()
    }

    /// Returns whether there is room for a second copy of `bytes` on other machines than the first, if the first copies
    /// lie where most of what is stored lies.
    pub fn has_room_for_second_copies(&self, bytes: u64, now: Tick) -> bool {
        let (mut held, mut free) = (BTreeMap::<Domain, u64>::new(), BTreeMap::<Domain, u64>::new());
        for (id, domain) in self.domains() {
            *held.entry(domain).or_default() += self.held(id);
        }
        for taker in self.takers(now) {
            *free.entry(taker.domain).or_default() += taker.free;
        }
        let (all_held, all_free) = (held.values().sum::<u64>(), free.values().sum::<u64>());
        held.iter().all(|(domain, held)| {
            let here = u128::from(bytes) * u128::from(*held) / u128::from(all_held.max(1));
            let elsewhere = all_free - free.get(domain).copied().unwrap_or(0);
            here <= u128::from(elsewhere)
        })
    }
}
