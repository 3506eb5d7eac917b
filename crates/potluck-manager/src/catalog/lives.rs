//! The lives of managers that led to this catalog: its pedigree.
//!
//! A copy of a catalog, however it was made, ends with the life that it was copied from, at the
//! number of changes that this life had made by then. Donors remember which life they heard last,
//! and how many changes it told of. A life that is not in the pedigree, or that went on after the
//! pedigree left it, has made changes that this catalog does not know (promise D5).
//!
//! Changes are counted, not timed: a manager that is killed and started again has all that it ever
//! told of, so it need not be told from a copy by any grace.

use super::error::Error;
use super::{changes, notes};
use potluck_core::ids::Epoch;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

/// Lives that are remembered: a donor is rarely away for longer than so many starts.
const KEPT: usize = 1000;

/// The life of a manager over one catalog, or the part of it with one epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// Its epoch.
    pub epoch: Epoch,
    /// Drawn at its start; 0 where that is not known.
    pub start: u64,
    /// Changes: the number that the catalog had when it began, or the most that it told of.
    pub changes: u64,
}

/// A manager began a life.
pub fn begin(db: &Connection, epoch: Epoch, start: u64) -> Result<(), Error> {
    let mut lives = all(db)?;
    // A life of a release that writes no pedigree came between, or a restore: what went before is
    // not judged by a pedigree with a gap.
    if lives.last().is_some_and(|last| last.epoch.0 + 1 != epoch.0) {
        lives.clear();
    }
    add(db, lives, epoch, start)
}

/// The life under way has another epoch from now on.
pub fn go_on(db: &Connection, epoch: Epoch, start: u64) -> Result<(), Error> {
    let lives = all(db)?;
    match lives.last().is_some_and(|last| last.epoch >= epoch) {
        true => Ok(()),
        false => add(db, lives, epoch, start),
    }
}

/// Of all lives only the last counts from now on: what others may have done is given up.
pub fn give_up(db: &Connection) -> Result<(), Error> {
    let lives = all(db)?;
    set(db, &lives[lives.len().saturating_sub(1)..])
}

/// Whether `heard`, which a donor heard, did something that this catalog does not know, as far as
/// its pedigree reaches.
pub fn unknown(db: &Connection, heard: Life) -> Result<bool, Error> {
    Ok(departed(&all(db)?, heard))
}

fn departed(lives: &[Life], heard: Life) -> bool {
    if lives.first().is_none_or(|first| heard.epoch < first.epoch) {
        return false;
    }
    let same =
        |life: &&Life| life.epoch == heard.epoch && (heard.start == 0 || life.start == heard.start);
    let Some(known) = lives.iter().find(same) else { return true };
    let mut later = lives.iter().skip_while(|life| life.epoch <= known.epoch);
    later.find(|life| life.start != known.start).is_some_and(|next| heard.changes > next.changes)
}

fn all(db: &Connection) -> Result<Vec<Life>, Error> {
    let Some(text) = notes::get(db, notes::LIVES)? else { return Ok(Vec::new()) };
    serde_json::from_str(&text).map_err(|why| Error::Damaged(format!("the note of lives: {why}")))
}

fn add(db: &Connection, mut lives: Vec<Life>, epoch: Epoch, start: u64) -> Result<(), Error> {
    let changes = changes::last(db)?.max(0) as u64;
    lives.push(Life { epoch, start, changes });
    set(db, &lives[lives.len().saturating_sub(KEPT)..])
}

fn set(db: &Connection, lives: &[Life]) -> Result<(), Error> {
    let text = serde_json::to_string(lives).map_err(|why| Error::Bug(why.to_string()))?;
    notes::set(db, notes::LIVES, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(epoch: u64, start: u64, changes: u64) -> Life {
        Life { epoch: Epoch(epoch), start, changes }
    }

    #[test]
    fn d5_a_life_counts_as_known_up_to_where_the_pedigree_left_it() {
        // Life 12 was raised to epoch 6 and 9 while it went on.
        let lives = [life(4, 11, 0), life(5, 12, 40), life(6, 12, 60), life(9, 12, 70)];
        let lives = [&lives[..], &[life(10, 13, 100)]].concat();
        for known in [
            life(4, 11, 40),
            life(4, 0, 0),
            life(5, 12, 99),
            life(6, 12, 100),
            life(10, 13, 9999),
            life(3, 99, 9999), // before the pedigree begins
            life(0, 0, 0),
        ] {
            assert!(!departed(&lives, known), "{known:?}");
        }
        for unknown in [
            life(4, 11, 41),
            life(5, 12, 101),
            life(9, 12, 101),
            life(4, 12, 0),
            life(7, 12, 0),
            life(10, 14, 0),
            life(11, 13, 0),
        ] {
            assert!(departed(&lives, unknown), "{unknown:?}");
        }
        assert!(!departed(&[], life(4, 11, 41)));
    }

    #[test]
    fn a_pedigree_begins_anew_after_a_life_that_wrote_none_and_when_all_is_given_up() {
        let db = Connection::open_in_memory().expect("a database");
        db.execute_batch(
            "CREATE TABLE notes (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
             CREATE TABLE changes (seq INTEGER PRIMARY KEY AUTOINCREMENT, op TEXT NOT NULL);
             INSERT INTO changes (op) VALUES ('a'), ('b');",
        )
        .expect("the tables it is made of");
        begin(&db, Epoch(1), 11).expect("began");
        begin(&db, Epoch(2), 12).expect("began");
        go_on(&db, Epoch(2), 12).expect("nothing new");
        go_on(&db, Epoch(7), 12).expect("raised");
        assert_eq!(all(&db).expect("read"), [life(1, 11, 2), life(2, 12, 2), life(7, 12, 2)]);
        give_up(&db).expect("given up");
        assert_eq!(all(&db).expect("read"), [life(7, 12, 2)]);
        begin(&db, Epoch(9), 14).expect("epoch 8 is of an older release");
        assert_eq!(all(&db).expect("read"), [life(9, 14, 2)]);
    }
}
