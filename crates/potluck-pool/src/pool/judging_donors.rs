//! Judges the worth of each donor at a moment: as a holder, as a source, and as a target of copies. Quarantines and
//! give-backs are set here too; what the silence of a donor means is judged in `liveness`.

use super::Pool;
use crate::donor_snapshot::DonorSnapshot;
use crate::donor_table::KnownDonor;
use crate::pool_view::{DonorView, LeavingRule, PoolView};
use crate::record::{DonorRecord, Giving};
use potluck_core::chunk::{ChunkName, DEFAULT_CHUNK, PARTS};
use potluck_core::chunk_file::stored_bytes_within;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_core::repair_plan::{Helper, Worth};
use potluck_wire::control::DonorState;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The most donors that a sentence names; of more, only their number is given.
const NAMED: usize = 4;

/// A donor that holds more than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shrinking {
    /// The number of the donor.
    pub donor: DonorId,
    /// The bytes that must go.
    pub excess: u64,
    /// The part of these bytes that the donor's disk lacks now.
    pub disk_lacks: u64,
}

/// Returns the name partition below which a donor's copies are being moved away.
fn leaves_below(record: &DonorRecord) -> u32 {
    let given = if record.giving.is_some() { PARTS } else { 0 };
    let quota_below = if record.excess > 0 { record.quota_below } else { 0 };
    quota_below.max(given)
}

impl Pool {
    /// Returns every donor as a scan should see it.
    pub fn view(&self, now: Tick) -> PoolView {
        let domains = self.domains();
        let status = |(id, donor): (DonorId, &KnownDonor)| {
            let record = &donor.record;
            let at_once = record.giving.as_ref().filter(|giving| giving.at_once);
            let rule = at_once.map_or(LeavingRule::WhenWhole, |_| LeavingRule::AtOnce);
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
                below: leaves_below(record),
                rule,
                disk_below: if record.disk_lacks > 0 { record.disk_below } else { 0 },
                over_quota: record.excess > 0,
                takes: self.takes(id, now),
                sends: !self.repairs.is_failing(id, now),
            };
            (id, status)
        };
        PoolView(self.donors.iter().map(status).collect())
    }

    /// Returns whether a donor's copy of a chunk is one to rely on, as [`PoolView::counts`] does, without a look at all
    /// donors.
    pub fn relies_on(&self, id: DonorId, name: &ChunkName, now: Tick) -> bool {
        let Some(donor) = self.donors.get(id) else { return false };
        self.worth(id, donor, now) == Worth::Counts && name.part() >= leaves_below(&donor.record)
    }

    /// Returns a snapshot of the donors. Copies at a donor whose removal is being considered are no reason to give up
    /// others: what that donor holds was found to be elsewhere, and must stay there.
    pub fn snapshot(&self, now: Tick) -> DonorSnapshot {
        let mut view = self.view(now);
        view.rely_on_none_that_is_being_removed();
        self.losses.snapshot(view)
    }

    /// Returns how many losses of donors were noted so far ([`DonorSnapshot::for_work_begun_at`]).
    pub fn losses(&self) -> u64 {
        self.losses.count()
    }

    fn worth(&self, id: DonorId, donor: &KnownDonor, now: Tick) -> Worth {
        let live = self.donors.is_live(id, now, &self.limits);
        let compared =
            donor.registration.as_ref().is_some_and(|registration| registration.compared);
        match donor.record.quarantined {
            Some(_) if live => Worth::Source,
            Some(_) => Worth::Lost,
            None if live && compared => Worth::Counts,
            // A donor that comes back after it was given up counts only once its inventory was compared (promise D6).
            None if donor.record.stale || self.is_dead(id, now) => Worth::Lost,
            None => Worth::Silent,
        }
    }

    /// Returns whether new copies go to a donor.
    pub(crate) fn takes(&self, id: DonorId, now: Tick) -> bool {
        let Some(donor) = self.donors.get(id) else { return false };
        let willing = donor.record.is_willing() && !donor.is_being_removed();
        willing && self.donors.is_live(id, now, &self.limits)
    }

    /// Returns whether a donor's owner lets repair put copies on it now.
    pub(crate) fn takes_repair(&self, id: DonorId) -> bool {
        let registration = self.donors.registration(id);
        registration.is_some_and(|registration| registration.does.mode.takes_repair())
    }

    /// Returns how many bytes donors can take now, without the donors in `but`.
    pub fn room(&self, but: &BTreeSet<DonorId>, now: Tick) -> u64 {
        self.willing(but, now).map(|id| self.free_at(id)).sum()
    }

    /// Returns the donors that take copies now, without those in `but`.
    pub fn willing(&self, but: &BTreeSet<DonorId>, now: Tick) -> impl Iterator<Item = DonorId> {
        let all = self.donors.iter().map(|(id, _)| id);
        all.filter(move |id| !but.contains(id) && self.takes(*id, now))
    }

    /// Says of each donor that takes no copies why it does not, without those in `but`; `None` where all take some.
    /// Something may be impossible only because of the caller's own give-back, or because a donor is silent.
    pub fn unwilling(&self, but: &BTreeSet<DonorId>, now: Tick) -> Option<String> {
        self.why_not(|id| !but.contains(&id) && !self.takes(id, now), now)
    }

    /// Names the donors that are not heard; `None` where all are.
    pub fn absent(&self, now: Tick) -> Option<String> {
        self.why_not(|id| !self.is_heard(id, now), now)
    }

    /// Names the donors that `which` picks, each with the reason why it takes no copies.
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
                _ if donor.is_off() => "pauses, as its owner wants it",
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

    /// Returns how many stored bytes a donor can still take in chunks of the usual size or in a single one of any, with
    /// promises to sessions taken off.
    pub(super) fn free_at(&self, id: DonorId) -> u64 {
        self.free_in_chunks(id, DEFAULT_CHUNK)
    }

    /// Returns how many stored bytes a donor can still take in chunks of `chunk_size`, with promises to sessions taken
    /// off. That is less than the room on its disk by what the donor's files take beside the chunks.
    pub(super) fn free_in_chunks(&self, id: DonorId, chunk_size: u32) -> u64 {
        let room = self.donors.registration(id).map_or(0, |registration| registration.room);
        stored_bytes_within(room, chunk_size).saturating_sub(self.ledger.promised(id))
    }

    /// Returns how many donors would be left for files to lie on if those in `but` left: donors that have lent space,
    /// are not given up or quarantined, and do not leave themselves.
    pub fn staying(&self, but: &BTreeSet<DonorId>, now: Tick) -> usize {
        let stays = |(id, donor): &(DonorId, &KnownDonor)| {
            let record = &donor.record;
            let leaves = record.leaves() || record.quarantined.is_some();
            !but.contains(id) && !leaves && !self.has_nothing(*id, now)
        };
        self.donors.iter().filter(stays).count()
    }

    /// Returns whether a donor gives all its space back and no other stays.
    pub fn all_leave(&self, now: Tick) -> bool {
        let mut leaving = self.donors.iter().filter(|(_, donor)| donor.record.leaves());
        leaving.next().is_some_and(|(id, _)| self.staying(&[id].into(), now) == 0)
    }

    /// Returns the donors that can take copies, each with its failure domain.
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

    /// Returns a donor's name with its number, for the log.
    pub fn called(&self, donor: DonorId) -> String {
        let name = self.donors.get(donor).map_or("unknown", |known| known.name());
        crate::called(name, donor)
    }

    /// Returns the name that people call a donor by; where several donors share it, with the number, as commands take
    /// it: `vm#3`.
    pub fn named(&self, donor: DonorId) -> String {
        let Some(known) = self.donors.get(donor) else { return "unknown".into() };
        let name = known.name();
        let shared = self.donors.iter().any(|(id, other)| id != donor && other.name() == name);
        if shared { format!("{name}#{donor}") } else { name.to_owned() }
    }

    /// Quarantines a donor for a reason, or trusts it again with `None`.
    pub fn quarantine(&mut self, id: DonorId, why: Option<String>) {
        self.settle_complaints(id);
        if why.is_some() {
            self.losses.note(id);
        }
        if let Some(donor) = self.donors.get_mut(id) {
            donor.record.quarantined = why;
        }
    }

    /// Returns the reason why a donor was first quarantined, whatever tests have found since; `None` for a trusted
    /// donor.
    pub fn why_quarantined(&self, donor: DonorId) -> Option<String> {
        let tested = self.complaints.probations.get(&donor).map(|probation| probation.why.clone());
        tested.or_else(|| self.donors.get(donor)?.record.quarantined.clone())
    }

    /// Returns whether a donor is not trusted.
    pub fn is_quarantined(&self, id: DonorId) -> bool {
        self.donors.get(id).is_some_and(|donor| donor.record.quarantined.is_some())
    }

    /// Begins a give-back, or calls it off with `None`.
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

    /// Returns the donors that must hold less.
    pub fn must_shrink(&self) -> Vec<Shrinking> {
        let over = |(donor, known): (DonorId, &KnownDonor)| {
            let DonorRecord { excess, disk_lacks, .. } = known.record;
            (excess > 0).then_some(Shrinking { donor, excess, disk_lacks })
        };
        self.donors.iter().filter_map(over).collect()
    }

    /// Sets which of a donor's copies leave: those with names in partitions below `below`, and those below
    /// `disk_below` because its disk is full.
    pub fn leave_below(&mut self, id: DonorId, below: u32, disk_below: u32) {
        if let Some(donor) = self.donors.get_mut(id) {
            (donor.record.quota_below, donor.record.disk_below) = (below, disk_below);
        }
        self.losses.note(id);
    }

    /// Returns the donors that are heard and whose inventories were compared.
    pub fn live_donors(&self, now: Tick) -> Vec<DonorId> {
        self.donors.iter().map(|(id, _)| id).filter(|id| self.vouches(*id, now)).collect()
    }

    /// Returns how many bytes a donor holds.
    pub fn held(&self, donor: DonorId) -> u64 {
        self.donors.registration(donor).map_or(0, |registration| registration.disk.lent_used)
    }

    /// Returns how many chunks a donor holds that the catalog does not know.
    pub fn unclaimed(&self, donor: DonorId) -> u64 {
        self.donors.registration(donor).map_or(0, |registration| registration.unclaimed)
    }

    /// Returns the donors that are not trusted, each with why.
    pub fn quarantined(&self) -> Vec<(DonorId, String)> {
        let why =
            |(id, donor): (DonorId, &KnownDonor)| Some((id, donor.record.quarantined.clone()?));
        self.donors.iter().filter_map(why).collect()
    }
}
