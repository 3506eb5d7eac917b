use crate::commit::{Outcome, Refused};
use crate::fixture::{Fixture, chunk, file, path};
use crate::placements::{self, Told};
use crate::{Error, chunks, entries, gc, names, sessions, spaces};
use potluck_core::ids::{DonorId, VersionId};
use potluck_wire::control::Condition;

const WHEN: names::When = names::When { pool_ms: 50, wall_ms: 0 };

fn refused(outcome: &Result<VersionId, Refused<()>>) -> &Error {
    match outcome {
        Err(Refused::Here(why)) => why,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn references_count_every_occurrence_and_end_with_their_versions() {
    let mut fixture = Fixture::new();
    fixture.put(file("pot://lab/a", &[1, 2, 1], &[1]));
    fixture.put(file("pot://lab/b", &[1], &[1]));
    assert_eq!((fixture.refs(&chunk(1)), fixture.refs(&chunk(2))), (Some(3), Some(1)));

    names::remove(&fixture.db, &path("pot://lab/a"), false, WHEN).expect("removed");
    assert_eq!((fixture.refs(&chunk(1)), fixture.refs(&chunk(2))), (Some(1), Some(0)));
    names::remove(&fixture.db, &path("pot://lab/b"), false, WHEN).expect("removed");
    assert_eq!(fixture.refs(&chunk(1)), Some(0));
    let unused = |before| {
        gc::unused(&fixture.db, before, (i64::MIN, chunks::ChunkId(0)), 10).expect("read").len()
    };
    assert_eq!((unused(50), unused(49)), (2, 0), "both wait from the moment of the removal");
}

#[test]
fn a_later_commit_replaces_the_whole_version() {
    let mut fixture = Fixture::new();
    let old = fixture.put(file("pot://lab/a", &[1], &[1]));
    let new = fixture.put(file("pot://lab/a", &[2], &[1]));
    assert!(new > old, "versions grow");
    assert_eq!((fixture.refs(&chunk(1)), fixture.refs(&chunk(2))), (Some(0), Some(1)));
    let sums = spaces::named(&fixture.db, "lab").expect("space").sums;
    assert_eq!((sums.files, sums.bytes), (1, 1000));

    // Twice in one batch: the second wins, and nothing is counted twice.
    let outcomes =
        fixture.commit(vec![file("pot://lab/x", &[3], &[1]), file("pot://lab/x", &[3, 4], &[1])]);
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!((fixture.refs(&chunk(3)), fixture.refs(&chunk(4))), (Some(1), Some(1)));
}

#[test]
fn a_file_whose_condition_fails_is_refused_alone() {
    let mut fixture = Fixture::new();
    let there = fixture.put(file("pot://lab/a", &[1], &[1]));
    let if_absent = |at, n| {
        let mut file = file(at, &[n], &[1]);
        file.condition = Condition::IfAbsent;
        file
    };
    let mut moved_on = file("pot://lab/a", &[5], &[1]);
    moved_on.condition = Condition::IfVersion(VersionId(there.0 + 100));
    let mut expected = file("pot://lab/a", &[6], &[1]);
    expected.condition = Condition::IfVersion(there);

    let outcomes = fixture.commit(vec![
        if_absent("pot://lab/a", 2),
        if_absent("pot://lab/b", 3),
        if_absent("pot://lab/b", 4),
        moved_on,
        expected,
    ]);
    assert_eq!(*refused(&outcomes[0]), Error::Exists(path("pot://lab/a")));
    assert!(outcomes[1].is_ok());
    assert_eq!(*refused(&outcomes[2]), Error::Exists(path("pot://lab/b")));
    assert!(matches!(refused(&outcomes[3]), Error::WrongVersion { .. }));
    assert!(outcomes[4].is_ok());
    assert_eq!(fixture.refs(&chunk(2)), None, "a refused file leaves no trace");
}

#[test]
fn d2_a_chunk_that_nobody_acknowledged_is_never_named() {
    let mut fixture = Fixture::new();
    let outcomes = fixture.commit(vec![
        file("pot://lab/new/dir/bad", &[1], &[]),
        file("pot://lab/good", &[2], &[1]),
        file("pot://lab/again", &[2], &[]),
    ]);
    assert!(matches!(refused(&outcomes[0]), Error::NotAcknowledged { index: 0, .. }));
    assert!(outcomes[1].is_ok());
    assert!(outcomes[2].is_ok(), "what a file of the same batch proved needs no other proof");
    assert_eq!(fixture.refs(&chunk(1)), None);
    let dir = entries::resolve(&fixture.db, &path("pot://lab/new")).expect("read");
    assert_eq!(dir, None, "not even its directories are made");

    // A copy that its donor lost proves nothing either.
    let lost = Told { removed: vec![chunk(2)], ..Told::default() };
    placements::tell(&fixture.db, DonorId(1), &lost, 0).expect("told");
    let outcomes = fixture.commit(vec![file("pot://lab/third", &[2], &[])]);
    assert!(matches!(refused(&outcomes[0]), Error::NotAcknowledged { .. }));
}

#[test]
fn d5_a_condemned_chunk_needs_a_fresh_receipt_and_is_then_kept() {
    let mut fixture = Fixture::new();
    fixture.put(file("pot://lab/a", &[1], &[1]));
    names::remove(&fixture.db, &path("pot://lab/a"), false, WHEN).expect("removed");
    gc::condemn(&fixture.db, &[chunk(1)], 50).expect("condemned");

    let outcomes = fixture.commit(vec![file("pot://lab/b", &[1], &[])]);
    assert!(matches!(refused(&outcomes[0]), Error::NotAcknowledged { .. }));

    let batch = vec![file("pot://lab/b", &[1], &[2])];
    match fixture.commit_batch(90, batch, false, 60).expect("committed") {
        Outcome::Fresh { files, again } => {
            assert!(files[0].is_ok());
            assert_eq!(again.condemned, [chunk(1)]);
        }
        Outcome::Repeated(_) => panic!("not repeated"),
    }
    assert_eq!(gc::still_condemned(&fixture.db, &[chunk(1)]), Ok(vec![]));
    assert!(gc::condemned(&fixture.db, chunks::ChunkId(0), 10).expect("read").is_empty());
}

#[test]
fn a_repeated_batch_repeats_its_reply_and_nothing_else() {
    let fixture = Fixture::new();
    let batch = || vec![file("pot://lab/a", &[1], &[1])];
    assert!(matches!(fixture.commit_batch(0, batch(), true, 0), Ok(Outcome::Fresh { .. })));
    match fixture.commit_batch(0, batch(), true, 0).expect("answered") {
        Outcome::Repeated(text) => assert_eq!(text, "1 outcomes"),
        Outcome::Fresh { .. } => panic!("committed twice"),
    }
    assert_eq!(fixture.refs(&chunk(1)), Some(1));
    let after_the_end = fixture.commit_batch(1, batch(), false, 0);
    assert!(matches!(after_the_end, Err(Error::NoSession)));
    assert!(!sessions::is_open(&fixture.db, &fixture.session).expect("read"));
}

#[test]
fn files_and_directories_do_not_take_each_others_place() {
    let mut fixture = Fixture::new();
    fixture.put(file("pot://lab/a/b", &[1], &[1]));
    let outcomes = fixture.commit(vec![
        file("pot://lab/a", &[1], &[]),
        file("pot://lab/a/b/c", &[1], &[]),
        file("pot://other/a", &[1], &[]),
        file("pot://lab", &[1], &[]),
    ]);
    assert_eq!(*refused(&outcomes[0]), Error::IsADirectory(path("pot://lab/a")));
    assert_eq!(*refused(&outcomes[1]), Error::NotADirectory(path("pot://lab/a/b")));
    assert_eq!(*refused(&outcomes[2]), Error::NoSpaceNamed("other".into()));
    assert_eq!(*refused(&outcomes[3]), Error::OutsideSpaces(path("pot://lab")));
}

#[test]
fn d1_what_was_committed_is_there_after_reopening() {
    let mut fixture = Fixture::new();
    let version = fixture.put(file("pot://lab/dir/a", &[1, 2], &[1, 2]));
    let fixture = fixture.reopen();
    let page = crate::open::open(&fixture.db, &path("pot://lab/dir"), true, None).expect("open");
    assert_eq!(page.files[0].version, version);
    assert_eq!(page.files[0].holders, vec![vec![DonorId(1), DonorId(2)]; 2]);
    assert_eq!(page.files[0].path, "a");
}
