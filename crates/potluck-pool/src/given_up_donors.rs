//! Donors that hold chunks which the catalog does not know and an admin gave up, and the turns in which they list them.
//!
//! A donor's list alone never makes a chunk garbage (promise D5): an unknown chunk may be of a newer
//! catalog. The admin's word makes it so, for the donors that are there when it is given, and for this
//! term of the manager: after a restart another catalog may run. A chunk that these donors list from then on, and
//! that no session has offered, becomes a chunk that no file uses, and is deleted as such.

use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use std::collections::BTreeMap;
use std::time::Duration;

/// The time after which a listing donor that sent no page holds up the others no longer and is asked no more; what it
/// holds then stays unknown.
const TURN: Duration = Duration::from_secs(600);

/// The donors whose unknown chunks were given up, until they listed them.
#[derive(Debug, Default)]
pub struct GivenUpDonors(pub(crate) BTreeMap<DonorId, ListingTurn>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListingTurn {
    /// The donor waits while others list.
    Waits,
    /// The donor was asked at this time to list what it holds.
    Asked(Tick),
    /// The donor lists what it holds; a page of its list came at this time.
    Lists(Tick),
}

impl GivenUpDonors {
    pub(crate) fn at_work(&self, now: Tick) -> usize {
        let works = |turn: &&ListingTurn| match turn {
            ListingTurn::Waits => false,
            ListingTurn::Asked(since) | ListingTurn::Lists(since) => {
                now.saturating_sub(*since) < TURN
            }
        };
        self.0.values().filter(works).count()
    }

    /// Forgets the turn of a donor that has a new incarnation, for which nothing said of the earlier one holds, or that
    /// was removed.
    pub(super) fn forget(&mut self, donor: DonorId) {
        self.0.remove(&donor);
    }

    /// Notes a page of a donor's list that began after the donor was asked.
    pub(super) fn heard(&mut self, donor: DonorId, now: Tick) {
        if let Some(ListingTurn::Lists(heard)) = self.0.get_mut(&donor) {
            *heard = now;
        }
    }

    /// Forgets a donor that was asked and of which no page came for too long; returns whether it did.
    pub(super) fn is_over(&mut self, donor: DonorId, now: Tick) -> bool {
        let over = match self.0.get(&donor) {
            Some(ListingTurn::Asked(since) | ListingTurn::Lists(since)) => {
                now.saturating_sub(*since) >= TURN
            }
            _ => false,
        };
        if over {
            self.0.remove(&donor);
        }
        over
    }

    /// Notes the first page of a donor's list.
    pub(super) fn begins(&mut self, donor: DonorId) {
        if let Some(turn) = self.0.get_mut(&donor)
            && let ListingTurn::Asked(since) = *turn
        {
            *turn = ListingTurn::Lists(since);
        }
    }

    /// Notes the last page of a donor's list: all of it was seen if the first page was.
    pub(super) fn ends(&mut self, donor: DonorId) {
        if matches!(self.0.get(&donor), Some(ListingTurn::Lists(_))) {
            self.0.remove(&donor);
        }
    }
}
