//! Snapshots of donors as they stood at a moment, for decisions that are made a little later in a transaction of the
//! catalog, where nothing of the pool is locked. The pool numbers the losses of donors, and a snapshot compares the
//! numbers to learn what happened since it was taken.

use super::pool_view::PoolView;
use potluck_core::ids::DonorId;
use potluck_core::repair_plan::Worth;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The numbered losses of donors: events by which their copies may be worth less. Only the owner of the pool notes
/// them; snapshots read the numbers without a lock.
#[derive(Debug, Default)]
pub struct Losses {
    count: Arc<AtomicU64>,
    donors: BTreeMap<DonorId, Arc<Noted>>,
}

/// The numbers of a donor's last loss and of its last restart; 0 where there was none. A restart voids the receipts
/// that the donor gave before.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    last: AtomicU64,
    restart: AtomicU64,
}

impl Losses {
    /// Begins to number the losses of a donor, so that snapshots taken from now on see them.
    pub fn watch(&mut self, donor: DonorId) {
        self.donors.entry(donor).or_default();
    }

    /// Notes a loss: a donor's copies may be worth less from now on.
    pub fn note(&mut self, donor: DonorId) {
        self.number(donor);
    }

    /// Notes that a donor was started again: it lists anew what it has, and what it acknowledged before is void.
    pub fn note_restart(&mut self, donor: DonorId) {
        let (number, noted) = self.number(donor);
        noted.restart.store(number, Ordering::Release);
    }

    /// Gives the next number to a loss of a donor.
    fn number(&mut self, donor: DonorId) -> (u64, &Noted) {
        let number = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        let noted = self.donors.entry(donor).or_default();
        noted.last.store(number, Ordering::Release);
        (number, noted)
    }

    /// Returns how many losses of all donors were noted.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Returns a snapshot of donors as they are in `view`.
    pub(crate) fn snapshot(&self, view: PoolView) -> DonorSnapshot {
        let of = |(donor, _)| Some((donor, Arc::clone(self.donors.get(&donor)?)));
        let (noted, seen) = (view.iter().filter_map(of).collect(), self.count());
        DonorSnapshot { view, count: Arc::clone(&self.count), noted, seen, begun: seen }
    }
}

/// The donors as they stood at a moment.
#[derive(Debug, Clone)]
pub struct DonorSnapshot {
    view: PoolView,
    /// The pool's present number of losses, shared with the pool.
    count: Arc<AtomicU64>,
    /// The losses that the pool notes of each donor in the view, in the order of donors.
    noted: Vec<(DonorId, Arc<Noted>)>,
    /// The number of losses that the snapshot knows of.
    seen: u64,
    /// The number of losses when the receipts were checked that are judged by this snapshot.
    begun: u64,
}

impl DonorSnapshot {
    /// Returns the snapshot for work that began when so many losses were noted: donors that were started
    /// again since are as good as dead to it, for their receipts are void.
    pub fn for_work_begun_at(self, losses: u64) -> Self {
        Self { begun: self.begun.min(losses), ..self }
    }

    /// Returns the number of losses when the work that is judged by this snapshot began; for other work, when the
    /// snapshot was taken.
    pub fn losses(&self) -> u64 {
        self.begun
    }

    /// Returns the donors that were started again since the work began that is judged by this snapshot: what they
    /// acknowledged before does not count.
    pub fn restarted(&self) -> BTreeSet<DonorId> {
        if self.count.load(Ordering::Acquire) == self.begun {
            return BTreeSet::new();
        }
        let restarted = |noted: &Noted| noted.restart.load(Ordering::Acquire) > self.begun;
        let restarted = self.noted.iter().filter(|(_, noted)| restarted(noted));
        restarted.map(|(donor, _)| *donor).collect()
    }

    /// Returns whether these donors are there and nothing happened to them since so many losses were noted, so that
    /// what was judged then by their copies still holds.
    pub fn are_unchanged(&self, donors: impl IntoIterator<Item = DonorId>, since: u64) -> bool {
        let unchanged = |donor: DonorId| {
            // The list is in the order of donors, as the view is.
            let noted = self.noted.binary_search_by_key(&donor, |(donor, _)| *donor);
            let unharmed =
                noted.is_ok_and(|at| self.noted[at].1.last.load(Ordering::Acquire) <= since);
            unharmed && self.view.is_live(donor)
        };
        donors.into_iter().all(unchanged)
    }

    /// Returns the donors as they stood. The copies of a donor count as lost if it had a loss since the snapshot was
    /// taken, or was started again since the work began. That a donor fell silent in the meantime is not told: it may
    /// do so the next moment as well.
    ///
    /// Compares numbers and takes no lock, so a transaction may call it, and call it again when it runs again.
    pub fn current(&self) -> Cow<'_, PoolView> {
        if self.count.load(Ordering::Acquire) == self.begun {
            return Cow::Borrowed(&self.view);
        }
        let is_lost = |noted: &Noted| {
            noted.last.load(Ordering::Acquire) > self.seen
                || noted.restart.load(Ordering::Acquire) > self.begun
        };
        let lost = self.noted.iter().filter(|(_, noted)| is_lost(noted));
        let lost: BTreeSet<DonorId> = lost.map(|(donor, _)| *donor).collect();
        let mut view = self.view.clone();
        for donor in view.each(&lost) {
            donor.live = false;
            (donor.worth, donor.worth_leaving) = (Worth::Lost, Worth::Lost);
        }
        Cow::Owned(view)
    }
}
