//! Gives up chunks that donors hold and the catalog does not know, when an admin says so: the donors list these chunks.
//!
//! A donor's list alone never makes a chunk garbage (promise D5): an unknown chunk may be of a newer
//! catalog. The admin's word makes it so, for the donors that are there when it is given, and for this
//! term of the manager: after a restart another catalog may run. A chunk that these donors list from then on, and
//! that no session has offered, becomes a chunk that no file uses, and is deleted as such.

use super::Pool;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_wire::control::Holding;

/// The most chunks of one donor that the catalog takes in on an admin's word and the donor's: 4 TiB at 4 MiB a chunk,
/// and some hundred megabytes of rows.
const MOST_GIVEN_UP: u64 = 1 << 20;

impl Pool {
    /// Gives up, on an admin's word, what donors hold and the catalog does not know. Returns the donors that are
    /// there, which are asked to list it, and those that are not.
    pub fn give_up_unknown(&mut self, now: Tick) -> (Vec<DonorId>, Vec<DonorId>) {
        let ids = self.donors.iter().map(|(id, _)| id);
        let (there, absent): (Vec<_>, Vec<_>) = ids.partition(|id| self.vouches(*id, now));
        self.given_up.extend(there.iter().map(|id| (*id, false)));
        (there, absent)
    }

    /// Ends the giving up of unknown chunks.
    pub fn keep_unknown(&mut self) {
        self.given_up.clear();
    }

    /// Returns whether to ask a donor to list what it holds.
    pub fn is_to_list(&self, donor: DonorId) -> bool {
        self.given_up.get(&donor) == Some(&false)
    }

    /// Notes the first page of a donor's list.
    pub(super) fn begins_list(&mut self, donor: DonorId) {
        self.given_up.entry(donor).and_modify(|begun| *begun = true);
    }

    /// Notes the last page of a donor's list: all of it was seen if the first page was.
    pub(super) fn ends_list(&mut self, donor: DonorId) {
        self.given_up.retain(|id, begun| *id != donor || !*begun);
    }

    /// Returns whether a donor's unknown chunks were given up and it has not yet listed all of them.
    pub fn is_given_up(&self, donor: DonorId) -> bool {
        self.given_up.contains_key(&donor)
    }

    /// Takes from `unknown`, the chunks that a donor listed and the catalog does not know, those that no session has
    /// offered, within the bound on what the catalog takes in on a donor's word: the names may be invented. The rest
    /// stays unknown, and can be given up again when the chunks taken in are gone.
    pub fn take_given_up(&self, donor: DonorId, unknown: &mut Vec<Holding>) -> Vec<Holding> {
        let taken_in = self.donors.get(donor).map_or(0, |donor| donor.taken_in);
        let mut left = MOST_GIVEN_UP.saturating_sub(taken_in);
        let is_taken = |holding: &mut Holding| {
            let is_taken = left > 0 && !self.offered.is_offered(&holding.name);
            left -= u64::from(is_taken);
            is_taken
        };
        unknown.extract_if(.., is_taken).collect()
    }

    /// Notes that the catalog took in so many chunks on a donor's word.
    pub fn took_in(&mut self, donor: DonorId, chunks: u64) {
        if let Some(donor) = self.donors.get_mut(donor) {
            donor.taken_in = donor.taken_in.saturating_add(chunks);
        }
    }
}
