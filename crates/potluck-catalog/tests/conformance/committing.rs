//! Written files become visible, or are refused without a trace.

use crate::stage::Stage;
use potluck_catalog::fixture::chunk;
use potluck_catalog::fixture::file;
use potluck_catalog::fixture::path;
use potluck_catalog::{CommitOutcome, Error, Refused, ToldCopies};
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId, VersionId};
use potluck_wire::control::Condition;

fn refused(outcome: &Result<VersionId, Refused<()>>) -> &Error {
    match outcome {
        Err(Refused::Here(why)) => why,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[tokio::test]
async fn chunk_references_count_occurrences_per_version() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/a", &[1, 2, 1], &[1])).await;
    stage.put(file("pot://lab/b", &[1], &[1])).await;
    assert!(stage.unused(1000).await.is_empty());
    stage.remove("pot://lab/a", 50).await;
    assert_eq!(stage.unused(50).await, [chunk(2)]);
    stage.remove("pot://lab/b", 60).await;
    assert_eq!(stage.unused(60).await, [chunk(2), chunk(1)]);
    assert_eq!(stage.unused(59).await, [chunk(2)], "each waits from the moment of its removal");
}

#[tokio::test]
async fn a_later_commit_replaces_the_whole_version() {
    let mut stage = Stage::new().await;
    let old = stage.put(file("pot://lab/a", &[1], &[1])).await;
    let new = stage.put(file("pot://lab/a", &[2], &[1])).await;
    assert!(new > old, "versions grow");
    assert_eq!(stage.unused(0).await, [chunk(1)]);
    let space = &stage.catalog.spaces().await.expect("spaces")[0];
    assert_eq!((space.sums.files, space.sums.bytes), (1, 1000));

    // If a path is twice in one batch, the second wins, and nothing is counted twice.
    let twice = vec![file("pot://lab/x", &[3], &[1]), file("pot://lab/x", &[3, 4], &[1])];
    assert!(stage.commit(twice).await.iter().all(Result::is_ok));
    stage.remove("pot://lab/x", 5).await;
    assert_eq!(stage.unused(5).await.len(), 3);
}

#[tokio::test]
async fn a_file_whose_condition_fails_is_refused_alone() {
    let mut stage = Stage::new().await;
    let there = stage.put(file("pot://lab/a", &[1], &[1])).await;
    let on = |at, n, condition| {
        let mut file = file(at, &[n], &[1]);
        file.condition = condition;
        file
    };
    let files = vec![
        on("pot://lab/a", 2, Condition::IfAbsent),
        on("pot://lab/b", 3, Condition::IfAbsent),
        on("pot://lab/b", 4, Condition::IfAbsent),
        on("pot://lab/a", 5, Condition::IfVersion(VersionId(there.0 + 100))),
        on("pot://lab/a", 6, Condition::IfVersion(there)),
    ];
    let outcomes = stage.commit(files).await;
    assert_eq!(*refused(&outcomes[0]), Error::Exists(path("pot://lab/a")));
    assert!(outcomes[1].is_ok());
    assert_eq!(*refused(&outcomes[2]), Error::Exists(path("pot://lab/b")));
    assert!(matches!(refused(&outcomes[3]), Error::WrongVersion { .. }));
    assert!(outcomes[4].is_ok());
    assert_eq!(stage.counted(1).await, (3, 0), "a refused file leaves no trace");
}

#[tokio::test]
async fn a_chunk_that_nobody_acknowledged_is_never_named_d2() {
    let mut stage = Stage::new().await;
    let files = vec![
        file("pot://lab/new/dir/bad", &[1], &[]),
        file("pot://lab/good", &[2], &[1]),
        file("pot://lab/again", &[2], &[]),
    ];
    let outcomes = stage.commit(files).await;
    assert!(matches!(refused(&outcomes[0]), Error::NotAcknowledged { index: 0, .. }));
    assert!(outcomes[1].is_ok());
    assert!(outcomes[2].is_ok(), "what a file of the same batch proved needs no other proof");
    let listed = stage.listed("pot://lab", true, None).await;
    assert_eq!(listed, ["again", "good"], "not even its directories are made");

    // A copy that its donor lost proves nothing either.
    stage.tell(1, ToldCopies { removed: vec![chunk(2)], ..ToldCopies::default() }, 0).await;
    let outcomes = stage.commit(vec![file("pot://lab/third", &[2], &[])]).await;
    assert!(matches!(refused(&outcomes[0]), Error::NotAcknowledged { .. }));
}

#[tokio::test]
async fn a_condemned_chunk_needs_a_fresh_receipt_and_is_then_kept_d5() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/a", &[1], &[1])).await;
    stage.remove("pot://lab/a", 50).await;
    stage.catalog.condemn(vec![chunk(1)], 50).await.expect("condemned");
    let outcomes = stage.commit(vec![file("pot://lab/b", &[1], &[])]).await;
    assert!(matches!(refused(&outcomes[0]), Error::NotAcknowledged { .. }));

    let batch = vec![file("pot://lab/b", &[1], &[2])];
    match stage.commit_batch(90, batch, false, 60).await.expect("committed").outcome {
        CommitOutcome::Fresh { files, again } => {
            assert!(files[0].is_ok());
            assert_eq!(again.condemned, [chunk(1)]);
            assert_eq!(again.doubtful, [(chunk(1), DonorId(1))]);
        }
        CommitOutcome::Repeated(_) => panic!("not repeated"),
    }
    let known = stage.catalog.chunks(vec![chunk(1), chunk(2)]).await.expect("read");
    let facts: Vec<_> = known.iter().map(|it| (it.name, it.is_used, it.is_condemned)).collect();
    assert_eq!(facts, [(chunk(1), true, false)], "and nothing of one that nobody named");
    assert!(stage.condemned().await.is_empty());
}

#[tokio::test]
async fn a_repeated_batch_repeats_its_reply_and_nothing_else() {
    let stage = Stage::new().await;
    let batch = || vec![file("pot://lab/a", &[1], &[1])];
    let first = stage.commit_batch(0, batch(), true, 0).await.expect("committed");
    assert!(matches!(first.outcome, CommitOutcome::Fresh { .. }));
    match stage.commit_batch(0, batch(), true, 0).await.expect("answered").outcome {
        CommitOutcome::Repeated(text) => assert_eq!(text, "1 files"),
        CommitOutcome::Fresh { .. } => panic!("committed twice"),
    }
    let kept = stage.catalog.committed_before(MemberId(1), stage.session, 0).await;
    assert_eq!(kept, Ok(vec!["1 files".into()]));
    let others = stage.catalog.committed_before(MemberId(2), stage.session, 0).await;
    assert_eq!(others, Ok(vec![]), "the id of a session is no secret");
    let after_the_end = stage.commit_batch(1, batch(), false, 0).await;
    assert!(matches!(after_the_end, Err(Error::NoSession)));
}

#[tokio::test]
async fn files_and_directories_do_not_take_each_others_place() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/a/b", &[1], &[1])).await;
    let files = vec![
        file("pot://lab/a", &[1], &[]),
        file("pot://lab/a/b/c", &[1], &[]),
        file("pot://other/a", &[1], &[]),
        file("pot://lab", &[1], &[]),
    ];
    let outcomes = stage.commit(files).await;
    assert_eq!(*refused(&outcomes[0]), Error::IsADirectory(path("pot://lab/a")));
    assert_eq!(*refused(&outcomes[1]), Error::NotADirectory(path("pot://lab/a/b")));
    assert_eq!(*refused(&outcomes[2]), Error::NoSpaceNamed("other".into()));
    assert_eq!(*refused(&outcomes[3]), Error::OutsideSpaces(path("pot://lab")));
}

#[tokio::test]
async fn committed_files_survive_reopening_the_catalog_d1() {
    let mut stage = Stage::new().await;
    let version = stage.put(file("pot://lab/dir/a", &[1, 2], &[1, 2])).await;
    let stage = stage.reopen().await;
    let page = stage.catalog.open_files(path("pot://lab/dir"), true, None).await.expect("open");
    assert_eq!(page.files[0].version, version);
    assert_eq!(page.files[0].holders, vec![vec![DonorId(1), DonorId(2)]; 2]);
    assert_eq!(page.files[0].path, "a");
}

/// A donor that was quarantined while a commit waited for its turn counts no more.
#[tokio::test]
async fn a_commit_is_not_judged_by_donors_as_they_stood_before() {
    let mut stage = Stage::new().await;
    let before = stage.donors.snapshot(Tick::ZERO);
    stage.donors.quarantine(DonorId(1), Some("it lies".into()));
    let live = |donor| before.current().is_live(DonorId(donor));
    assert_eq!([live(1), live(2)], [false, true]);
    let outcomes = stage.commit(vec![file("pot://lab/a", &[1], &[1])]).await;
    assert!(matches!(refused(&outcomes[0]), Error::NotAcknowledged { .. }));
}
