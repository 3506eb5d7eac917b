//! Choice of the donor that takes a chunk of a group: a slot's own donors in the plan while they keep up, otherwise any
//! donor of the plan that has room. Even then, a donor in a domain that has another chunk of the group is taken only
//! when no other domain is left: one that is merely busy is waited for.

use crate::donors::Donors;
use potluck_core::clock::Tick;
use potluck_core::hedging::overdue;
use potluck_core::ids::{Domain, DonorId};
use potluck_core::placement::Plan;
use potluck_core::policy::AckLevel;
use potluck_core::rate_estimate::{RateEstimate, choose};
use potluck_core::write_plan::{sort_copies, taker};
use potluck_wire::control::Source;
use potluck_wire::ticket::Receipt;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The donors that a session may write to.
pub struct Targets {
    donors: Donors,
    plan: Plan,
    usable: BTreeSet<DonorId>,
    domains: HashMap<DonorId, Domain>,
    failed: BTreeSet<DonorId>,
    /// The usable donors that get nothing until there is another ticket for them.
    awaiting_ticket: BTreeSet<DonorId>,
    next_slot: u64,
    /// True if the pool had fewer donors for the latest part of the plan than its redundancy takes: slots that find no
    /// donor may then be left to repair.
    short: bool,
}

/// An acknowledgement: a donor, the ack level that its copy of a chunk reached, and its receipt.
pub type Ack = (DonorId, AckLevel, Receipt);

/// The donors that have a chunk.
#[derive(Debug, Clone, Default)]
pub struct At {
    /// The acknowledgements of the chunk, one for each donor.
    pub acks: Vec<Ack>,
    /// The donors that held the chunk before.
    pub held: Vec<DonorId>,
}

impl At {
    /// Counts an acknowledgement; copies are counted by donors, never by answers (promise D3).
    pub fn add(&mut self, ack: Ack) {
        count(&mut self.acks, ack);
    }

    /// Returns the donors that acknowledged or held the chunk, each once.
    pub fn donors(&self) -> Vec<DonorId> {
        let acks = self.acks.iter().map(|(donor, ..)| *donor);
        let new = |donor: &&DonorId| !self.acks.iter().any(|(at, ..)| at == *donor);
        acks.chain(self.held.iter().filter(new).copied()).collect()
    }
}

/// Counts an acknowledgement once for each donor.
pub fn count(acks: &mut Vec<Ack>, ack: Ack) {
    if !acks.iter().any(|(donor, ..)| *donor == ack.0) {
        acks.push(ack);
    }
}

impl Targets {
    /// Makes the targets of a session that follows `plan`.
    pub fn new(donors: Donors, plan: Plan) -> Self {
        let usable = plan.donors();
        let (domains, failed, awaiting_ticket) = Default::default();
        let (next_slot, short) = (0, plan.is_short());
        let mut targets =
            Self { donors, plan, usable, domains, failed, awaiting_ticket, next_slot, short };
        targets.learn_domains();
        targets
    }

    fn learn_domains(&mut self) {
        let access = self.usable.iter().filter_map(|donor| self.donors.access(*donor));
        self.domains.extend(access.map(|access| (access.donor, access.domain)));
    }

    /// Adds more of the plan. Donors that were given up and are planned again count as usable.
    pub fn extend(&mut self, plan: Plan) {
        for donor in plan.donors() {
            self.usable.insert(donor);
            self.failed.remove(&donor);
            self.awaiting_ticket.remove(&donor);
        }
        self.short = plan.is_short();
        self.plan.extend(plan);
        self.learn_domains();
    }

    /// Notes that these donors answer again: those of the plan may be written to.
    pub fn answer_again(&mut self, donors: &[DonorId]) {
        let planned = self.plan.donors();
        for donor in donors.iter().filter(|donor| planned.contains(donor)) {
            self.usable.insert(*donor);
            self.failed.remove(donor);
            self.awaiting_ticket.remove(donor);
        }
    }

    /// Returns the number of the plan's next slot, which is used up by that.
    pub fn next_slot(&mut self) -> u64 {
        let slot = self.next_slot;
        self.next_slot += 1;
        slot
    }

    /// Returns the donors that were given up and must not be planned again.
    pub fn failed(&self) -> Vec<DonorId> {
        self.failed.iter().copied().collect()
    }

    /// Gives a donor up: nothing more is sent to it, unless it is planned again or answers again.
    pub fn give_up(&mut self, donor: DonorId) {
        self.usable.remove(&donor);
        self.awaiting_ticket.remove(&donor);
        self.failed.insert(donor);
    }

    /// Stops giving a donor chunks until there is another ticket for it. A chunk that only this donor may have, since
    /// all others fail together with donors that have the rest of the group, waits for the ticket.
    pub fn await_ticket(&mut self, donor: DonorId) {
        if self.usable.contains(&donor) {
            self.awaiting_ticket.insert(donor);
        }
    }

    /// Returns the number of donors in the plan.
    pub fn width(&self) -> usize {
        self.plan.donors().len()
    }

    /// Returns the addresses and the ticket by which another donor forwards a chunk to this one.
    pub fn route(&self, donor: DonorId) -> Option<Source> {
        let access = self.donors.access(donor)?;
        let ticket = access.ticket.clone()?;
        Some(Source { donor, addresses: access.addresses.clone(), ticket })
    }

    /// Returns whether a slot that finds no donor may be left to repair, if enough is stored without it.
    pub fn may_be_short(&self) -> bool {
        self.short
    }

    /// Returns the donors that the plan has for a slot, one for each copy or for each chunk of a group. A plan that is
    /// used up begins again.
    pub fn planned(&self, slot: u64) -> Vec<DonorId> {
        self.plan.slot(slot % self.plan.chunks().max(1)).unwrap_or_default()
    }

    /// Sorts the donors of the copies of a chunk of `bytes` by the time at which they are expected to have it.
    pub fn sort_copies(&self, planned: &mut [DonorId], bytes: u32) {
        self.donors.rates(|rates| sort_copies(planned, rates, bytes));
    }

    /// Picks the first of `planned` that is `free` and has room for `bytes`, or else another such donor; `None` where
    /// there is none now. Another is also picked in the stead of a planned donor that others use much ([`taker`]). While a `free` donor is left that does not fail together with the holders in `with`, only
    /// such donors are picked, even if they have no room now; and so are those of the section that has the planned
    /// donors: in a pool that is nearly full, the room that others have is all needed for other sections.
    pub fn pick(
        &self,
        planned: &[DonorId],
        with: &[DonorId],
        free: impl Fn(&DonorId) -> bool,
        bytes: u32,
    ) -> Option<DonorId> {
        let free = |donor: &DonorId| self.usable.contains(donor) && free(donor);
        self.donors.rates(|rates| {
            let must_be_apart = self.is_any_apart(with, |at| free(at) && rates.contains_key(at));
            let fits = |at: &DonorId| {
                let is_fit = free(at) && !self.awaiting_ticket.contains(at);
                is_fit && (!must_be_apart || self.is_apart(at, with))
            };
            let has_room =
                |donor: &DonorId| rates.get(donor).is_some_and(|estimate| estimate.has_room(bytes));
            let preferred = planned.iter().copied().filter(fits).find(has_room);
            let section = self.section_of(planned);
            let is_in = |at: &DonorId| section.contains(at) && fits(at);
            let other = match rates.keys().any(is_in) {
                true => choose(others(rates, is_in), bytes),
                false => choose(others(rates, fits), bytes),
            };
            taker(preferred, other, rates)
        })
    }

    /// Returns the donors of the first section of the plan that has all of `planned`, and deals chunks, if one does: one
    /// without chunks names spare donors.
    fn section_of(&self, planned: &[DonorId]) -> &[DonorId] {
        let has_all = |donors: &[DonorId]| planned.iter().all(|donor| donors.contains(donor));
        let sections = self.plan.sections.iter().filter(|section| has_all(&section.donors));
        sections.min_by_key(|it| it.chunks == 0).map_or(&[], |section| &section.donors)
    }

    /// Notes that `bytes` are sent to a donor now.
    pub fn sent(&self, donor: DonorId, bytes: u32, now: Tick) {
        self.donors.rates(|rates| rates.entry(donor).or_default().sent(bytes, now));
    }

    /// Returns whether a donor may have a chunk of a group whose other chunks are at the donors `with`: it fails
    /// together with none of them, or no other donor is left that does not.
    pub fn is_fit(&self, donor: &DonorId, with: &[DonorId]) -> bool {
        self.is_apart(donor, with) || !self.is_any_apart(with, |other| !with.contains(other))
    }

    /// Returns whether a donor fails together with none of the donors `with`, other than itself.
    pub fn is_apart(&self, donor: &DonorId, with: &[DonorId]) -> bool {
        let Some(own) = self.domains.get(donor) else { return true };
        with.iter().all(|other| other == donor || self.domains.get(other) != Some(own))
    }

    /// Returns whether a `free` donor is left that fails together with none of the donors `with`.
    fn is_any_apart(&self, with: &[DonorId], free: impl Fn(&DonorId) -> bool) -> bool {
        self.usable.iter().any(|donor| free(donor) && self.is_apart(donor, with))
    }

    /// Returns the number of usable donors that are `free`.
    pub fn left(&self, free: impl Fn(&DonorId) -> bool) -> usize {
        self.usable.iter().filter(|donor| free(donor)).count()
    }

    /// Picks a `free` donor to take the bytes as well that were sent to `slow` at `sent_at`, if waiting is not worth
    /// it. It fails together with none of the donors `with`, unless neither a free donor nor `slow` is apart from them.
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
        let fits = |donor: &DonorId| {
            let is_fit = free(donor) && !self.awaiting_ticket.contains(donor);
            is_fit && (!must_be_apart || self.is_apart(donor, with))
        };
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
    use potluck_core::traffic::{BothWays, Direction};
    use potluck_wire::addresses::Addresses;
    use potluck_wire::control::DonorAccess;
    use potluck_wire::env::Env;

    const LEN: u32 = 1 << 16;

    /// Makes a session with donors from 1 on that are in these failure domains, for two copies.
    fn in_domains(domains: &[Domain]) -> Targets {
        let donors = Donors::new(Env::system(), Buffers::new(1 << 20), Direction::Write);
        let access = |(number, domain): (u32, &Domain)| DonorAccess {
            donor: DonorId(number),
            name: format!("d{number}"),
            addresses: Addresses::default(),
            live: true,
            load: 0.0,
            rates: BothWays::default(),
            limits: BothWays::default(),
            ticket: None,
            incarnation: None,
            domain: *domain,
        };
        donors.learn((1..).zip(domains).map(access).collect());
        let all: Vec<DonorId> = (1..=domains.len() as u32).map(DonorId).collect();
        let section = Section { donors: all, chunks: 1, bytes: LEN.into() };
        Targets::new(
            donors,
            Plan { stripe_size: 1, sections: vec![section], copies: 2, chunk_size: LEN },
        )
    }

    /// Returns the donor for the second copy of a chunk that donor 1 has.
    fn second(targets: &Targets) -> Option<DonorId> {
        let with = [DonorId(1)];
        targets.pick(&targets.planned(0), &with, |donor| !with.contains(donor), LEN)
    }

    fn busy(targets: &Targets, donor: u32) {
        while targets.donors.rates(|rates| rates[&DonorId(donor)].has_room(LEN)) {
            targets.donors.rates(|rates| {
                rates.entry(DonorId(donor)).or_default().sent(LEN, Tick::ZERO);
            });
        }
    }

    #[test]
    fn copy_waits_for_a_busy_donor_of_another_domain() {
        let mut targets = in_domains(&[1, 1, 2, 2]);
        assert_eq!(second(&targets), Some(DonorId(3)), "2 is planned, and fails with 1");
        busy(&targets, 3);
        assert_eq!(second(&targets), Some(DonorId(4)));
        busy(&targets, 4);
        assert_eq!(second(&targets), None);
        targets.give_up(DonorId(3));
        assert_eq!(second(&targets), None, "4 is merely busy");
        targets.await_ticket(DonorId(4));
        assert_eq!(second(&targets), None, "4 gets another ticket");
        targets.give_up(DonorId(4));
        assert_eq!(second(&targets), Some(DonorId(2)));
    }

    #[test]
    fn copy_waits_for_a_busy_donor_of_its_section() {
        let mut targets = in_domains(&[1, 2, 3]);
        let [one, two, three] = [1, 2, 3].map(DonorId);
        let section = |donors: [DonorId; 2]| Section { donors: donors.into(), chunks: 1, bytes: 1 };
        targets.plan.sections = vec![section([one, two]), section([one, three])];
        busy(&targets, 2);
        assert_eq!(second(&targets), None, "3 has no room to spare");
        targets.give_up(two);
        assert_eq!(second(&targets), Some(three));
    }

    #[test]
    fn a_copy_waits_for_no_busy_donor_where_another_domain_is_free() {
        let targets = in_domains(&[1, 2, 3]);
        assert_eq!(second(&targets), Some(DonorId(2)));
        busy(&targets, 2);
        assert_eq!(second(&targets), Some(DonorId(3)), "nobody is waited for");
    }
}
