//! The turns of donors that list the chunks that they hold: after a start of the manager all of them list at once, and
//! heartbeats, commits and readers must go on meanwhile.
//!
//! A donor has its turn from its first page to its last. A donor without a turn is refused at once and asks again with
//! an empty page, so that its heartbeats do not wait behind its list. While other donors ask, a turn has an end, and an
//! owner of several donors gives turns up to owners that have none. A donor whose turn was given to another goes on in
//! its next turn with the page at which it was.

use potluck_catalog::CountedCopies;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, Incarnation, MemberId};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;

/// The number of donors whose lists are compared with the catalog at once.
const AT_ONCE: usize = 8;
/// The time without a page after which a donor's turn is given to another that asks; the donor has to ask for
/// another turn.
const IDLE: Duration = Duration::from_secs(30);
/// The age at which a turn may be given to another donor that asks for one. Most lists are compared in seconds; a donor
/// that begins its list anew again and again, or that sends a page now and then, would otherwise keep its turn for
/// ever.
const LONGEST: Duration = Duration::from_secs(60);
/// The approximate number of copies of a donor that are kept in memory, in 16 bytes each, to be compared with its list.
/// The others are looked up in the catalog.
pub const MOST_COUNTED: usize = 1 << 20;

/// The turns in which donors' lists are compared with the catalog.
#[derive(Debug, Default)]
pub struct InventoryTurns(Mutex<BTreeMap<DonorId, Turn>>);

#[derive(Debug)]
struct Turn {
    incarnation: Incarnation,
    /// The owner of the donor: the first donor of the chain of invitations that led to this one.
    owner: MemberId,
    began: Tick,
    /// The moment at which the donor's last page came.
    heard: Tick,
    counted: Arc<tokio::sync::Mutex<Counted>>,
}

/// The copies that count at a donor whose turn it is; `None` until they were read.
pub type Counted = Option<CountedCopies>;

impl InventoryTurns {
    /// Begins a donor's turn, or goes on with it, and locks the donor's counted copies for one page: the pages of one
    /// donor are compared one after the other.
    ///
    /// Errors: all turns are taken, or an earlier page of the donor is being compared. The donor is to ask again.
    pub fn take(
        &self,
        donor: DonorId,
        owner: MemberId,
        incarnation: Incarnation,
        now: Tick,
    ) -> Result<OwnedMutexGuard<Counted>, Failure> {
        let mut turns = self.turns();
        let has_one = turns.get(&donor).is_some_and(|turn| turn.incarnation == incarnation);
        if !has_one {
            turns.retain(|other, turn| *other != donor && now.saturating_sub(turn.heard) < IDLE);
            if turns.len() >= AT_ONCE {
                let Some(other) = gives_way(&turns, owner, now) else {
                    return Err(wait("the manager compares the inventories of other donors"));
                };
                turns.remove(&other);
            }
            let counted = Arc::default();
            turns.insert(donor, Turn { incarnation, owner, began: now, heard: now, counted });
        }
        let turn = turns.get_mut(&donor).ok_or_else(|| wait("the turn of this donor is over"))?;
        turn.heard = now;
        let page = Arc::clone(&turn.counted).try_lock_owned();
        page.map_err(|_| wait("the manager compares an earlier page of this donor"))
    }

    /// Ends the turn of a donor whose last page was compared.
    pub fn end(&self, donor: DonorId) {
        self.turns().remove(&donor);
    }

    fn turns(&self) -> std::sync::MutexGuard<'_, BTreeMap<DonorId, Turn>> {
        self.0.lock().expect("no holder panics")
    }
}

/// Returns the donor that gives its turn to a donor of `owner` when all turns are taken: the donor with the oldest
/// turn, if that is older than [`LONGEST`]; otherwise, if `owner` has no turn, the last to begin of those whose owner
/// has several.
fn gives_way(turns: &BTreeMap<DonorId, Turn>, owner: MemberId, now: Tick) -> Option<DonorId> {
    let oldest = turns.iter().min_by_key(|(_, turn)| turn.began);
    if let Some((donor, _)) = oldest.filter(|(_, it)| now.saturating_sub(it.began) > LONGEST) {
        return Some(*donor);
    }
    let of = |owner: MemberId| turns.values().filter(move |turn| turn.owner == owner).count();
    if of(owner) > 0 {
        return None;
    }
    let one_of_several = turns.iter().filter(|(_, turn)| of(turn.owner) > 1);
    one_of_several.max_by_key(|(_, turn)| turn.began).map(|(donor, _)| *donor)
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

    /// A page of a donor that nobody else owns.
    fn page(turns: &InventoryTurns, donor: DonorId, now: Tick) -> Result<(), Failure> {
        turns.take(donor, MemberId(donor.0), LIFE, now).map(drop)
    }

    #[test]
    fn a_few_donors_list_at_once_and_the_others_are_told_to_wait() {
        let turns = InventoryTurns::default();
        let donors = || (1..=AT_ONCE as u32).map(DonorId);
        donors().for_each(|donor| page(&turns, donor, at(0)).expect("a turn"));
        let late = DonorId(99);
        assert!(page(&turns, late, at(1)).is_err(), "all turns are taken");
        donors().for_each(|donor| page(&turns, donor, at(2)).expect("its next page"));
        turns.end(DonorId(1));
        assert!(page(&turns, late, at(3)).is_ok());
        assert!(page(&turns, DonorId(1), at(3)).is_err(), "it asks for another turn");
    }

    #[test]
    fn a_donor_that_sends_no_page_makes_room_for_another() {
        let turns = InventoryTurns::default();
        for donor in (1..=AT_ONCE as u32).map(DonorId) {
            page(&turns, donor, at(0)).expect("a turn");
        }
        page(&turns, DonorId(1), at(20)).expect("its next page");
        page(&turns, DonorId(98), at(31)).expect("the turn of a silent one");
        assert!(page(&turns, DonorId(1), at(31)).is_ok(), "this one was heard");
    }

    #[test]
    fn donors_that_begin_again_and_again_keep_nobody_from_a_turn() {
        let turns = InventoryTurns::default();
        let late = DonorId(99);
        let had = (0..120).find(|second| {
            if second % 20 == 0 {
                // Donors that were made to wait ask again like all others.
                (1..=AT_ONCE as u32)
                    .for_each(|donor| drop(page(&turns, DonorId(donor), at(*second))));
            }
            page(&turns, late, at(*second)).is_ok()
        });
        let had = had.expect("a turn within two minutes");
        for second in had..had + 60 {
            (1..=AT_ONCE as u32).for_each(|donor| drop(page(&turns, DonorId(donor), at(second))));
            assert!(page(&turns, late, at(second)).is_ok(), "its own turn lasts as long");
        }
    }

    #[test]
    fn inventory_turns_are_fair_between_owners() {
        let turns = InventoryTurns::default();
        for donor in (1..=AT_ONCE as u32).map(DonorId) {
            drop(turns.take(donor, MemberId(1), LIFE, at(0)).expect("nobody else asks"));
        }
        for other in (11..11 + AT_ONCE as u32 - 1).map(DonorId) {
            page(&turns, other, at(1)).expect("one of the many gives way");
        }
        assert!(page(&turns, DonorId(99), at(1)).is_err(), "each owner has one");
        let more = (1..=AT_ONCE as u32).map(DonorId);
        let taken = more.filter(|it| turns.take(*it, MemberId(1), LIFE, at(2)).is_ok()).count();
        assert_eq!(taken, 1);
    }

    #[test]
    fn pages_of_one_donor_are_compared_one_after_the_other() {
        let turns = InventoryTurns::default();
        let first = turns.take(DonorId(1), MemberId(1), LIFE, at(0)).expect("a turn");
        assert!(
            turns.take(DonorId(1), MemberId(1), LIFE, at(0)).is_err(),
            "the first is under way"
        );
        drop(first);
        assert!(turns.take(DonorId(1), MemberId(1), LIFE, at(0)).is_ok());
        let mut counted = turns.take(DonorId(1), MemberId(1), LIFE, at(0)).expect("a turn");
        *counted = Some(CountedCopies::default());
        drop(counted);
        let anew = turns.take(DonorId(1), MemberId(1), Incarnation(2), at(0)).expect("a turn");
        assert!(anew.is_none(), "what counted for another life of it is read again");
    }
}
