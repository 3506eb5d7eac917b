//! The pool's knowledge of donors, for a decision elsewhere that checks its version.

use super::Pool;
use crate::snapshot::Snapshot;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use std::collections::BTreeSet;

impl Pool {
    /// Donors as they stand. Copies at one whose removal is being looked at are no reason to give others
    /// up: what it holds was found to be elsewhere, and must stay there.
    pub fn snapshot(&self, now: Tick) -> Snapshot {
        let mut view = self.view(now);
        view.rely_on_none_that_is_being_removed();
        self.losses.snapshot(view)
    }

    /// How many losses of donors were noted so far ([`Snapshot::for_work_begun_at`]).
    pub fn losses(&self) -> u64 {
        self.losses.count()
    }
    /// Returns whether one of `donors` was started again after so many losses.
    pub fn has_restarted(&self, donors: &BTreeSet<DonorId>, after: u64) -> bool {
        self.losses.has_restarted(donors, after)
    }
}
