//! Which donor takes which copy or chunk of a group: the plan's own slots while they keep up,
//! otherwise whoever of the plan has room. Off the plan, too, a donor in a domain that has a copy is
//! taken only when no other domain is left: one that is merely busy is waited for.

use crate::donors::Donors;
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::hedging::overdue;
use potluck_core::ids::DonorId;
use potluck_core::placement::Plan;
use potluck_core::policy::AckLevel;
use potluck_core::rate_estimate::{RateEstimate, choose};
use potluck_core::recipe::Entry;
use potluck_wire::control::Grown;
use potluck_wire::ticket::Receipt;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The donors a session may write to.
pub struct Copies {
    donors: Donors,
    plan: Plan,
    usable: BTreeSet<DonorId>,
    /// Of donors that fail together with others; most pools name none.
    domains: HashMap<DonorId, String>,
    failed: BTreeSet<DonorId>,
    next_slot: u64,
    /// Whether the pool had fewer donors for the latest part of the plan than its redundancy takes:
    /// what finds no donor then is left to repair.
    short: bool,
}

/// One chunk on its way to its copies.
pub struct ReplicaSet {
    /// Copies still to be made, those under way included.
    pub want: u32,
    /// So many of them must be made where there are no donors for all.
    pub least: u32,
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

/// A chunk that has lost copies, and is read from where it still is.
pub struct Reread {
    /// The chunk's entry in the recipe.
    pub entry: Entry,
    /// Files and positions that wait for it.
    pub users: Vec<(u32, u32)>,
    /// Donors that acknowledged it and are there.
    pub acks: Vec<Ack>,
    /// Donors that held it before, and are there.
    pub held: Vec<DonorId>,
    /// How many of all these were asked for it in vain.
    pub asked: usize,
}

/// The donors of a session, and where chunks are that the pool held before.
pub type There = (Grown, BTreeMap<ChunkName, Vec<DonorId>>);

impl Reread {
    /// The donors that have it.
    pub fn at(&self) -> Vec<DonorId> {
        self.acks.iter().map(|(donor, ..)| *donor).chain(self.held.iter().copied()).collect()
    }
}

impl ReplicaSet {
    /// Whether a donor has it: it acknowledged it, or held it before.
    pub fn is_somewhere(&self) -> bool {
        !self.acks.is_empty() || self.held
    }
}

impl Copies {
    /// Begins to follow `plan`.
    pub fn new(donors: Donors, plan: Plan) -> Self {
        let usable = plan.donors();
        let (domains, failed) = Default::default();
        let short = plan.is_short();
        let mut copies = Self { donors, plan, usable, domains, failed, next_slot: 0, short };
        copies.learn_domains();
        copies
    }

    fn learn_domains(&mut self) {
        let access = self.usable.iter().filter_map(|donor| self.donors.access(*donor));
        self.domains.extend(access.filter_map(|access| Some((access.donor, access.domain?))));
    }

    /// More of the plan. Donors that were given up and are planned again count as usable.
    pub fn extend(&mut self, plan: Plan) {
        for donor in plan.donors() {
            self.usable.insert(donor);
            self.failed.remove(&donor);
        }
        self.short = plan.is_short();
        self.plan.extend(plan);
        self.learn_domains();
    }

    /// These answer again: those of the plan may be written to.
    pub fn answer_again(&mut self, donors: &[DonorId]) {
        let planned = self.plan.donors();
        for donor in donors.iter().filter(|donor| planned.contains(donor)) {
            self.usable.insert(*donor);
            self.failed.remove(donor);
        }
    }

    /// A new chunk, for the plan's next slot.
    pub fn replica_set(&mut self) -> ReplicaSet {
        ReplicaSet {
            want: 0,
            least: 0,
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

    /// How many donors the plan has.
    pub fn width(&self) -> usize {
        self.plan.donors().len()
    }

    /// Whether what finds no donor may be left to repair, if enough is there without it.
    pub fn may_be_short(&self) -> bool {
        self.short
    }

    /// Whether donors are left that are worth waiting for, for a chunk of which `under_way` copies are
    /// waited for: for all its copies, or where donors are away for one more and as many as it must have.
    /// Donors that have acknowledged it, or held it before, are no help any more.
    pub fn can_place(&self, replicas: &ReplicaSet, under_way: usize) -> bool {
        let left = self.left(|donor| !replicas.targets.contains(donor));
        let made = replicas.acks.len() + under_way + left;
        made >= replicas.want as usize || self.short && left > 0 && made >= replicas.least as usize
    }

    /// The donor for the next copy of a chunk of `bytes`; `None` while all have enough to do.
    pub fn pick(&self, replicas: &ReplicaSet, bytes: u32) -> Option<DonorId> {
        let planned = self.planned(replicas.slot);
        let free = |donor: &DonorId| !replicas.targets.contains(donor);
        self.pick_of(&planned, &replicas.targets, free, bytes)
    }

    /// The donors that the plan has for a slot, one a copy or a chunk of a group. A plan that is
    /// used up begins again.
    pub fn planned(&self, slot: u64) -> Vec<DonorId> {
        self.plan.slot(slot % self.plan.chunks().max(1)).unwrap_or_default()
    }

    /// The first of `planned` that is `free` and has room for `bytes`, or any other; `None` while
    /// all have enough to do. Donors apart from those that the rest is `with` go before all others,
    /// even while they have no room.
    pub fn pick_of(
        &self,
        planned: &[DonorId],
        with: &[DonorId],
        free: impl Fn(&DonorId) -> bool,
        bytes: u32,
    ) -> Option<DonorId> {
        let free = |donor: &DonorId| self.usable.contains(donor) && free(donor);
        self.donors.rates(|rates| {
            let must_be_apart = self.is_any_apart(with, |at| free(at) && rates.contains_key(at));
            let fits = |at: &DonorId| free(at) && (!must_be_apart || self.is_apart(at, with));
            let has_room =
                |donor: &DonorId| rates.get(donor).is_some_and(|estimate| estimate.has_room(bytes));
            let preferred = planned.iter().copied().filter(fits).find(has_room);
            preferred.or_else(|| choose(others(rates, fits), bytes))
        })
    }

    /// Whether any donor fails together with others.
    pub fn knows_domains(&self) -> bool {
        !self.domains.is_empty()
    }

    /// Whether a donor may have what goes `with` what these have: it is apart from them, or nobody
    /// is left that is.
    pub fn is_fit(&self, donor: &DonorId, with: &[DonorId]) -> bool {
        self.is_apart(donor, with) || !self.is_any_apart(with, |other| !with.contains(other))
    }

    /// Whether none of these fails together with a donor.
    pub fn is_apart(&self, donor: &DonorId, with: &[DonorId]) -> bool {
        let Some(own) = self.domains.get(donor) else { return true };
        with.iter().all(|other| other == donor || self.domains.get(other) != Some(own))
    }

    /// Whether labels matter and a `free` donor is left that is apart.
    fn is_any_apart(&self, with: &[DonorId], free: impl Fn(&DonorId) -> bool) -> bool {
        let mut usable = self.usable.iter();
        self.knows_domains() && usable.any(|donor| free(donor) && self.is_apart(donor, with))
    }

    /// How many donors are left that are `free`.
    pub fn left(&self, free: impl Fn(&DonorId) -> bool) -> usize {
        self.usable.iter().filter(|donor| free(donor)).count()
    }

    /// A donor for one more try of a copy that `slow` has had since `sent_at`, if waiting is not
    /// worth it. Only where it is the last that is waited for does it take the slow one's domain:
    /// otherwise both could answer before the others, and all copies be in that.
    pub fn hedge_copy(
        &self,
        replicas: &ReplicaSet,
        slow: DonorId,
        bytes: u32,
        sent_at: Tick,
        now: Tick,
    ) -> Option<DonorId> {
        let is_last = replicas.acks.len() + 1 >= replicas.want as usize;
        let with = replicas.targets.iter().copied().filter(|target| !is_last || *target != slow);
        let with: Vec<DonorId> = with.collect();
        let free = |donor: &DonorId| !replicas.targets.contains(donor);
        self.hedge(&with, free, (slow, bytes), sent_at, now)
    }

    /// A `free` donor for the bytes that `slow` has had since `sent_at`, if waiting is not worth it:
    /// one apart from those that the rest is `with`, unless nobody is and `slow` is not either.
    pub fn hedge(
        &self,
        with: &[DonorId],
        free: impl Fn(&DonorId) -> bool,
        (slow, bytes): (DonorId, u32),
        sent_at: Tick,
        now: Tick,
    ) -> Option<DonorId> {
        let free = |donor: &DonorId| self.usable.contains(donor) && free(donor);
        let must_be_apart = self.is_any_apart(with, |donor| free(donor) || *donor == slow);
        let fits = |donor: &DonorId| free(donor) && (!must_be_apart || self.is_apart(donor, with));
        self.donors.rates(|rates| {
            let best =
                others(rates, fits).filter_map(|(_, estimate)| estimate.rate()).fold(0.0, f64::max);
            let late = overdue(rates.get(&slow)?, best, bytes, sent_at, now);
            late.then(|| choose(others(rates, fits), bytes)).flatten()
        })
    }
}

fn others(
    rates: &BTreeMap<DonorId, RateEstimate>,
    free: impl Fn(&DonorId) -> bool,
) -> impl Iterator<Item = (DonorId, &RateEstimate)> {
    rates.iter().filter(move |(donor, _)| free(donor)).map(|(donor, estimate)| (*donor, estimate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffers;
    use potluck_core::placement::Section;
    use potluck_wire::addresses::Addresses;
    use potluck_wire::control::DonorAccess;
    use potluck_wire::env::Env;

    const LEN: u32 = 1 << 16;

    /// A session with the donors 1 and so on, under these labels, for two copies.
    fn labelled(labels: &[Option<&str>]) -> Copies {
        let donors = Donors::new(Env::system(), Buffers::new(1 << 20));
        let access = |(number, label): (u32, &Option<&str>)| DonorAccess {
            donor: DonorId(number),
            name: format!("d{number}"),
            addresses: Addresses::default(),
            live: true,
            load: 0.0,
            ticket: None,
            domain: label.map(Into::into),
        };
        donors.learn((1..).zip(labels).map(access).collect());
        let all: Vec<DonorId> = (1..=labels.len() as u32).map(DonorId).collect();
        let section = Section { donors: all, chunks: 1, bytes: LEN.into() };
        Copies::new(donors, Plan { sections: vec![section], copies: 2, chunk_size: LEN })
    }

    fn sent(copies: &mut Copies, to: &[u32]) -> ReplicaSet {
        ReplicaSet {
            want: 2,
            targets: to.iter().copied().map(DonorId).collect(),
            ..copies.replica_set()
        }
    }

    fn busy(copies: &Copies, donor: u32) {
        while copies.donors.rates(|rates| rates[&DonorId(donor)].has_room(LEN)) {
            copies.donors.rates(|rates| {
                rates.entry(DonorId(donor)).or_default().sent(LEN, Tick::ZERO);
            });
        }
    }

    /// Donors that answer fast, so that others are late.
    fn fast(copies: &Copies, donors: &[u32]) {
        for donor in donors {
            copies.donors.rates(|rates| {
                let estimate = rates.entry(DonorId(*donor)).or_default();
                estimate.sent(LEN, Tick::ZERO);
                estimate.acked(LEN, Tick::ZERO, Tick::from_millis(1));
            });
        }
    }

    #[test]
    fn a_copy_waits_for_a_busy_donor_of_another_domain_and_shares_one_only_when_none_is_left() {
        let mut copies = labelled(&[Some("a"), Some("a"), Some("b"), Some("b")]);
        let replicas = sent(&mut copies, &[1]);
        assert_eq!(copies.pick(&replicas, LEN), Some(DonorId(3)), "2 is planned, and of one room");
        busy(&copies, 3);
        assert_eq!(copies.pick(&replicas, LEN), Some(DonorId(4)));
        busy(&copies, 4);
        assert_eq!(copies.pick(&replicas, LEN), None);
        copies.give_up(DonorId(3), true);
        assert_eq!(copies.pick(&replicas, LEN), None, "4 is merely busy");
        copies.give_up(DonorId(4), true);
        assert_eq!(copies.pick(&replicas, LEN), Some(DonorId(2)));
    }

    #[test]
    fn where_a_donor_is_away_the_others_are_waited_for_while_they_are_busy() {
        let mut copies = labelled(&[None, None]);
        copies.short = true;
        let mut replicas = ReplicaSet { want: 3, least: 2, ..copies.replica_set() };
        (1..=2).for_each(|donor| busy(&copies, donor));
        assert_eq!(copies.pick(&replicas, LEN), None);
        assert!(copies.can_place(&replicas, 0), "nobody else is asked for");
        replicas.targets.push(DonorId(1));
        assert!(copies.can_place(&replicas, 1), "the other takes one, too");
        replicas.targets.push(DonorId(2));
        assert!(!copies.can_place(&replicas, 2), "the third is left to repair");
    }

    #[test]
    fn donors_without_a_label_are_apart_from_all() {
        let mut copies = labelled(&[None, Some("a"), None]);
        let replicas = sent(&mut copies, &[1]);
        assert_eq!(copies.pick(&replicas, LEN), Some(DonorId(2)));
        busy(&copies, 2);
        assert_eq!(copies.pick(&replicas, LEN), Some(DonorId(3)), "nobody is waited for");
    }

    #[test]
    fn a_late_copy_frees_its_domain_once_it_is_the_last() {
        let mut copies = labelled(&[Some("a"), Some("b"), Some("a"), Some("b")]);
        let mut replicas = sent(&mut copies, &[1, 2]);
        copies.donors.rates(|rates| {
            for donor in [1, 2] {
                rates.entry(DonorId(donor)).or_default().sent(LEN, Tick::ZERO);
            }
        });
        fast(&copies, &[3, 4]);
        let late = |copies: &Copies, replicas: &ReplicaSet| {
            copies.hedge_copy(replicas, DonorId(1), LEN, Tick::ZERO, Tick::from_secs(60))
        };
        assert_eq!(late(&copies, &replicas), None, "both of one room might answer first");
        replicas.acks.push((DonorId(2), AckLevel::Memory, Receipt([0; 16])));
        assert_eq!(late(&copies, &replicas), Some(DonorId(3)));
        copies.give_up(DonorId(3), true);
        assert_eq!(
            late(&copies, &replicas),
            None,
            "the late one is of another room than the other"
        );
        copies.give_up(DonorId(1), true);
        assert_eq!(late(&copies, &replicas), Some(DonorId(4)), "nothing better is left");
    }

    #[test]
    fn a_copy_without_a_donor_left_is_not_waited_for() {
        let donors = Donors::new(Env::system(), Buffers::new(1 << 20));
        let plan = Plan { sections: Vec::new(), copies: 2, chunk_size: 1 << 16 };
        let mut copies = Copies::new(donors, plan);
        copies.usable = BTreeSet::from([DonorId(1), DonorId(2)]);
        let mut replicas = copies.replica_set();
        replicas.want = 2;
        replicas.targets = vec![DonorId(1), DonorId(2)];
        assert!(copies.can_place(&replicas, 2), "both are under way");
        replicas.acks.push((DonorId(1), AckLevel::Memory, Receipt([0; 16])));
        replicas.targets = vec![DonorId(1)];
        copies.give_up(DonorId(2), true);
        assert!(!copies.can_place(&replicas, 0), "the one that has it cannot take the other copy");
    }
}
