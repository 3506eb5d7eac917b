//! Donors as they stood at a moment, for whoever decides by that a little later: in a transaction of the
//! catalog, where nothing of the pool is locked.

use super::view::PoolView;
use potluck_core::ids::DonorId;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Numbers what happens to donors by which their copies may be worth less.
#[derive(Debug, Default)]
pub struct Losses(pub(crate) Arc<Mutex<Noted>>);

/// What was noted, and the number of the last of it for each donor.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    count: u64,
    last: BTreeMap<DonorId, u64>,
}

impl Losses {
    /// A donor's copies may be worth less from now on.
    pub fn note(&self, donor: DonorId) {
        let mut noted = self.0.lock().expect("no holder panics");
        noted.count += 1;
        let count = noted.count;
        noted.last.insert(donor, count);
    }

    /// How many were noted.
    pub fn count(&self) -> u64 {
        self.0.lock().expect("no holder panics").count
    }
}

/// Donors as they stood.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) view: PoolView,
    pub(crate) losses: Arc<Mutex<Noted>>,
    /// How many losses it knows of.
    pub(crate) seen: u64,
}

impl Snapshot {
    /// Donors as they stood, for who began when so many losses were noted: what donors said before they
    /// registered anew counts no more.
    pub fn for_work_begun_at(self, losses: u64) -> Self {
        Self { seen: self.seen.min(losses), ..self }
    }

    /// Donors as they stood, without those to whom something happened since by which their copies may be
    /// worth less. That a donor fell silent in the meantime is not told: it may do so the next moment as well.
    pub fn current(&self) -> Cow<'_, PoolView> {
        let since: BTreeSet<DonorId> = {
            let noted = self.losses.lock().expect("no holder panics");
            if noted.count == self.seen {
                return Cow::Borrowed(&self.view);
            }
            let later = noted.last.iter().filter(|(_, number)| **number > self.seen);
            later.map(|(donor, _)| *donor).collect()
        };
        let mut view = self.view.clone();
        view.0.retain(|donor, _| !since.contains(donor));
        Cow::Owned(view)
    }
}
