//! Chunks that donors hold and the catalog does not know, and that an admin gave up.
//!
//! A donor's list alone never makes a chunk garbage (promise D5): what is unknown may be of a newer
//! catalog. The admin's word makes it so, for the donors that are there when it is given, and for this
//! term of the manager: after a restart another catalog may run. What the donors list from then on, and
//! no session has offered, becomes a chunk that no file uses, and goes the way of those.

use super::Pool;
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_wire::control::Holding;
use std::collections::BTreeMap;
use std::time::Duration;

/// Donors that list at the same time: each reads its whole index, and the manager compares it.
const AT_ONCE: usize = 8;
/// A donor that takes longer holds nobody else up.
const TURN: Duration = Duration::from_secs(600);

/// The donors whose unknown chunks were given up, until they listed them.
#[derive(Debug, Default)]
pub struct GivenUp(BTreeMap<DonorId, Turn>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Others list first.
    Waits,
    /// It is asked to list since then.
    Asked(Tick),
    /// It lists since then.
    Lists(Tick),
}

impl GivenUp {
    fn at_work(&self, now: Tick) -> usize {
        let works = |turn: &&Turn| match turn {
            Turn::Waits => false,
            Turn::Asked(since) | Turn::Lists(since) => now.saturating_sub(*since) < TURN,
        };
        self.0.values().filter(works).count()
    }

    /// Nothing said of an earlier incarnation of the donor holds.
    pub(super) fn forget(&mut self, donor: DonorId) {
        self.0.remove(&donor);
    }

    /// The first page of a list came.
    pub(super) fn begins(&mut self, donor: DonorId) {
        if let Some(turn) = self.0.get_mut(&donor)
            && let Turn::Asked(since) = *turn
        {
            *turn = Turn::Lists(since);
        }
    }

    /// The last page of a list came: all of it was seen if the first one was.
    pub(super) fn ends(&mut self, donor: DonorId) {
        if matches!(self.0.get(&donor), Some(Turn::Lists(_))) {
            self.0.remove(&donor);
        }
    }
}

impl Pool {
    /// An admin gives up what donors hold and the catalog does not know: gives the donors that are
    /// there, which are asked to list it, and those that are not.
    pub fn give_up_unknown(&mut self, now: Tick) -> (Vec<DonorId>, Vec<DonorId>) {
        let ids = self.donors.iter().map(|(id, _)| id);
        let (there, absent): (Vec<_>, Vec<_>) = ids.partition(|id| self.vouches(*id, now));
        self.given_up.0.extend(there.iter().map(|id| (*id, Turn::Waits)));
        (there, absent)
    }

    /// Nothing unknown is given up any more.
    pub fn keep_unknown(&mut self) {
        self.given_up = GivenUp::default();
    }

    /// Whether to ask a donor, which has just been heard, to list what it holds.
    pub fn is_to_list(&mut self, donor: DonorId, now: Tick) -> bool {
        match self.given_up.0.get(&donor) {
            Some(Turn::Waits) if self.given_up.at_work(now) < AT_ONCE => {
                self.given_up.0.insert(donor, Turn::Asked(now));
                true
            }
            Some(Turn::Asked(_)) => true,
            _ => false,
        }
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
