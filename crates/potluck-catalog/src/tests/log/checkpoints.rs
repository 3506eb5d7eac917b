//! Tests of checkpoints in the log.

use super::{MADE, Target, WHEN, base, changes_after, told};
use crate::checkpoints::checkpoint_rows;
use crate::fixture::{Fixture, file, path};
use crate::log::records::Record;
use crate::operations::{
    checkpoints::{self, NewCheckpoint},
    names::{self, directories},
    upkeep::reaping,
};
use crate::policies::policy_changes;
use crate::sql::Tx;
use crate::tests::NO_CONDITIONS;
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::ids::MemberId;
use potluck_core::policy::Override;

/// A replay gives the same staged and the same visible files, from a base before the checkpoints or in the midst of
/// them.
#[test]
fn checkpoints_are_replayed_open_committed_and_aborted() {
    let mut fixture = Fixture::new();
    let id = |number| CheckpointId([number; 16]);
    let begin = |fixture: &Fixture, number, target: &str, style| {
        let (target, made_by) = (path(target), MemberId(1));
        let new = NewCheckpoint { id: id(number), target, style, made_by, idle_ms: 1000 };
        checkpoints::begin(&fixture.db, &new, WHEN).expect("begun").staging
    };
    let commit = |fixture: &Fixture, number| {
        let how = NO_CONDITIONS;
        checkpoints::commit(&fixture.db, ("lab", &id(number)), how, WHEN).expect("committed");
    };
    fixture.put(file("pot://lab/step/old", &[1], &[1]));
    let (records, last) = base(&fixture);
    let replace = begin(&fixture, 1, "pot://lab/step", CommitStyle::Replace);
    fixture.put(file(&format!("{replace}/a"), &[2], &[1]));
    fixture.put(file(&format!("{replace}/passes"), &[3], &[1]));
    fixture.put(file(&format!("{replace}/passes"), &[4], &[1]));
    let merge = begin(&fixture, 2, "pot://lab", CommitStyle::Merge);
    fixture.put(file(&format!("{merge}/step/merged"), &[5], &[1]));
    let aborted = begin(&fixture, 3, "pot://lab/none", CommitStyle::Replace);
    fixture.put(file(&format!("{aborted}/a"), &[6], &[1]));
    let open = begin(&fixture, 4, "pot://lab/open", CommitStyle::Replace);
    fixture.put(file(&format!("{open}/a"), &[7], &[1]));
    let (in_the_middle, middle) = base(&fixture);
    commit(&fixture, 1);
    commit(&fixture, 2);
    checkpoints::abort(&fixture.db, ("lab", &id(3)), false, 5).expect("aborted");
    while reaping::reap(&fixture.db, 100, 0, 9).expect("reaped") {}
    for (base, after) in [(records, last), (in_the_middle, middle)] {
        let mut target = Target::new();
        target.apply(&base);
        target.apply(&changes_after(&fixture.db, after));
        assert_eq!(target.replay.left_out, 0);
        let told_open = |db: &Tx| checkpoint_rows::all(db).expect("read").open;
        assert_eq!(told_open(&target.db), told_open(&fixture.db));
        assert_eq!(told_open(&target.db).len(), 1);
        let left_out = std::mem::take(&mut target.replay).finish(&target.db).expect("finished");
        assert_eq!((left_out, told(&target.db)), (0, told(&fixture.db)));
        commit(&Fixture::of(target._dir, target.db), 4);
    }
}

/// The log tells that the old directory is kept before it tells that the new one takes its place.
#[test]
fn replay_hands_policies_of_a_replaced_directory_to_the_checkpoint() {
    let mut fixture = Fixture::new();
    fixture.put(file("pot://lab/step/d/old", &[1], &[1]));
    let keeps =
        Override { keep_versions: Some("2".parse().expect("versions")), ..Override::default() };
    let copies = Override { copies: Some(3), ..Override::default() };
    for (at, over) in [("pot://lab/step", keeps), ("pot://lab/step/d", copies)] {
        policy_changes::set(&fixture.db, &path(at), &over).expect("set");
    }
    let (records, last) = base(&fixture);
    let (id, target, made_by) = (CheckpointId([1; 16]), path("pot://lab/step"), MemberId(1));
    let new = NewCheckpoint { id, target, style: CommitStyle::Replace, made_by, idle_ms: 1000 };
    let staging = checkpoints::begin(&fixture.db, &new, WHEN).expect("begun").staging;
    fixture.put(file(&format!("{staging}/d/new"), &[2], &[1]));
    let how = NO_CONDITIONS;
    checkpoints::commit(&fixture.db, ("lab", &id), how, WHEN).expect("committed");
    let mut restored = Target::new();
    restored.apply(&records);
    restored.apply(&changes_after(&fixture.db, last));
    assert_eq!(restored.replay.left_out, 0);
    assert_eq!(told(&restored.db), told(&fixture.db));
}

/// A move measures the paths below before its transaction, and a checkpoint may begin in between.
#[test]
fn a_checkpoint_whose_target_gets_too_long_a_path_is_not_open_and_expires() {
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
