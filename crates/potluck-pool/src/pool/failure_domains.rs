//! Failure domains: donors with one label fail together, and so do those on one machine.

use super::Pool;
use potluck_core::ids::DonorId;
use potluck_core::repair_plan::Domain;
use std::collections::BTreeMap;

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
}
