//! Failure domains: donors with one label fail together, and so do those on one machine.

use super::Pool;
use potluck_core::clock::Tick;
use potluck_core::ids::{Domain, DonorId};
use std::collections::{BTreeMap, BTreeSet};

impl Pool {
    /// Returns the failure domain of each donor, which has the number of its first machine. Machines with one label share
    /// a domain, and a machine without a label has its own; the label of a machine is that of its first donor.
    pub(super) fn domains(&self) -> &BTreeMap<DonorId, Domain> {
        self.donors.domains.get_or_init(|| {
            let mut labels = BTreeMap::<&str, Domain>::new();
            let (mut machines, mut domains) = (BTreeMap::new(), BTreeMap::new());
            for (id, donor) in self.donors.iter() {
                // A machine fails as one, whatever its donors say: they all speak for one owner.
                let machine = self.donors.machine(id);
                let own = machines.entry(machine).or_insert_with(|| match &donor.record.label {
                    Some(label) => *labels.entry(label).or_insert(machine.0),
                    None => machine.0,
                });
                domains.insert(id, *own);
            }
            domains
        })
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
            *held.entry(*domain).or_default() += self.held(*id);
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
