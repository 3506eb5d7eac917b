//! Turns of donors that list what they hold: after a start of the manager all of them want to at once, and heartbeats,
//! commits and readers go on meanwhile.
//!
//! A donor has its turn from the page with which it begins to its last one, and whoever has none is refused at once: it asks
//! again by an empty page, and its heartbeats do not wait behind.

use potluck_catalog::CountedCopies;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, Incarnation};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;

/// Donors whose lists are compared with the catalog at once.
const AT_ONCE: usize = 8;
/// A donor of which no page came for so long makes room for another, and asks for another turn.
const IDLE: Duration = Duration::from_secs(30);
/// Copies of a donor, about, that are kept in memory to be compared with its list: 16 bytes each. The others are looked up
/// one by one.
pub const MOST_COUNTED: usize = 1 << 20;

/// The turns in which donors' lists are compared with the catalog.
#[derive(Debug, Default)]
pub struct InventoryTurns(Mutex<BTreeMap<DonorId, Turn>>);

#[derive(Debug)]
struct Turn {
    incarnation: Incarnation,
    /// When its last page came.
    heard: Tick,
    counted: Arc<tokio::sync::Mutex<Counted>>,
}

/// The copies that count at a donor whose turn it is, once they were read.
pub type Counted = Option<CountedCopies>;

impl InventoryTurns {
    /// Begins with a page of a donor, or goes on with its next: pages of one donor are compared one after the other.
    pub fn take(
        &self,
        donor: DonorId,
        incarnation: Incarnation,
        now: Tick,
    ) -> Result<OwnedMutexGuard<Counted>, Failure> {
        let mut turns = self.turns();
        let has_one = turns.get(&donor).is_some_and(|turn| turn.incarnation == incarnation);
        if !has_one {
            turns.retain(|other, turn| *other != donor && now.saturating_sub(turn.heard) < IDLE);
            if turns.len() >= AT_ONCE {
                return Err(wait("the manager compares the inventories of other donors"));
            }
            let turn = Turn { incarnation, heard: now, counted: Arc::default() };
            turns.insert(donor, turn);
        }
        let turn = turns.get_mut(&donor).ok_or_else(|| wait("the turn of this donor is over"))?;
        turn.heard = now;
        let page = Arc::clone(&turn.counted).try_lock_owned();
        page.map_err(|_| wait("the manager compares an earlier page of this donor"))
    }

    /// A donor's last page was compared.
    pub fn end(&self, donor: DonorId) {
        self.turns().remove(&donor);
    }

    fn turns(&self) -> std::sync::MutexGuard<'_, BTreeMap<DonorId, Turn>> {
        self.0.lock().expect("no holder panics")
    }
}

fn wait(what: &str) -> Failure {
    Failure::new(ErrorKind::Retry, code::NO_MANAGER, what).hint("ask again in a moment")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Incarnation = Incarnation(1);

    fn at(seconds: u64) -> Tick {
        Tick::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_few_donors_list_at_once_and_the_others_are_told_to_wait() {
        let turns = InventoryTurns::default();
        let donors = || (1..=AT_ONCE as u32).map(DonorId);
        donors().for_each(|donor| drop(turns.take(donor, LIFE, at(0)).expect("a turn")));
        let late = DonorId(99);
        assert!(turns.take(late, LIFE, at(1)).is_err(), "all turns are taken");
        donors().for_each(|donor| drop(turns.take(donor, LIFE, at(2)).expect("its next page")));
        turns.end(DonorId(1));
        assert!(turns.take(late, LIFE, at(3)).is_ok());
        assert!(turns.take(DonorId(1), LIFE, at(3)).is_err(), "it asks for another turn");
    }

    #[test]
    fn a_donor_that_sends_no_page_makes_room_for_another() {
        let turns = InventoryTurns::default();
        for donor in (1..=AT_ONCE as u32).map(DonorId) {
            drop(turns.take(donor, LIFE, at(0)).expect("a turn"));
        }
        drop(turns.take(DonorId(1), LIFE, at(20)).expect("its next page"));
        drop(turns.take(DonorId(98), LIFE, at(31)).expect("the turn of a silent one"));
        assert!(turns.take(DonorId(1), LIFE, at(31)).is_ok(), "this one was heard");
    }

    #[test]
    fn pages_of_one_donor_are_compared_one_after_the_other() {
        let turns = InventoryTurns::default();
        let first = turns.take(DonorId(1), LIFE, at(0)).expect("a turn");
        assert!(turns.take(DonorId(1), LIFE, at(0)).is_err(), "the first is under way");
        drop(first);
        assert!(turns.take(DonorId(1), LIFE, at(0)).is_ok());
        let mut counted = turns.take(DonorId(1), LIFE, at(0)).expect("a turn");
        *counted = Some(CountedCopies::default());
        drop(counted);
        let anew = turns.take(DonorId(1), Incarnation(2), at(0)).expect("a turn");
        assert!(anew.is_none(), "what counted for another life of it is read again");
    }
}
