//! Tests of which changes the catalog forgets: those that every copy of the log which goes on has.

use super::MADE;
use crate::Error;
use crate::fixture::{Fixture, chunk, path};
use crate::log::changes;
use crate::log::log_position::{self, Advance, LogCopy, Position};
use crate::log::records::Record;
use crate::operations::names::directories;
use crate::pool_records::meta;
use crate::sql::Tx;
use potluck_core::ids::Epoch;

pub(super) fn position(generation: u64, sequence: u64, change: i64) -> Position {
    let at = serde_json::json!({
        "generation": generation, "key": chunk(0), "sequence": sequence, "last": chunk(sequence), "epoch": 1,
        "attempt": 1, "change": change, "begun_ms": 0, "base": { "blocks": 1, "lines": 9, "bytes": 0 },
        "log": { "blocks": 1, "lines": 9, "bytes": 0 },
    });
    serde_json::from_value(at).expect("a position")
}

/// Makes some twenty changes.
fn make_changes(db: &Tx) {
    for number in 0..20 {
        let at = path(&format!("pot://lab/d{number}"));
        directories::make_dir(db, &at, false, MADE).expect("made");
    }
}

#[test]
fn a_change_is_forgotten_when_every_copy_that_goes_on_has_it() {
    let fixture = Fixture::new();
    let db = &fixture.db;
    make_changes(db);
    let first = |db| changes::rows(db, 0, 1).expect("read").first().map(|row| row.0);
    let last = changes::last(db).expect("read");
    assert_eq!(first(db), Some(1));
    position(1, 4, 5).note(db, LogCopy::OnDonors).expect("noted");
    assert_eq!(first(db), Some(1), "a first base of the file may be under way");
    position(1, 4, 8).note(db, LogCopy::InFile).expect("noted");
    assert_eq!(first(db), Some(6), "donors wait for it");
    position(1, 6, 11).note(db, LogCopy::OnDonors).expect("noted");
    assert_eq!(first(db), Some(9), "the file waits for it");
    // A new base may be under way in place of the one that is lost.
    Position { lost: true, ..position(1, 6, 11) }.note(db, LogCopy::OnDonors).expect("noted");
    position(1, 7, last - 1).note(db, LogCopy::InFile).expect("noted");
    assert_eq!(first(db), Some(12));
}

#[test]
fn base_is_refused_after_its_changes_were_forgotten() {
    let fixture = Fixture::new();
    let db = &fixture.db;
    let epoch = meta::next_epoch(db).expect("begun");
    make_changes(db);
    let note = |row| {
        let after = position(1, 4, row);
        Advance { copy: LogCopy::OnDonors, before: None, after, epoch }.note(db)
    };
    changes::forget(db, 7).expect("forgotten");
    assert_eq!(note(6), Err(Error::NoSession), "the seventh change would be in no copy");
    assert_eq!(note(7), Ok(()));
}

#[test]
fn unwritten_changes_are_dropped_once_a_new_base_is_cheaper() {
    let fixture = Fixture::new();
    let db = &fixture.db;
    let epoch = meta::next_epoch(db).expect("begun");
    let kept = || changes::rows(db, 0, usize::MAX >> 1).expect("read").len();
    let start = changes::last(db).expect("read");
    let stuck = position(1, 4, start);
    stuck.note(db, LogCopy::InFile).expect("noted");
    let tx = db.begin().expect("begun");
    for _ in 0..20_000 {
        changes::tell(db, Record::Removed { path: path("pot://lab/x") }).expect("changed");
    }
    tx.commit().expect("committed");
    position(1, 5, start + 20_000).note(db, LogCopy::OnDonors).expect("noted");
    assert_eq!(kept(), 20_000, "the file may go on yet");
    changes::tell(db, Record::Removed { path: path("pot://lab/x") }).expect("changed");
    position(1, 6, start + 20_001).note(db, LogCopy::OnDonors).expect("noted");
    assert_eq!(kept(), 20_000, "a new base of the file may be under way");
    for _ in 0..9 {
        changes::tell(db, Record::Removed { path: path("pot://lab/x") }).expect("changed");
    }
    log_position::forget_covered(db).expect("forgotten");
    assert_eq!(kept(), 20_000, "no more, also where neither copy can be written");
    let at = Position::of(db, LogCopy::InFile).expect("read").expect("a position");
    assert!(at.is_worn(0), "it begins anew");
    // An export read before the changes were forgotten is not taken for all there was.
    let late = Advance {
        copy: LogCopy::InFile,
        before: Some(stuck),
        after: position(1, 5, start + 1000),
        epoch,
    };
    assert_eq!(late.note(db), Err(Error::NoSession));
    assert_eq!(epoch, Epoch(1));
}
