//! The terms of managers that led to this catalog: its history.
//!
//! A copy of a catalog, however it was made, ends with the term in which it was copied, at the number of changes that
//! this term had made by then. Donors remember which term they heard last, and how many changes it told them of. A term
//! that is not in the history, or that made more changes than the history has of it, has made changes that this catalog
//! does not know (promise D5).
//!
//! Changes are counted, not timed: a manager that is killed and started again still has every change that it told
//! donors of, so it can be told from a copy without waiting.

use crate::error::Error;
use crate::pool_records::notes;
use crate::sql::Tx;
use potluck_core::ids::Epoch;
use serde::{Deserialize, Serialize};

/// The most terms that are remembered: few donors are away for more starts of the manager than that.
const KEPT: usize = 1000;

/// The greatest epoch that hearsay can raise an epoch to: numbers of orders and blocks of the log begin at 2³² times
/// an epoch.
pub const LAST_EPOCH: Epoch = Epoch(1 << 31);

/// The term of a manager over one catalog, or the part of it with one epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    /// The epoch of the term.
    pub epoch: Epoch,
    /// The number that the term drew at its start; 0 where that is not known.
    pub start: u64,
    /// The number of changes that the catalog had when the term began, or the most that the term told of.
    pub changes: u64,
}

/// Notes that a manager began a term.
pub(crate) fn begin(db: &Tx, new: Term) -> Result<(), Error> {
    let mut terms = all(db)?;
    // A gap comes from a restore, or from a term of a release that writes no history. Nothing is
    // judged by a history with a gap, so what was before it is forgotten.
    if terms.last().is_some_and(|last| last.epoch.0 + 1 != new.epoch.0) {
        terms.clear();
    }
    add(db, terms, new)
}

/// Has the term under way go on with another epoch, unless its epoch is as high already.
pub(crate) fn go_on(db: &Tx, new: Term) -> Result<(), Error> {
    let terms = all(db)?;
    match terms.last().is_some_and(|last| last.epoch >= new.epoch) {
        true => Ok(()),
        false => add(db, terms, new),
    }
}

/// Forgets all terms but the last, and so gives up changes of other terms that this catalog does not know.
pub(crate) fn give_up(db: &Tx) -> Result<(), Error> {
    let terms = all(db)?;
    set(db, &terms[terms.len().saturating_sub(1)..])
}

/// Returns whether the term `heard`, of which a donor told, made changes that this catalog does not know, as far as its
/// history reaches back.
pub(crate) fn unknown(db: &Tx, heard: Term) -> Result<bool, Error> {
    Ok(departed(&all(db)?, heard))
}

fn departed(terms: &[Term], heard: Term) -> bool {
    if terms.first().is_none_or(|first| heard.epoch < first.epoch) {
        return false;
    }
    let same =
        |term: &&Term| term.epoch == heard.epoch && (heard.start == 0 || term.start == heard.start);
    let Some(known) = terms.iter().find(same) else { return true };
    let mut later = terms.iter().skip_while(|term| term.epoch <= known.epoch);
    later.find(|term| term.start != known.start).is_some_and(|next| heard.changes > next.changes)
}

fn all(db: &Tx) -> Result<Vec<Term>, Error> {
    let Some(text) = notes::get(db, notes::TERMS)? else { return Ok(Vec::new()) };
    serde_json::from_str(&text).map_err(|why| Error::Damaged(format!("the note of terms: {why}")))
}

fn add(db: &Tx, mut terms: Vec<Term>, new: Term) -> Result<(), Error> {
    terms.push(new);
    set(db, &terms[terms.len().saturating_sub(KEPT)..])
}

fn set(db: &Tx, terms: &[Term]) -> Result<(), Error> {
    let text = serde_json::to_string(terms).map_err(|why| Error::Bug(why.to_string()))?;
    notes::set(db, notes::TERMS, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    fn term(epoch: u64, start: u64, changes: u64) -> Term {
        Term { epoch: Epoch(epoch), start, changes }
    }

    #[test]
    fn a_term_counts_as_known_up_to_where_the_history_left_it_d5() {
        // The term that began as 12 was raised to the epochs 6 and 9 while it went on.
        let terms = [term(4, 11, 0), term(5, 12, 40), term(6, 12, 60), term(9, 12, 70)];
        let terms = [&terms[..], &[term(10, 13, 100)]].concat();
        for known in [
            term(4, 11, 40),
            term(4, 0, 0),
            term(5, 12, 99),
            term(6, 12, 100),
            term(10, 13, 9999),
            term(3, 99, 9999), // before the history begins
            term(0, 0, 0),
        ] {
            assert!(!departed(&terms, known), "{known:?}");
        }
        for unknown in [
            term(4, 11, 41),
            term(5, 12, 101),
            term(9, 12, 101),
            term(4, 12, 0),
            term(7, 12, 0),
            term(10, 14, 0),
            term(11, 13, 0),
        ] {
            assert!(departed(&terms, unknown), "{unknown:?}");
        }
        assert!(!departed(&[], term(4, 11, 41)));
    }

    #[test]
    fn term_history_restarts_after_a_gap() {
        let fixture = Fixture::new();
        let db = &*fixture.db;
        begin(db, term(1, 11, 5)).expect("began");
        begin(db, term(2, 12, 6)).expect("began");
        go_on(db, term(2, 12, 7)).expect("nothing new");
        go_on(db, term(7, 12, 8)).expect("raised");
        assert_eq!(all(db).expect("read"), [term(1, 11, 5), term(2, 12, 6), term(7, 12, 8)]);
        give_up(db).expect("given up");
        assert_eq!(all(db).expect("read"), [term(7, 12, 8)]);
        begin(db, term(9, 14, 9)).expect("epoch 8 is of an older release");
        assert_eq!(all(db).expect("read"), [term(9, 14, 9)]);
    }
}
