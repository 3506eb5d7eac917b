//! Donors as they stood at a moment, for whoever decides by that a little later: in a transaction of the
//! catalog, where nothing of the pool is locked.

use super::view::PoolView;
use potluck_core::ids::DonorId;
use potluck_core::repair_plan::Worth;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Numbers what happens to donors by which their copies may be worth less.
#[derive(Debug, Default)]
pub struct Losses(pub(crate) Arc<Mutex<Noted>>);

/// The losses that were noted, and the number of the last of them for each donor.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    count: u64,
    last: BTreeMap<DonorId, u64>,
    /// Those that were restarts, by which the receipts of before are void.
    restarts: BTreeMap<DonorId, u64>,
}

impl Losses {
    /// A donor's copies may be worth less from now on.
    pub fn note(&self, donor: DonorId) {
        let mut noted = self.0.lock().expect("no holder panics");
        noted.count += 1;
        let count = noted.count;
        noted.last.insert(donor, count);
    }

    /// A donor was started again: it lists anew what it has, and what it acknowledged before is void.
    pub fn note_restart(&self, donor: DonorId) {
        self.note(donor);
        let mut noted = self.0.lock().expect("no holder panics");
        let count = noted.count;
        noted.restarts.insert(donor, count);
    }

    /// Returns how many were noted.
    pub fn count(&self) -> u64 {
        self.0.lock().expect("no holder panics").count
    }

    /// Returns whether one of `donors` was started again after so many losses.
    pub fn has_restarted(&self, donors: &BTreeSet<DonorId>, after: u64) -> bool {
        let noted = self.0.lock().expect("no holder panics");
        donors.iter().any(|donor| noted.restarts.get(donor).is_some_and(|number| *number > after))
    }
}

/// Donors as they stood.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) view: PoolView,
    pub(crate) losses: Arc<Mutex<Noted>>,
    /// The number of losses that it knows of.
    pub(crate) seen: u64,
    /// The number of losses when the receipts were checked that are judged by it.
    pub(crate) begun: u64,
}

impl Snapshot {
    /// Returns the snapshot for work that began when so many losses were noted: donors that were started
    /// again since are as good as dead to it, for their receipts are void.
    pub fn for_work_begun_at(self, losses: u64) -> Self {
        Self { begun: self.begun.min(losses), ..self }
    }

    /// Returns donors as they stood, and as dead those to whom something happened since by which their copies
    /// may be worth less. That a donor fell silent in the meantime is not told: it may do so the next moment
    /// as well.
    pub fn current(&self) -> Cow<'_, PoolView> {
        let since: BTreeSet<DonorId> = {
            let noted = self.losses.lock().expect("no holder panics");
            if noted.count == self.begun {
                return Cow::Borrowed(&self.view);
            }
            let later = noted.last.iter().filter(|(_, number)| **number > self.seen);
            let restarted = noted.restarts.iter().filter(|(_, number)| **number > self.begun);
            later.chain(restarted).map(|(donor, _)| *donor).collect()
        };
        let mut view = self.view.clone();
        for donor in view.each(&since) {
            donor.live = false;
            (donor.worth, donor.worth_leaving) = (Worth::Lost, Worth::Lost);
        }
        Cow::Owned(view)
    }
}
