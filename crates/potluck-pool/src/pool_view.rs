//! Donors as a scan sees them at one moment: what the copies of each are worth, and which of them leave.

use potluck_core::chunk::{ChunkName, PARTS};
use potluck_core::ids::{Domain, DonorId, VersionId};
use potluck_core::repair_plan::{Copy, Worth};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The condition under which a copy that leaves its donor may be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeavingRule {
    /// The copy may be deleted when its unit is whole without it.
    WhenWhole,
    /// The copy may be deleted when its unit survives at least one more death without it.
    WhenSafe,
    /// The copy may be deleted now, if its unit can be read without it, or is of a version that may be lost.
    AtOnce,
}

/// A donor as a scan sees it.
#[derive(Debug, Clone)]
pub struct DonorView {
    /// The worth of the donor's copies that stay.
    pub worth: Worth,
    /// The worth of the donor's copies that leave.
    pub worth_leaving: Worth,
    /// True while the donor is heard.
    pub live: bool,
    /// True while the donor is not quarantined.
    pub trusted: bool,
    /// True while the donor's removal from the pool is being considered.
    pub removing: bool,
    /// The failure domain that the donor is in.
    pub domain: Domain,
    /// The bytes that the donor can still take.
    pub free: u64,
    /// The name partition below which copies are being moved away.
    pub below: u32,
    /// The rule under which copies leave, except those that a full disk drives out.
    pub rule: LeavingRule,
    /// The name partition below which copies leave because the disk is full.
    pub disk_below: u32,
    /// The versions that may be lost when copies leave at once, in order.
    pub lose: Arc<[VersionId]>,
    /// True while the donor holds more than its owner lends, so that the owner needs the space now.
    pub over_quota: bool,
    /// True while new copies may go to the donor.
    pub takes: bool,
    /// True unless the donor failed again and again, lately, when it was asked for copies.
    pub sends: bool,
}

/// All donors as they are at one moment.
#[derive(Debug, Clone, Default)]
pub struct PoolView(pub(crate) BTreeMap<DonorId, DonorView>);

impl DonorView {
    /// Returns the worth of the donor's copy of a chunk; `leaving` where the copy is being deleted.
    pub fn worth_of(&self, name: &ChunkName, leaving: bool) -> Worth {
        if leaving || self.leaves(name) { self.worth_leaving } else { self.worth }
    }

    /// Returns whether the donor's copy of a chunk is to leave, because the donor gives its space back or holds more
    /// than its owner lends.
    pub fn leaves(&self, name: &ChunkName) -> bool {
        name.part() < self.below
    }

    /// Returns the rule under which the donor's copy of a chunk leaves, if it does. An owner who lends less waits
    /// until what is there is elsewhere; one whose disk is full does not wait for copies without which files are
    /// safe.
    pub fn rule_of(&self, name: &ChunkName) -> LeavingRule {
        let is_driven_out = name.part() < self.disk_below;
        if is_driven_out { self.rule.max(LeavingRule::WhenSafe) } else { self.rule }
    }

    /// Returns whether the donor's copy of a chunk is to leave without being made elsewhere first, as far as the rule
    /// allows.
    pub fn leaves_at_once(&self, name: &ChunkName) -> bool {
        self.rule_of(name) == LeavingRule::AtOnce && self.leaves(name)
    }

    /// Returns whether a version may be lost by the donor's taking its space back, as was agreed when that began.
    pub fn may_lose(&self, version: VersionId) -> bool {
        self.lose.binary_search(&version).is_ok()
    }
}

impl PoolView {
    /// Makes copies at donors that are about to be removed serve as sources only.
    pub(crate) fn rely_on_none_that_is_being_removed(&mut self) {
        for status in self.0.values_mut().filter(|status| status.removing) {
            if status.worth == Worth::Counts {
                status.worth = Worth::Source;
            }
        }
    }

    /// Returns one donor; `None` if it is not in the pool.
    pub fn get(&self, donor: DonorId) -> Option<&DonorView> {
        self.0.get(&donor)
    }

    /// Goes over all donors of the pool.
    pub fn iter(&self) -> impl Iterator<Item = (DonorId, &DonorView)> {
        self.0.iter().map(|(donor, status)| (*donor, status))
    }

    /// Returns a donor's copy of a chunk as it counts.
    pub fn copy(&self, donor: DonorId, name: &ChunkName, leaving: bool) -> Option<Copy> {
        let status = self.0.get(&donor)?;
        let worth = status.worth_of(name, leaving);
        Some(Copy { donor, domain: status.domain, worth })
    }

    /// Returns whether a donor's copy is one to rely on: there, trusted, and to stay.
    pub fn counts(&self, donor: DonorId, name: &ChunkName) -> bool {
        self.copy(donor, name, false).is_some_and(|copy| copy.worth == Worth::Counts)
    }

    /// Returns whether a donor is heard now.
    pub fn is_live(&self, donor: DonorId) -> bool {
        self.get(donor).is_some_and(|at| at.live)
    }

    /// Returns how many donors are heard, are not quarantined, and are not being removed.
    pub fn trusted_and_live(&self) -> usize {
        self.0.values().filter(|at| at.live && at.trusted && !at.removing).count()
    }

    /// Returns whether a donor's receipt proves a copy that stays until there are others. It does not where the donor
    /// is not trusted, is being removed, or deletes without waiting. A donor that gives space back in order keeps the
    /// copy until the file is whole elsewhere.
    pub fn proves(&self, donor: DonorId, name: &ChunkName) -> bool {
        let stays = |at: &DonorView| at.trusted && !at.removing && !at.leaves_at_once(name);
        self.get(donor).is_some_and(stays)
    }

    /// Returns whether a copy that no receipt proves stays until there are others: it may be at a donor that is
    /// silent for a moment, and not at one that is given up.
    pub fn keeps(&self, donor: DonorId, name: &ChunkName) -> bool {
        self.proves(donor, name) && self.get(donor).is_some_and(|at| at.worth.counts())
    }

    /// Returns this view without the copies of these donors, and without all copies that leave any donor at
    /// once: two owners who take their space at the same time must not count on each other's copies.
    pub fn without(&self, donors: &BTreeSet<DonorId>) -> Self {
        let mut without = self.beside(donors);
        for status in without.each(donors) {
            (status.worth, status.worth_leaving) = (Worth::Lost, Worth::Lost);
        }
        without
    }

    /// Returns this view as it would be if all copies of these donors left them, made elsewhere first.
    pub fn leaving(&self, donors: &BTreeSet<DonorId>) -> Self {
        let mut leaving = self.clone();
        for status in leaving.each(donors) {
            (status.below, status.rule, status.takes) = (PARTS, LeavingRule::WhenWhole, false);
        }
        leaving
    }

    /// Returns this view as it would be if a donor's copies with names in partitions below `below` left it, as
    /// they do where its owner lends less.
    pub fn shrinking(&self, donor: DonorId, below: u32) -> Self {
        let mut shrinking = self.clone();
        if let Some(status) = shrinking.0.get_mut(&donor).filter(|at| at.below < below) {
            (status.below, status.takes) = (below, false);
        }
        shrinking
    }

    /// Returns this view as it would be if nothing left these donors, and without the copies that leave any
    /// other donor at once.
    pub fn staying(&self, donors: &BTreeSet<DonorId>) -> Self {
        let mut staying = self.beside(donors);
        staying.each(donors).for_each(|status| status.below = 0);
        staying
    }

    /// Returns this view without the copies that leave any donor but these at once.
    pub fn beside(&self, donors: &BTreeSet<DonorId>) -> Self {
        let mut beside = self.clone();
        for (id, status) in &mut beside.0 {
            if !donors.contains(id) && status.rule == LeavingRule::AtOnce {
                status.worth_leaving = Worth::Lost;
            }
        }
        beside
    }

    /// Returns this view with all donors as lost whose copies do not count or cannot be fetched now. Among these are
    /// donors that have not listed what they have since they were started: it may be less than they acknowledged
    /// before. The worth of copies that leave a donor is not changed.
    pub fn of_those_that_listed(&self) -> Self {
        let mut listed = self.clone();
        for status in listed.0.values_mut().filter(|status| status.worth != Worth::Counts) {
            (status.live, status.worth) = (false, Worth::Lost);
        }
        listed
    }

    pub(crate) fn each(
        &mut self,
        donors: &BTreeSet<DonorId>,
    ) -> impl Iterator<Item = &mut DonorView> {
        self.0.iter_mut().filter(|(id, _)| donors.contains(*id)).map(|(_, status)| status)
    }

    /// Returns this view with all lost donors ([`Worth::Lost`]) as silent ones: their copies count again, as if they
    /// were still waited for, and cannot be fetched.
    pub fn all_back(&self) -> Self {
        self.back(&self.0.keys().copied().collect())
    }

    /// Returns this view with those of these donors that are lost as silent ones ([`Self::all_back`]).
    pub fn back(&self, donors: &BTreeSet<DonorId>) -> Self {
        let mut back = self.clone();
        for status in back.each(donors).filter(|at| at.worth == Worth::Lost) {
            (status.worth, status.worth_leaving) = (Worth::Silent, Worth::Silent);
        }
        back
    }

    /// Returns the donors whose copies are not to be relied on now.
    pub fn unheard(&self) -> BTreeSet<DonorId> {
        self.iter().filter(|(_, at)| at.worth != Worth::Counts).map(|(donor, _)| donor).collect()
    }

    /// Orders copies by which should be kept: by worth, those that count and can be fetched first, and among equals
    /// those of the emptiest donors first.
    pub fn rank(&self, copies: &mut [Copy]) {
        let free = |donor| self.0.get(&donor).map_or(0, |status| status.free);
        copies.sort_by_key(|copy| (copy.worth, std::cmp::Reverse(free(copy.donor)), copy.donor));
    }
}
