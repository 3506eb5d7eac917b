//! The findings of the last scan, and the reasons for the next.

use crate::config::ManagerConfig;
use potluck_catalog::Encoded;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::repair_plan::Worth;
use potluck_pool::redundancy::{
    Blocked, Damaged, Findings, FoundSpace, GroupInCode, Moving, Remembered,
};
use potluck_wire::control::{DonorState, DonorStatus, MetadataHealth, SpaceHealth};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The time for which a scan waits after a change for more of the kind: donors behind one network switch go within
/// seconds of each other. It never waits longer than a quarter of the grace.
const SETTLE: Duration = Duration::from_secs(5);
/// The time for which a manager that started waits for its donors before it first judges how safe files are: all
/// files seem lost to a manager that nobody has told what is there. It goes on waiting while donors that it
/// expected list what they hold one after the other, each of which counts once. It never waits longer than the
/// grace for any of them.
const ASSEMBLING: Duration = Duration::from_secs(15);
/// The shortest time from the start of a scan to the start of an urgent one, or a change's time to settle if that is
/// shorter.
const AGAIN: Duration = Duration::from_secs(2);
/// The time after which a chunk that found no source or no taker is tried again, because nothing tells the manager
/// when there is room, or when a donor may be asked again. It is longer after a long scan, and shorter where scans are
/// set to be more frequent. A scan that failed is also begun again after this time.
pub(crate) const RETRY: Duration = Duration::from_secs(15);

/// The urgency of a scan, which sets how long it rests between two pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Something happened, so the scan hurries.
    Urgent,
    /// Nothing happened, and the next scan is due by time.
    Routine,
}

impl Priority {
    /// Returns how many times as long as it worked a scan rests.
    pub fn rest(self) -> u32 {
        match self {
            Self::Urgent => 1,
            Self::Routine => 9,
        }
    }
}

/// The files that a scan looks at.
#[derive(Debug)]
pub enum ScanScope {
    /// The scan walks over all files.
    Everything,
    /// The scan looks at what changed since the last one.
    Since {
        /// The memory that the last scan left behind.
        last: Remembered,
        /// The donors that hold other copies than before. Donors whose state changed are found without this.
        donors: BTreeSet<DonorId>,
        /// The versions that were written, or found less safe than they should be.
        versions: BTreeSet<VersionId>,
    },
}

/// The memory of scans, shared by calls and background tasks.
#[derive(Debug, Default)]
pub struct ScanState(Mutex<ScanMemory>);

/// The findings of the last scan, and the reasons for the next.
#[derive(Debug, Default)]
pub struct ScanMemory {
    /// The health of each space, as of the last scan.
    pub spaces: BTreeMap<String, SpaceHealth>,
    /// The health of the pool's own metadata, as of the last scan.
    pub metadata: MetadataHealth,
    /// The copies that leave each donor.
    pub moving: BTreeMap<DonorId, Moving>,
    /// The chunks among the leaving copies that no other donor takes, by the donor that they leave.
    blocked: BTreeMap<DonorId, Blocked>,
    /// The number of files that each donor which was given up may bring back.
    awaited: BTreeMap<DonorId, u64>,
    /// The number of chunks at each donor that leaves and is not heard, without which files are less safe.
    unreached: BTreeMap<DonorId, u64>,
    /// The effects of a donor's leaving, found when it began to leave; the findings of a scan that began later replace
    /// them.
    foreseen: BTreeMap<DonorId, (Tick, Leaving)>,
    /// The moment at which the last completed scan began.
    pub began: Option<Tick>,
    /// The moment at which a scan last began, whether or not it was completed.
    tried: Option<Tick>,
    /// The time that the last scan took, whether or not it was completed; retries are rarer after a long one.
    pub(crate) took: Duration,
    /// The time that the last completed walk over all files took.
    walk_took: Duration,
    /// The moment at which the last completed walk over all files began.
    walked: Option<Tick>,
    /// The memory that the last scan left behind for one that looks at less than all files.
    remembered: Option<Remembered>,
    /// The files that the next scan is to look at besides those that it finds by itself.
    unseen: Touched,
    /// The latest moment at which one of the donors that this manager expected at its start completed its first list of
    /// all that it holds.
    listed: Option<Tick>,
    /// The reason why the last scan failed.
    pub failed: Option<String>,
    /// The files whose records the last scan found damaged.
    pub damaged: Damaged,
    /// The moment of the first change that the last scan has not seen.
    pub(crate) dirty: Option<Tick>,
    /// The latest moment at which files may have become less safe than the last scan found, and the reason.
    worse: Option<(Tick, &'static str)>,
    /// The donors whose copies the last scan could not rely on.
    unheard: BTreeSet<DonorId>,
    /// The donors among `unheard` whose copies counted for nothing.
    lost: BTreeSet<DonorId>,
    /// True if a scan is to begin at once.
    pub(crate) hurry: bool,
    /// True while a scan that was to begin at once is under way, or its results are applied.
    pub(crate) looking: bool,
    /// The answers of the first of two donors that compute the same parity.
    pub(crate) encoded: BTreeMap<GroupInCode, Encoded>,
}

impl ScanState {
    /// Locks the memory of scans. The lock is never held while waiting.
    pub fn kept(&self) -> MutexGuard<'_, ScanMemory> {
        self.0.lock().expect("no holder panics")
    }

    /// Notes a change that a scan sees in the states of donors, or in the files that the last scan found wanting: a
    /// scan should look again.
    pub fn changed(&self, now: Tick) {
        self.kept().dirty.get_or_insert(now);
    }

    /// Notes that the copies of a donor changed, or may have: a scan should look at all of them.
    pub fn changed_at(&self, donor: DonorId, now: Tick) {
        let mut kept = self.kept();
        kept.dirty.get_or_insert(now);
        kept.unseen.donors.insert(donor);
    }

    /// Notes that one of the donors that this manager expected when it started has told all that it holds, and that
    /// others may be about to.
    pub fn assembles(&self, now: Tick) {
        self.kept().listed = Some(now);
    }

    /// Notes versions that were written, for the next scan to look at.
    pub fn written(&self, versions: impl IntoIterator<Item = VersionId>) {
        let mut kept = self.kept();
        kept.unseen.versions.extend(versions);
        kept.unseen.everything |= kept.unseen.versions.len() > MAX_UNSEEN;
        if kept.unseen.everything {
            kept.unseen.versions.clear();
        }
    }

    /// Notes versions that were written in `space`, for the next scan to look at. The space is no safer from now on than
    /// the least safe of them, which `tolerates` so many deaths, and a scan is to look again if that is less than before,
    /// or if none has seen files in the space.
    pub fn written_in(
        &self,
        space: &str,
        versions: impl IntoIterator<Item = VersionId>,
        tolerates: Option<u32>,
        now: Tick,
    ) {
        self.written(versions);
        let mut kept = self.kept();
        let ScanMemory { spaces, dirty, .. } = &mut *kept;
        let space = spaces.get_mut(space);
        if space.as_ref().is_none_or(|space| space.files == 0) {
            dirty.get_or_insert(now);
        }
        let (Some(space), Some(tolerates)) = (space, tolerates) else { return };
        if space.unreadable > 0 || space.tolerates.is_some_and(|known| known <= tolerates) {
            return;
        }
        let now_at_most = space.tolerates_now.map_or(tolerates, |known| known.min(tolerates));
        (space.tolerates, space.tolerates_now) = (Some(tolerates), Some(now_at_most));
        space.all_in_catalog = false;
        dirty.get_or_insert(now);
    }

    /// Notes that something changed, and that it is not known which files are concerned: a scan should walk over all.
    pub fn changed_anywhere(&self, now: Tick) {
        let mut kept = self.kept();
        kept.dirty.get_or_insert(now);
        kept.unseen.everything = true;
    }

    /// Notes that files may be less safe than the last scan found, for the reason `why`.
    pub fn worse(&self, now: Tick, why: &'static str) {
        let mut kept = self.kept();
        kept.dirty.get_or_insert(now);
        // A scan that is under way has not seen the latest, so the later moment counts.
        kept.worse = Some((now, why));
    }

    /// Notes versions that are found less safe than they should be. If the last scan found none, the pool is not called
    /// healthy until the next, which looks at these versions only: a walk over all files would take longer than the
    /// repair.
    pub fn found_worse(&self, now: Tick, versions: impl IntoIterator<Item = VersionId>) {
        if !self.is_known_worse() {
            self.worse(now, "a file was found less safe than promised");
            self.written(versions);
        }
    }

    /// Returns whether the last scan found files less safe than promised.
    pub fn is_known_worse(&self) -> bool {
        let worse = |space: &SpaceHealth| space.incomplete + space.unreadable > 0;
        self.kept().spaces.values().any(worse)
    }

    /// Returns the change since the last scan by which files may be less safe than it found, if there is one.
    pub fn unseen(&self, unheard: &BTreeSet<DonorId>) -> Option<Unseen> {
        let kept = self.kept();
        if kept.began.is_none() {
            return Some(Unseen::All);
        }
        let silent: BTreeSet<DonorId> = unheard.difference(&kept.unheard).copied().collect();
        if !silent.is_empty() {
            return Some(Unseen::Silent(silent));
        }
        kept.worse.map(|(_, why)| Unseen::Worse(why))
    }

    /// Returns whether the last scan has not seen all that is known by now, and another one soon will.
    pub fn is_behind(&self, unheard: &BTreeSet<DonorId>) -> bool {
        let kept = self.kept();
        let fresh = kept.began.is_none() || kept.worse.is_some() || kept.unheard != *unheard;
        kept.failed.is_none() && (fresh || kept.hurry || kept.looking)
    }

    /// Returns whether a scan is to begin at once, or one that was is under way.
    pub fn is_looking(&self) -> bool {
        let kept = self.kept();
        kept.hurry || kept.looking
    }

    /// Returns the reason why the safety of files is not known, if a donor was given up since the last scan.
    pub fn not_seen_gone(&self, donors: &[DonorStatus]) -> Option<String> {
        let kept = self.kept();
        let gone = |donor: &&DonorStatus| donor.state == DonorState::Dead && donor.chunks > 0;
        let fresh = donors.iter().filter(gone).find(|donor| !kept.lost.contains(&donor.donor))?;
        Some(format!("{} has just been given up; what it held is being looked at", fresh.name))
    }

    /// Has a scan begin without waiting for more changes.
    pub fn hurry(&self, now: Tick) {
        let mut kept = self.kept();
        kept.dirty.get_or_insert(now);
        kept.hurry = true;
    }

    /// Has a scan begin without waiting for more changes, if one was completed before: the first waits for the donors.
    pub fn look_again(&self, now: Tick) {
        if self.kept().began.is_some() {
            self.hurry(now);
        }
    }

    /// Returns the priority of the scan that is due; `None` if none is. `stuck` says that repair waits for room or
    /// sources. `assembling` is the manager's uptime while not all expected donors have listed what they hold.
    pub fn due(
        &self,
        now: Tick,
        config: &ManagerConfig,
        stuck: bool,
        assembling: Option<Duration>,
    ) -> Option<Priority> {
        let settle = SETTLE.min(config.repair_grace / 4);
        let kept = self.kept();
        let first = kept.began.is_none() && !kept.hurry;
        let deadline = ASSEMBLING.min(config.repair_grace);
        let waited = |uptime: Duration| {
            kept.listed.map_or(uptime, |listed| now.saturating_sub(listed)).min(uptime)
        };
        if first && assembling.is_some_and(|uptime| waited(uptime) < deadline) {
            return None;
        }
        kept.due(now, settle, config.scan_every, stuck)
    }
}

/// The reason why the verdict is in doubt when a reader complains of a copy.
pub const BAD_COPY_MET: &str = "a reader met a bad copy";

/// The changes that a scan has not seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unseen {
    /// Anything may have changed: no scan was completed since the manager's start.
    All,
    /// These donors are not heard any more.
    Silent(BTreeSet<DonorId>),
    /// Files may be less safe for this reason.
    Worse(&'static str),
}

/// The most versions to be looked at that are remembered one by one; if there are more, the scan walks over all files.
const MAX_UNSEEN: usize = 65_536;

/// The files that a scan has to look at besides those that it finds by itself.
#[derive(Debug, Default, Clone)]
struct Touched {
    everything: bool,
    donors: BTreeSet<DonorId>,
    versions: BTreeSet<VersionId>,
}

/// The changes that a scan is to see, kept until it has seen them.
#[derive(Default)]
pub struct Due {
    pub(crate) dirty: Option<Tick>,
    pub(crate) hurry: bool,
    unseen: Touched,
}

/// The facts known about the copies that leave a donor.
#[derive(Debug, Clone, Copy, Default)]
pub struct Leaving {
    /// The chunks that have to be made elsewhere first.
    pub moving: Moving,
    /// The chunks among the leaving ones that no other donor takes.
    pub blocked: Blocked,
    /// The number of files that only the return of the donor brings back.
    pub awaited: u64,
    /// The number of chunks at the donor, which is not heard, without which files are less safe.
    pub unreached: u64,
}

/// Returns whether a walk over all files is so late that an urgent one takes its place: leisurely ones may never come
/// to their end where donors change without end.
fn is_overdue(walked: Option<Duration>, every: Duration, took: Duration) -> bool {
    // A leisurely walk takes ten times its work, and one in a hurry twice.
    walked.is_some_and(|walked| walked >= (2 * every).max(every + 11 * took))
}

impl ScanMemory {
    /// Returns the facts about the copies that leave a donor.
    pub fn of(&self, donor: DonorId) -> Leaving {
        let awaited = self.awaited.get(&donor).copied().unwrap_or_default();
        if let Some((_, leaving)) = self.foreseen.get(&donor) {
            return Leaving { awaited, ..*leaving };
        }
        Leaving {
            moving: self.moving.get(&donor).copied().unwrap_or_default(),
            blocked: self.blocked.get(&donor).copied().unwrap_or_default(),
            unreached: self.unreached.get(&donor).copied().unwrap_or_default(),
            awaited,
        }
    }

    /// Returns whether it is known what leaves a donor that began to leave at `since`.
    pub fn knows(&self, donor: DonorId, since: Tick) -> bool {
        self.began.is_some_and(|began| began >= since) || self.foreseen.contains_key(&donor)
    }

    /// Notes the findings about a donor that began to leave at `since`, made before it did.
    pub fn foresee(&mut self, donor: DonorId, since: Tick, found: Leaving) {
        self.foreseen.insert(donor, (since, found));
    }

    pub(crate) fn due(
        &self,
        now: Tick,
        settle: Duration,
        every: Duration,
        stuck: bool,
    ) -> Option<Priority> {
        let failed = self.failed.is_some();
        let since = self.tried.map(|tried| now.saturating_sub(tried));
        let walked = self.walked.map(|walked| now.saturating_sub(walked));
        // A scan that fails is not begun again all the time.
        let again = if failed { RETRY } else { AGAIN.min(settle) };
        let rested = since.is_none_or(|since| since >= again);
        let settled = self.dirty.is_some_and(|dirty| now.saturating_sub(dirty) >= settle);
        if rested && (self.hurry || settled) {
            return Some(Priority::Urgent);
        }
        // A scan that looks at little costs little, however long the walk before it took.
        let took = if self.remembered.is_some() { Duration::ZERO } else { self.took };
        let leisurely = every.min(RETRY).max(took * Priority::Routine.rest());
        let retries = (stuck || failed) && since.is_none_or(|since| since >= leisurely);
        match self.remembered.is_some() {
            true if retries => Some(Priority::Urgent),
            _ if rested && is_overdue(walked, every, self.walk_took) => Some(Priority::Urgent),
            _ if rested && walked.or(since).is_none_or(|since| since >= every) => {
                Some(Priority::Routine)
            }
            _ => retries.then_some(Priority::Routine),
        }
    }

    /// Notes that a scan begins, and returns the changes that it is to see and the files that it is to look at.
    pub(crate) fn begin(
        &mut self,
        now: Tick,
        priority: Priority,
        every: Duration,
    ) -> (Due, ScanScope) {
        self.tried = Some(now);
        self.looking = self.hurry;
        let unseen = std::mem::take(&mut self.unseen);
        let Touched { everything, donors, versions } = unseen.clone();
        let walked = self.walked.map(|walked| now.saturating_sub(walked));
        let overdue = is_overdue(walked, every, self.walk_took);
        let all = everything || priority == Priority::Routine || overdue;
        let scope = match self.remembered.take_if(|_| !all) {
            Some(last) => ScanScope::Since { last, donors, versions },
            None => ScanScope::Everything,
        };
        (Due { dirty: self.dirty.take(), hurry: std::mem::take(&mut self.hurry), unseen }, scope)
    }

    /// Gives up a scan that was not completed: the next one is to see the changes that this one was to see.
    pub(crate) fn give_up(&mut self, due: Due) {
        self.dirty = due.dirty.into_iter().chain(self.dirty).min();
        self.hurry |= due.hurry;
        self.unseen.everything |= due.unseen.everything;
        self.unseen.donors.extend(due.unseen.donors);
        self.unseen.versions.extend(due.unseen.versions);
    }

    /// Notes the findings of a completed scan that began at `began`; `walk` is the time that it took if it walked over
    /// all files.
    pub(crate) fn take(&mut self, findings: &mut Findings, began: Tick, walk: Option<Duration>) {
        let spaces = findings.spaces.iter().map(|FoundSpace { health, .. }| health);
        self.spaces = spaces.map(|space| (space.name.clone(), space.clone())).collect();
        self.remembered = findings.remember();
        if let Some(took) = walk {
            (self.walked, self.walk_took) = (Some(began), took);
        }
        self.moving = std::mem::take(&mut findings.moving);
        self.blocked = std::mem::take(&mut findings.blocked);
        self.awaited = std::mem::take(&mut findings.awaited);
        self.unreached = std::mem::take(&mut findings.unreached);
        self.foreseen.retain(|_, (since, _)| *since > began);
        self.damaged = findings.damaged.clone();
        self.metadata = findings.metadata.health.clone();
        self.worse = self.worse.filter(|(since, _)| *since > began);
        self.unheard = findings.view.unheard();
        let lost = findings.view.iter().filter(|(_, at)| at.worth == Worth::Lost);
        self.lost = lost.map(|(donor, _)| donor).collect();
        self.began = Some(began);
    }

    /// Takes the first answers to orders to compute parity whose second answers will not come.
    pub(crate) fn abandoned(&mut self, awaited: &BTreeSet<GroupInCode>) -> Vec<Encoded> {
        self.encoded.extract_if(.., |group, _| !awaited.contains(group)).map(|(_, e)| e).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_scan_waits_for_inventories() {
        let (state, config) = (ScanState::default(), ManagerConfig::default());
        let at = |seconds| Tick::ZERO + Duration::from_secs(seconds);
        let is_due = |seconds, is_assembling: bool| {
            let uptime = is_assembling.then(|| Duration::from_secs(seconds));
            state.due(at(seconds), &config, false, uptime).is_some()
        };
        assert!(!is_due(14, true) && is_due(14, false));
        assert!(is_due(16, true), "nobody lists");
        state.assembles(at(14));
        assert!(!is_due(20, true), "others may be about to list");
        assert!(is_due(20, false), "all have");
        assert!(is_due(30, true), "no other came for so long");
    }
}
