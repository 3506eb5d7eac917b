//! Which donor takes which copy or chunk of a group: the plan's own slots while they keep up,
//! otherwise whoever of the plan has room.

use crate::donors::Donors;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_core::pace::{Pace, choose, overdue};
use potluck_core::placement::Plan;
use potluck_core::policy::AckLevel;
use potluck_wire::ticket::Receipt;
use std::collections::{BTreeMap, BTreeSet};

/// The donors a session may write to.
pub struct Copies {
    donors: Donors,
    plan: Plan,
    usable: BTreeSet<DonorId>,
    failed: BTreeSet<DonorId>,
    next_slot: u64,
}

/// One chunk on its way to its copies.
pub struct Spread {
    /// Copies still to be made, those under way included.
    pub want: u32,
    /// Donors it was sent to, or that held it already.
    pub targets: Vec<DonorId>,
    /// Donors that acknowledged it.
    pub acks: Vec<Ack>,
    /// Whether the pool held it before.
    pub held: bool,
    /// Which slot of the plan is its own.
    pub slot: u64,
}

/// A donor's word that it holds a chunk.
pub type Ack = (DonorId, AckLevel, Receipt);

impl Spread {
    /// Whether a donor has it: it acknowledged it, or held it before.
    pub fn is_somewhere(&self) -> bool {
        !self.acks.is_empty() || self.held
    }
}

impl Copies {
    /// Follows `plan`.
    pub fn new(donors: Donors, plan: Plan) -> Self {
        let usable = plan.donors().into_iter().collect();
        Self { donors, plan, usable, failed: BTreeSet::new(), next_slot: 0 }
    }

    /// More of the plan. Donors that were given up and are planned again count as usable.
    pub fn extend(&mut self, plan: Plan) {
        for donor in plan.donors() {
            self.usable.insert(donor);
            self.failed.remove(&donor);
        }
        self.plan.extend(plan);
    }

    /// A new chunk, for the plan's next slot.
    pub fn spread(&mut self) -> Spread {
        Spread {
            want: 0,
            targets: Vec::new(),
            acks: Vec::new(),
            held: false,
            slot: self.next_slot(),
        }
    }

    /// The plan's next slot.
    pub fn next_slot(&mut self) -> u64 {
        let slot = self.next_slot;
        self.next_slot += 1;
        slot
    }

    /// Donors that must not be planned again.
    pub fn failed(&self) -> Vec<DonorId> {
        self.failed.iter().copied().collect()
    }

    /// Gives a donor up; `for_good` if a new ticket would not help.
    pub fn give_up(&mut self, donor: DonorId, for_good: bool) {
        self.usable.remove(&donor);
        if for_good {
            self.failed.insert(donor);
        }
    }

    /// Whether enough donors are left for all copies of a chunk, `under_way` of which are waited for.
    /// Donors that have acknowledged it, or held it before, are no help any more.
    pub fn can_place(&self, spread: &Spread, under_way: usize) -> bool {
        let missing = (spread.want as usize).saturating_sub(spread.acks.len());
        self.left(|donor| !spread.targets.contains(donor)) + under_way >= missing
    }

    /// The donor for the next copy of a chunk of `bytes`; `None` while all have enough to do.
    pub fn pick(&self, spread: &Spread, bytes: u32) -> Option<DonorId> {
        let planned = self.planned(spread.slot);
        self.pick_of(&planned, |donor| !spread.targets.contains(donor), bytes)
    }

    /// The donors that the plan has for a slot, one a copy or a chunk of a group. A plan that is
    /// used up begins again.
    pub fn planned(&self, slot: u64) -> Vec<DonorId> {
        self.plan.slot(slot % self.plan.chunks().max(1)).unwrap_or_default()
    }

    /// The first of `planned` that is `free` and has room for `bytes`, or any other; `None` while
    /// all have enough to do.
    pub fn pick_of(
        &self,
        planned: &[DonorId],
        free: impl Fn(&DonorId) -> bool,
        bytes: u32,
    ) -> Option<DonorId> {
        let free = |donor: &DonorId| self.usable.contains(donor) && free(donor);
        self.donors.paces(|paces| {
            let has_room =
                |donor: &DonorId| paces.get(donor).is_some_and(|pace| pace.has_room(bytes));
            let preferred = planned.iter().copied().filter(free).find(has_room);
            preferred.or_else(|| choose(others(paces, free), bytes))
        })
    }

    /// How many donors are left that are `free`.
    pub fn left(&self, free: impl Fn(&DonorId) -> bool) -> usize {
        self.usable.iter().filter(|donor| free(donor)).count()
    }

    /// A `free` donor for what `slow` has had since `sent_at`, if waiting is not worth it.
    pub fn hedge(
        &self,
        free: impl Fn(&DonorId) -> bool,
        slow: DonorId,
        bytes: u32,
        sent_at: Tick,
        now: Tick,
    ) -> Option<DonorId> {
        let free = |donor: &DonorId| self.usable.contains(donor) && free(donor);
        self.donors.paces(|paces| {
            let best = others(paces, free).filter_map(|(_, pace)| pace.rate()).fold(0.0, f64::max);
            let late = overdue(paces.get(&slow)?, best, bytes, sent_at, now);
            late.then(|| choose(others(paces, free), bytes)).flatten()
        })
    }
}

fn others(
    paces: &BTreeMap<DonorId, Pace>,
    free: impl Fn(&DonorId) -> bool,
) -> impl Iterator<Item = (DonorId, &Pace)> {
    paces.iter().filter(move |(donor, _)| free(donor)).map(|(donor, pace)| (*donor, pace))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffers;
    use potluck_wire::env::Env;

    #[test]
    fn a_copy_without_a_donor_left_is_not_waited_for() {
        let donors = Donors::new(Env::system(), Buffers::new(1 << 20));
        let plan = Plan { sections: Vec::new(), copies: 2, chunk_size: 1 << 16 };
        let mut copies = Copies::new(donors, plan);
        copies.usable = BTreeSet::from([DonorId(1), DonorId(2)]);
        let mut spread = copies.spread();
        spread.want = 2;
        spread.targets = vec![DonorId(1), DonorId(2)];
        assert!(copies.can_place(&spread, 2), "both are under way");
        spread.acks.push((DonorId(1), AckLevel::Memory, Receipt([0; 16])));
        spread.targets = vec![DonorId(1)];
        copies.give_up(DonorId(2), true);
        assert!(!copies.can_place(&spread, 0), "the one that has it cannot take the other copy");
    }
}
