//! What each donor is worth at a moment: as a holder, as a source, and as a target of copies. What is known
//! and announced of a donor is set here too; what its silence means is judged in `liveness`.

use super::Pool;
use crate::donor_snapshot::DonorSnapshot;
use crate::donor_table::KnownDonor;
use crate::pool_view::{DonorView, LeavingRule, PoolView};
use crate::record::Giving;
use potluck_core::chunk::{ChunkName, PARTS};
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_core::repair_plan::{Helper, Worth};
use potluck_wire::control::DonorState;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Donors that are named where all have something in common; of more it is said how many.
const NAMED: usize = 4;

impl Pool {
    /// Every donor as a scan should see it.
    pub fn view(&self, now: Tick) -> PoolView {
        let domains = self.domains();
        let status = |(id, donor): (DonorId, &KnownDonor)| {
            let record = &donor.record;
            let over_quota = record.excess > 0;
            let given = if record.giving.is_some() { PARTS } else { 0 };
            let at_once = record.giving.as_ref().filter(|giving| giving.at_once);
            let (below, rule) = match at_once {
                Some(_) => (given, LeavingRule::AtOnce),
                None if over_quota => (record.quota_below.max(given), LeavingRule::WhenSafe),
                None => (given, LeavingRule::WhenWhole),
            };
            let worth = self.worth(id, donor, now);
            let status = DonorView {
                worth,
                worth_leaving: if worth.fetchable() { Worth::Source } else { Worth::Lost },
                live: self.donors.is_live(id, now, &self.limits),
                trusted: record.quarantined.is_none(),
                removing: donor.is_being_removed(),
                lose: at_once.map(|giving| Arc::clone(&giving.lose)).unwrap_or_default(),
                domain: domains[&id],
                free: self.free_at(id),
                below,
                rule,
                over_quota,
                takes: self.takes(id, now),
                sends: !self.repairs.is_left_alone(id, now),
            };
            (id, status)
        };
        PoolView(self.donors.iter().map(status).collect())
    }

    /// Donors as they stand. Copies at one whose removal is being looked at are no reason to give others
    /// up: what it holds was found to be elsewhere, and must stay there.
    pub fn snapshot(&self, now: Tick) -> DonorSnapshot {
        let mut view = self.view(now);
        view.rely_on_none_that_is_being_removed();
        self.losses.snapshot(view)
    }

    /// How many losses of donors were noted so far ([`DonorSnapshot::for_work_begun_at`]).
    pub fn losses(&self) -> u64 {
        self.losses.count()
    }

    /// Returns whether one of `donors` was started again after so many losses.
    pub fn has_restarted(&self, donors: &BTreeSet<DonorId>, after: u64) -> bool {
        self.losses.has_restarted(donors, after)
    }

    fn worth(&self, id: DonorId, donor: &KnownDonor, now: Tick) -> Worth {
        let live = self.donors.is_live(id, now, &self.limits);
        let compared =
            donor.registration.as_ref().is_some_and(|registration| registration.compared);
        match donor.record.quarantined {
            Some(_) if live => Worth::Source,
            Some(_) => Worth::Lost,
            None if live && compared => Worth::Counts,
            // Copies that came back after they were given up are verified before they count (promise D6).
            None if donor.record.stale || self.is_dead(id, now) => Worth::Lost,
            None => Worth::Silent,
        }
    }

    /// Whether new copies go there.
    pub(crate) fn takes(&self, id: DonorId, now: Tick) -> bool {
        let Some(donor) = self.donors.get(id) else { return false };
        let willing = donor.record.is_willing() && !donor.is_being_removed();
        willing && self.donors.is_live(id, now, &self.limits)
    }

    /// Bytes that donors can take now, without `but`.
    pub fn room(&self, but: &BTreeSet<DonorId>, now: Tick) -> u64 {
        self.willing(but, now).map(|id| self.free_at(id)).sum()
    }

    /// Donors that take copies now, without `but`.
    pub fn willing(&self, but: &BTreeSet<DonorId>, now: Tick) -> impl Iterator<Item = DonorId> {
        let all = self.donors.iter().map(|(id, _)| id);
        all.filter(move |id| !but.contains(id) && self.takes(*id, now))
    }

    /// Why the donors that take no copies do not, without `but`; `None` where all take some. What
    /// is said to be impossible may be so because of somebody's own give-back, or of a donor that is
    /// only silent.
    pub fn unwilling(&self, but: &BTreeSet<DonorId>, now: Tick) -> Option<String> {
        self.why_not(|id| !but.contains(&id) && !self.takes(id, now), now)
    }

    /// The donors that are not heard; `None` where all are.
    pub fn absent(&self, now: Tick) -> Option<String> {
        self.why_not(|id| !self.is_heard(id, now), now)
    }

    /// Names the donors, each with why.
    fn why_not(&self, which: impl Fn(DonorId) -> bool, now: Tick) -> Option<String> {
        let why = |(id, donor): (DonorId, &KnownDonor)| {
            let record = &donor.record;
            let why = match self.donors.state(id, now, &self.limits) {
                DonorState::Dead => "is given up",
                DonorState::Joined => "lends nothing yet",
                DonorState::Live if record.giving.is_some() => "gives its space back",
                DonorState::Live if record.quarantined.is_some() => "is quarantined",
                DonorState::Live if record.excess > 0 => "holds more than its owner lends",
                DonorState::Live => "has just started",
                _ => "is not heard",
            };
            format!("{} {why}", donor.name())
        };
        let all: Vec<String> = self.donors.iter().filter(|(id, _)| which(*id)).map(why).collect();
        let more = all.len().saturating_sub(NAMED);
        let more = (more > 0).then(|| format!("and {more} more"));
        let named: Vec<String> = all.into_iter().take(NAMED).chain(more).collect();
        (!named.is_empty()).then(|| named.join(", "))
    }

    /// Bytes a donor can still take, promises to sessions and to repair taken off.
    pub(super) fn free_at(&self, id: DonorId) -> u64 {
        let room = self.donors.registration(id).map_or(0, |registration| registration.room);
        room.saturating_sub(self.ledger.promised(id))
    }

    /// How many donors would be left for files to lie on if `but` left: those that are not given up,
    /// and do not leave themselves.
    pub fn staying(&self, but: &BTreeSet<DonorId>, now: Tick) -> usize {
        let stays = |(id, donor): &(DonorId, &KnownDonor)| {
            let record = &donor.record;
            let leaves = record.leaves() || record.quarantined.is_some();
            !but.contains(id) && !leaves && !self.has_nothing(*id, now)
        };
        self.donors.iter().filter(stays).count()
    }

    /// Whether a donor leaves, and no other stays.
    pub fn all_leave(&self, now: Tick) -> bool {
        let mut leaving = self.donors.iter().filter(|(_, donor)| donor.record.leaves());
        leaving.next().is_some_and(|(id, _)| self.staying(&[id].into(), now) == 0)
    }

    /// Donors that can take copies, and what fails with each.
    pub fn takers(&self, now: Tick) -> Vec<Helper> {
        let domains = self.domains();
        let taker = |(id, _): (DonorId, &KnownDonor)| {
            self.takes(id, now).then(|| Helper {
                donor: id,
                domain: domains[&id],
                free: self.free_at(id),
                outstanding: 0,
                allowed: true,
            })
        };
        self.donors.iter().filter_map(taker).collect()
    }

    /// A donor by its name and its number, for the log.
    pub fn called(&self, donor: DonorId) -> String {
        let name = self.donors.get(donor).map_or("unknown", |known| known.name());
        crate::called(name, donor)
    }

    /// The name that people call a donor by; where several have it, with its number, as commands take it: `vm#3`.
    pub fn named(&self, donor: DonorId) -> String {
        let Some(known) = self.donors.get(donor) else { return "unknown".into() };
        let name = known.name();
        let shared = self.donors.iter().any(|(id, other)| id != donor && other.name() == name);
        if shared { format!("{name}#{donor}") } else { name.to_owned() }
    }

    /// Stops, or with `None` begins again, to trust a donor.
    pub fn quarantine(&mut self, id: DonorId, why: Option<String>) {
        self.end_probation(id);
        if why.is_some() {
            self.losses.note(id);
        }
        if let Some(donor) = self.donors.get_mut(id) {
            donor.record.quarantined = why;
        }
    }

    /// The reason why a donor is not trusted, without what became of tests since; `None` where it is.
    pub fn why_quarantined(&self, donor: DonorId) -> Option<String> {
        let tested = self.probation.0.get(&donor).map(|probation| probation.why.clone());
        tested.or_else(|| self.donors.get(donor)?.record.quarantined.clone())
    }

    /// Whether a donor is not trusted.
    pub fn is_quarantined(&self, id: DonorId) -> bool {
        self.donors.get(id).is_some_and(|donor| donor.record.quarantined.is_some())
    }

    /// Begins or, with `None`, calls off a give-back.
    pub fn give_back(&mut self, id: DonorId, giving: Option<Giving>) {
        if giving.is_some() {
            self.losses.note(id);
        }
        if let Some(donor) = self.donors.get_mut(id) {
            donor.record.giving = giving;
        }
    }

    /// Returns the give-back of a donor, if one is under way.
    pub fn giving(&self, donor: DonorId) -> Option<Giving> {
        self.donors.get(donor)?.record.giving.clone()
    }

    /// Donors that must hold less, with the bytes that must go.
    pub fn must_shrink(&self) -> Vec<(DonorId, u64)> {
        let over = |(id, donor): (DonorId, &KnownDonor)| {
            let over = donor.record.excess;
            (over > 0).then_some((id, over))
        };
        self.donors.iter().filter_map(over).collect()
    }

    /// Which of a donor's copies leave: those with names in parts below `below`.
    pub fn leave_below(&mut self, id: DonorId, below: u32) {
        if let Some(donor) = self.donors.get_mut(id) {
            donor.record.quota_below = below;
        }
        self.losses.note(id);
    }

    /// Donors that are heard and were compared.
    pub fn live_donors(&self, now: Tick) -> Vec<DonorId> {
        self.donors.iter().map(|(id, _)| id).filter(|id| self.vouches(*id, now)).collect()
    }

    /// Bytes a donor holds.
    pub fn held(&self, donor: DonorId) -> u64 {
        self.donors.registration(donor).map_or(0, |registration| registration.disk.lent_used)
    }

    /// Chunks a donor holds that the catalog does not know.
    pub fn unclaimed(&self, donor: DonorId) -> u64 {
        self.donors.registration(donor).map_or(0, |registration| registration.unclaimed)
    }

    /// Whether a donor that gives space back has just deleted something.
    pub fn awaits_removal(&self, donor: DonorId, removed: &[ChunkName]) -> bool {
        !removed.is_empty() && self.giving(donor).is_some()
    }

    /// Donors that are not trusted, and why.
    pub fn quarantined(&self) -> Vec<(DonorId, String)> {
        let why =
            |(id, donor): (DonorId, &KnownDonor)| Some((id, donor.record.quarantined.clone()?));
        self.donors.iter().filter_map(why).collect()
    }
}
