//! Tests of checkpoints in the log.

use super::{MADE, Target, WHEN, base, told};
use crate::checkpoints::checkpoint_rows;
use crate::fixture::{Fixture, file, path};
use crate::log::records::Record;
use crate::operations::{
    checkpoints::{self, NewCheckpoint},
    names::{self, directories},
};
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::ids::MemberId;

/// A move measures the paths below before its transaction, and a checkpoint may begin in between.
#[test]
fn checkpoint_with_an_overlong_target_expires() {
    let fixture = Fixture::new();
    let db = &*fixture.db;
    directories::make_dir(db, &path("pot://lab/a"), false, MADE).expect("made");
    let below: String = format!("/{}", "d".repeat(199)).repeat(20);
    let target = path(&format!("pot://lab/a{below}"));
    let (id, style, made_by) = (CheckpointId([1; 16]), CommitStyle::Replace, MemberId(1));
    let new = NewCheckpoint { id, target, style, made_by, idle_ms: 1000 };
    checkpoints::begin(db, &new, WHEN).expect("begun");
    let long = path(&format!("pot://lab/{}", "b".repeat(200)));
    names::move_entry(db, &path("pot://lab/a"), &long, false, WHEN).expect("moved");

    assert_eq!(checkpoint_rows::all(db).map(|known| known.open), Ok(Vec::new()));
    // A restore has nothing of it.
    let mut restored = Target::new();
    restored.apply(&base(&fixture).0);
    std::mem::take(&mut restored.replay).finish(&restored.db).expect("finished");
    names::remove(&restored.db, &long, false, WHEN).expect("nothing is hidden in it");
    assert!(checkpoint_rows::any_due(db, 2000).expect("read"));
    while checkpoints::expire(db, 1, 2000).expect("removed") {}
    assert!(!checkpoint_rows::any_due(db, 2000).expect("read"));
    names::remove(db, &long, false, WHEN).expect("nothing is staged in it");
}

#[test]
fn restore_drops_staging_of_checkpoints_missing_from_the_log() {
    let mut fixture = Fixture::new();
    fixture.put(file("pot://lab/f", &[1], &[1]));
    let before = told(&fixture.db);
    let (id, target, made_by) = (CheckpointId([1; 16]), path("pot://lab/step"), MemberId(1));
    let new = NewCheckpoint { id, target, style: CommitStyle::Replace, made_by, idle_ms: 1000 };
    let staging = checkpoints::begin(&fixture.db, &new, WHEN).expect("begun").staging;
    fixture.put(file(&format!("{staging}/a"), &[2], &[1]));
    let (mut records, _) = base(&fixture);
    records.retain(|record| !matches!(record, Record::Checkpoint(_)));
    let mut restored = Target::new();
    restored.apply(&records);
    std::mem::take(&mut restored.replay).finish(&restored.db).expect("finished");
    assert_eq!(told(&restored.db), before);
}
