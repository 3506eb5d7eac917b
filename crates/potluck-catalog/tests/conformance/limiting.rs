//! Quotas of spaces, and of members over all spaces that they made.

use crate::stage::{MADE, Stage, when};
use potluck_catalog::fixture::new_space;
use potluck_catalog::fixture::path;
use potluck_catalog::fixture::{file, last_part, sparse};
use potluck_catalog::{
    CommitOutcome, Error, NewCheckpoint, NewSpace, PreparedFile, Refused, Sums, WhatIsKept, When,
};
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::ids::MemberId;
use potluck_core::policy::{Override, Policy};
use potluck_core::quota::{LimitChange, Quota, QuotaChange, QuotaOf};
use potluck_wire::control::Condition;

fn lab() -> QuotaOf {
    QuotaOf::Space("lab".into())
}

fn bytes(most: u64) -> Quota {
    Quota { bytes: Some(most), files: None }
}

/// Returns a file of `chunks` chunks of 1000 bytes.
fn sized(at: &str, chunks: u64) -> PreparedFile {
    file(at, &(0..chunks).collect::<Vec<_>>(), &[1])
}

async fn store(stage: &mut Stage, files: Vec<PreparedFile>) -> Result<(), Error> {
    let number = stage.next_batch();
    let CommitOutcome::Fresh { files, .. } =
        stage.commit_batch(number, files, false, 0).await?.outcome
    else {
        panic!("a batch of its own");
    };
    files.into_iter().try_for_each(|file| match file {
        Ok(_) => Ok(()),
        Err(Refused::Here(why)) => Err(why),
        Err(Refused::Before(())) => panic!("the catalog was asked"),
    })
}

#[tokio::test]
async fn quota_refuses_only_growth() {
    let mut stage = Stage::new().await;
    stage.catalog.set_quota(lab(), bytes(3000)).await.expect("set");
    store(&mut stage, vec![sized("pot://lab/a", 2)]).await.expect("fits");
    let files = vec![sized("pot://lab/c", 2), sized("pot://lab/b", 1), sized("pot://lab/e", 1)];
    let why = store(&mut stage, files).await.expect_err("too much").to_string();
    assert_eq!(why, "the space lab may hold 2.9 KiB, and would hold 3.9 KiB");
    assert_eq!(stage.listed("pot://lab", false, None).await, ["a", "b"], "to the byte");
    assert!(store(&mut stage, vec![sized("pot://lab/d", 1)]).await.is_err());

    // This holds even where the quota is exceeded already, as by one that was set later.
    stage.catalog.set_quota(lab(), Quota { bytes: Some(10), files: Some(0) }).await.expect("set");
    store(&mut stage, vec![sized("pot://lab/a", 1)]).await.expect("smaller than before");
    store(&mut stage, vec![sized("pot://lab/a", 1)]).await.expect("as large as before");
    assert!(store(&mut stage, vec![sized("pot://lab/a", 2)]).await.is_err());
    stage.catalog.set_quota(lab(), Quota { bytes: None, files: Some(2) }).await.expect("set");
    let files = store(&mut stage, vec![sized("pot://lab/d", 1)]).await.expect_err("a third");
    let what = "may hold 2 files and directories, and would hold 3 files and directories";
    assert_eq!(files.to_string(), format!("the space lab {what}"));
    let one = QuotaChange { files: LimitChange::Most(9), ..QuotaChange::default() };
    stage.catalog.set_quota(lab(), bytes(9000)).await.expect("set");
    let both = stage.catalog.set_quota(lab(), one).await.expect("set");
    assert_eq!(both, Quota { bytes: Some(9000), files: Some(9) }, "the other limit stays");
    let one = QuotaChange { bytes: LimitChange::Remove, ..QuotaChange::default() };
    let other = stage.catalog.set_quota(lab(), one).await.expect("set");
    assert_eq!(other, Quota { bytes: None, files: Some(9) });
    stage.catalog.set_quota(lab(), Quota::NONE).await.expect("taken away");
    store(&mut stage, vec![sized("pot://lab/d", 9)]).await.expect("no limits");
    assert_eq!(stage.catalog.quotas(None).await, Ok(Vec::new()));
}

#[tokio::test]
async fn holes_use_nothing_of_a_quota() {
    let mut stage = Stage::new().await;
    stage.catalog.set_quota(lab(), bytes(3000)).await.expect("set");
    store(&mut stage, vec![sparse("pot://lab/a", &[1, 2], 1 << 40, &[1])]).await.expect("fits");
    assert!(store(&mut stage, vec![sized("pot://lab/b", 2)]).await.is_err());
    store(&mut stage, vec![sparse("pot://lab/a", &[3], 1 << 41, &[1])]).await.expect("fits");
    store(&mut stage, vec![sized("pot://lab/b", 2)]).await.expect("what was replaced is free");
    // A file in parts is as large as those that are stored, here one of ten chunks of 64 KiB.
    let large = || last_part("pot://lab/large", 0, 50_000..52_058, &[1]).into_iter();
    let part = large().next().expect("a part");
    stage.catalog.set_quota(lab(), bytes(3000 + 655_359)).await.expect("set");
    assert!(store(&mut stage, vec![part]).await.is_err());
    stage.catalog.set_quota(lab(), bytes(3000 + 655_360)).await.expect("set");
    for file in large() {
        store(&mut stage, vec![file]).await.expect("fits");
    }
    let space = stage.catalog.spaces().await.expect("spaces").remove(0);
    assert_eq!(space.sums.bytes, 3000 + 655_360);
}

#[tokio::test]
async fn a_quota_binds_whoever_had_long_holes_before_it_was_set() {
    let mut stage = Stage::new().await;
    stage.put(sparse("pot://lab/a", &[1], 1 << 32, &[1])).await;
    stage.catalog.set_quota(lab(), bytes(10)).await.expect("set");
    assert!(store(&mut stage, vec![sized("pot://lab/a", 2)]).await.is_err(), "more data");
    let admitted = stage.catalog.admit_write(path("pot://lab/a"), Condition::Always, 2000).await;
    assert!(matches!(admitted, Err(Error::OverQuota { .. })), "{admitted:?}");
    store(&mut stage, vec![sized("pot://lab/a", 1)]).await.expect("as much data");
}

#[tokio::test]
async fn a_write_that_will_not_fit_is_refused_before_it_is_sent() {
    let mut stage = Stage::new().await;
    stage.put(sized("pot://lab/a", 2)).await;
    stage.catalog.set_quota(lab(), bytes(3000)).await.expect("set");
    let admitted = async |at, bytes| {
        stage.catalog.admit_write(path(at), Condition::Always, bytes).await.map(drop)
    };
    assert_eq!(admitted("pot://lab/b", 1000).await, Ok(()));
    assert!(matches!(admitted("pot://lab/b", 1001).await, Err(Error::OverQuota { .. })));
    assert_eq!(admitted("pot://lab/a", 3000).await, Ok(()), "in place of what is there");
    assert_eq!(admitted("pot://lab", 1 << 40).await, Ok(()), "nobody knows what it replaces");
    assert!(admitted("pot://lab/b", u64::MAX).await.is_err());
}

#[tokio::test]
async fn member_quota_covers_all_spaces_they_made() {
    let mut stage = Stage::new().await;
    let ada = stage.join("ada", 1).await;
    let mine = |name: &str| NewSpace {
        made_by: Some(ada),
        ..new_space(name, Policy { sealed: false, ..Policy::default() }, None)
    };
    for name in ["one", "two"] {
        stage.catalog.create_space(mine(name), None, 0).await.expect("made");
    }
    let hers = QuotaOf::Member(ada);
    stage.catalog.set_quota(hers.clone(), bytes(3000)).await.expect("set");
    let nobody = stage.catalog.set_quota(QuotaOf::Member(MemberId(77)), bytes(1)).await;
    assert_eq!(nobody, Err(Error::NoMember(77)));
    let admitted = async |stage: &Stage, at, bytes| {
        stage.catalog.admit_write(path(at), Condition::Always, bytes).await.map(drop)
    };
    stage.session_in("one").await;
    store(&mut stage, vec![sized("pot://one/f", 2)]).await.expect("fits");
    let why = admitted(&stage, "pot://two/f", 1001).await.expect_err("too much").to_string();
    assert!(why.starts_with(&format!("all spaces that ada ({ada}) made may hold")), "{why}");
    admitted(&stage, "pot://two/f", 1000).await.expect("fits");
    admitted(&stage, "pot://lab/f", 5000).await.expect("not hers");
    let used = stage.catalog.quotas(None).await.expect("read").remove(0);
    assert_eq!((used.of, used.used), (hers, Sums { files: 1, bytes: 2000, ..Sums::default() }));
    stage.catalog.revoke(ada).await.expect("revoked");
    // What she stored stays, and so does the limit of every user.
    let left = stage.catalog.quotas(None).await.expect("read").remove(0);
    assert_eq!((left.quota.bytes, left.quota.files), (None, Some(5_000_000)));
    assert!(left.files_by_default);
}

#[tokio::test]
async fn directories_and_snapshots_count_as_files_in_quotas() {
    let mut stage = Stage::new().await;
    let most = |files| Quota { bytes: None, files: Some(files) };
    let set = async |stage: &Stage, files| {
        stage.catalog.set_quota(lab(), most(files)).await.expect("set");
    };
    let dirs = async |stage: &Stage| {
        let used = stage.catalog.quotas(None).await.expect("read").remove(0).used;
        (used.files, used.dirs)
    };
    set(&stage, 2).await;
    let make = async |stage: &Stage, at, parents| {
        stage.catalog.make_directory(path(at), parents, MADE).await
    };
    let over = |made| matches!(made, Err(Error::OverQuota { files: Some(3), .. }));
    assert!(over(make(&stage, "pot://lab/a/b/c", true).await));
    assert!(over(store(&mut stage, vec![sized("pot://lab/a/b/c", 1)]).await));
    assert_eq!(stage.listed("pot://lab", true, None).await, Vec::<String>::new(), "no trace");
    store(&mut stage, vec![sized("pot://lab/a/b", 1)]).await.expect("a directory and a file");
    assert!(over(make(&stage, "pot://lab/c", false).await));
    assert!(over(make(&stage, "pot://lab/a/c", true).await));
    let id = CheckpointId([1; 16]);
    let (target, style) = (path("pot://lab/step"), CommitStyle::Merge);
    let new =
        || NewCheckpoint { id, target: target.clone(), style, made_by: MemberId(1), idle_ms: 1000 };
    assert!(over(stage.catalog.begin_checkpoint(new(), when(1)).await.map(drop)));
    let snapshot = async |stage: &Stage| {
        stage.catalog.take_snapshot(path("pot://lab/a"), "s".into(), when(1)).await.map(drop)
    };
    assert!(matches!(snapshot(&stage).await, Err(Error::OverQuota { files: Some(5), .. })));
    assert_eq!(dirs(&stage).await, (1, 1));

    set(&stage, 5).await;
    snapshot(&stage).await.expect("with the directories that it is in");
    assert_eq!(dirs(&stage).await, (1, 4));
    stage.catalog.remove_snapshot(path("pot://lab/a"), "s".into()).await.expect("removed");
    assert_eq!(dirs(&stage).await, (1, 1));
    // What is kept counts, with the directory that it is kept in.
    let over = Override { trash: Some("1h".parse().expect("a time")), ..Override::default() };
    stage.catalog.set_policy(path("pot://lab"), over).await.expect("set");
    stage
        .catalog
        .remove(path("pot://lab/a/b"), Default::default(), false, when(1))
        .await
        .expect("removed");
    assert_eq!(dirs(&stage).await, (1, 2));
    stage.catalog.bring_back(path("pot://lab/a/b"), None, true, when(1)).await.expect("back");
    assert_eq!(dirs(&stage).await, (1, 1));
    stage.catalog.begin_checkpoint(new(), when(1)).await.expect("begun");
    stage.catalog.abort_checkpoint(("lab".into(), id), false, 1).await.expect("aborted");
    assert_eq!(dirs(&stage).await, (1, 1));
    make(&stage, "pot://lab/step", false).await.expect("made");
    let again = NewCheckpoint { id: CheckpointId([2; 16]), ..new() };
    let staging = stage.catalog.begin_checkpoint(again, when(1)).await.expect("begun").staging;
    make(&stage, &format!("{staging}/d"), false).await.expect("made");
    assert_eq!(dirs(&stage).await, (1, 4));
    let commit = ("lab".into(), CheckpointId([2; 16]));
    let always = (Condition::Always, false);
    stage.catalog.commit_checkpoint(commit, always, when(1)).await.expect("committed");
    assert_eq!(dirs(&stage).await, (1, 3));
    let forever = When { keeps: WhatIsKept::Nothing, ..when(1) };
    for at in ["pot://lab/a", "pot://lab/step"] {
        stage.catalog.remove(path(at), Default::default(), true, forever).await.expect("removed");
    }
    stage.empty_trash().await;
    assert_eq!(dirs(&stage).await, (0, 0));
}

#[tokio::test]
async fn checkpoint_parent_directories_count_against_the_quota() {
    let stage = Stage::new().await;
    let set = async |files| {
        let quota = Quota { bytes: None, files: Some(files) };
        stage.catalog.set_quota(lab(), quota).await.expect("set");
    };
    let id = CheckpointId([1; 16]);
    let begin = async || {
        let (target, style) = (path("pot://lab/a/b/step"), CommitStyle::Replace);
        let new = NewCheckpoint { id, target, style, made_by: MemberId(1), idle_ms: 1000 };
        stage.catalog.begin_checkpoint(new, when(1)).await.map(drop)
    };
    let commit = async || {
        let always = (Condition::Always, false);
        stage.catalog.commit_checkpoint(("lab".into(), id), always, when(2)).await.map(drop)
    };
    set(2).await;
    assert!(matches!(begin().await, Err(Error::OverQuota { files: Some(3), .. })));
    set(3).await;
    begin().await.expect("begun");
    // Somebody else takes the room meanwhile.
    stage.catalog.make_directory(path("pot://lab/other"), false, MADE).await.expect("made");
    assert!(matches!(commit().await, Err(Error::OverQuota { files: Some(4), .. })));
    set(4).await;
    commit().await.expect("it stayed open");
    assert_eq!(stage.listed("pot://lab", true, None).await, ["a", "a/b", "a/b/step", "other"]);
}

#[tokio::test]
async fn snapshot_versions_count_against_the_quota() {
    let mut stage = Stage::new().await;
    store(&mut stage, vec![sized("pot://lab/d/a", 2)]).await.expect("stored");
    let taken = stage.catalog.take_snapshot(path("pot://lab/d"), "s".into(), when(1)).await;
    taken.expect("taken");
    stage.catalog.set_quota(lab(), bytes(3000)).await.expect("set");
    let admitted = stage.catalog.admit_write(path("pot://lab/d/a"), Condition::Always, 2000).await;
    assert!(matches!(admitted, Err(Error::OverQuota { .. })), "before it is sent: {admitted:?}");
    let stored = store(&mut stage, vec![sized("pot://lab/d/a", 2)]).await;
    assert!(matches!(stored, Err(Error::OverQuota { .. })), "both would be there: {stored:?}");
    store(&mut stage, vec![sized("pot://lab/d/a", 1)]).await.expect("fits beside the first");
    store(&mut stage, vec![sized("pot://lab/d/a", 1)]).await.expect("no snapshot shows the second");
    let used = stage.catalog.quotas(None).await.expect("read").remove(0).used;
    assert_eq!((used.files, used.bytes), (2, 3000));
}

#[tokio::test]
async fn inline_files_are_counted() {
    let mut stage = Stage::new().await;
    let counted = async |stage: &Stage| {
        stage.catalog.spaces().await.expect("spaces").remove(0).sums.in_catalog
    };
    let small = |at| sized(at, 0);
    for at in ["pot://lab/a", "pot://lab/b", "pot://lab/d/c", "pot://lab/d/e"] {
        stage.put(small(at)).await;
    }
    stage.put(sized("pot://lab/d/large", 1)).await;
    assert_eq!(counted(&stage).await, 4);
    stage.put(small("pot://lab/b")).await;
    stage.put(sized("pot://lab/a", 1)).await;
    assert_eq!(counted(&stage).await, 3, "one was replaced by another, and one by a larger file");
    stage.remove("pot://lab/b", 5).await;
    assert_eq!(counted(&stage).await, 2);
    stage.remove("pot://lab/d", 5).await;
    stage.empty_trash().await;
    assert_eq!(counted(&stage).await, 0);
    stage.put(small("pot://lab/a")).await;
    assert_eq!(counted(&stage).await, 1);
}
