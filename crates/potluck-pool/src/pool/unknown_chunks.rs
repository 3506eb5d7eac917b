//! Gives up chunks that donors hold and the catalog does not know, when an admin says so: the donors list them in turns.

use super::Pool;
use crate::given_up_donors::{GivenUpDonors, ListingTurn};
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_wire::control::Holding;

/// Donors that list at the same time: each reads its whole index, and the manager compares it.
const AT_ONCE: usize = 8;

impl Pool {
    /// An admin gives up what donors hold and the catalog does not know: gives the donors that are
    /// there, which are asked to list it, and those that are not.
    pub fn give_up_unknown(&mut self, now: Tick) -> (Vec<DonorId>, Vec<DonorId>) {
        let ids = self.donors.iter().map(|(id, _)| id);
        let (there, absent): (Vec<_>, Vec<_>) = ids.partition(|id| self.vouches(*id, now));
        self.given_up.0.extend(there.iter().map(|id| (*id, ListingTurn::Waits)));
        (there, absent)
    }

    /// Ends the giving up of unknown chunks.
    pub fn keep_unknown(&mut self) {
        self.given_up = GivenUpDonors::default();
    }

    /// Whether to ask a donor, which has just been heard, to list what it holds.
    pub fn is_to_list(&mut self, donor: DonorId, now: Tick) -> bool {
        if self.given_up.is_over(donor, now) {
            return false;
        }
        match self.given_up.0.get(&donor) {
            Some(ListingTurn::Waits) if self.given_up.at_work(now) < AT_ONCE => {
                self.given_up.0.insert(donor, ListingTurn::Asked(now));
                true
            }
            Some(ListingTurn::Asked(_)) => true,
            _ => false,
        }
    }

    /// A page of a donor's list came, which holds its turn.
    pub fn heard_page(&mut self, donor: DonorId, now: Tick) {
        self.given_up.heard(donor, now);
    }

    /// Whether a donor's unknown chunks were given up, and it has not yet listed all.
    pub fn is_given_up(&self, donor: DonorId) -> bool {
        self.given_up.0.contains_key(&donor)
    }

    /// Divides what the catalog does not know into what sessions have offered, which are writing it,
    /// and what nobody has.
    pub fn part_offered(&self, unknown: &[Holding]) -> (Vec<Holding>, Vec<Holding>) {
        let offered = |name: &ChunkName| self.offered.is_offered(name);
        unknown.iter().partition(|holding| offered(&holding.name))
    }
}
