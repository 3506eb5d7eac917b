//! Quotas of spaces, and of members over all spaces that they made.

use crate::stage::Stage;
use potluck_catalog::fixture::file;
use potluck_catalog::fixture::new_space;
use potluck_catalog::fixture::path;
use potluck_catalog::{CommitOutcome, Error, NewSpace, PreparedFile, Refused, Sums};
use potluck_core::ids::MemberId;
use potluck_core::policy::Policy;
use potluck_core::quota::{Quota, QuotaOf};
use potluck_wire::control::Condition;

fn lab() -> QuotaOf {
    QuotaOf::Space("lab".into())
}

fn bytes(most: u64) -> Quota {
    Quota { bytes: Some(most), files: None }
}

/// A file of so many chunks of 1000 bytes.
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
async fn the_file_that_would_exceed_a_quota_is_refused_and_what_grows_nothing_never_is() {
    let mut stage = Stage::new().await;
    stage.catalog.set_quota(lab(), bytes(3000)).await.expect("set");
    store(&mut stage, vec![sized("pot://lab/a", 2)]).await.expect("fits");
    let files = vec![sized("pot://lab/c", 2), sized("pot://lab/b", 1), sized("pot://lab/e", 1)];
    let why = store(&mut stage, files).await.expect_err("too much").to_string();
    assert_eq!(why, "the space lab may hold 2.9 KiB, and would hold 3.9 KiB");
    assert_eq!(stage.listed("pot://lab", false, None).await, ["a", "b"], "to the byte");
    assert!(store(&mut stage, vec![sized("pot://lab/d", 1)]).await.is_err());

    // Even where it is exceeded already, as by a quota that was set later.
    stage.catalog.set_quota(lab(), Quota { bytes: Some(10), files: Some(0) }).await.expect("set");
    store(&mut stage, vec![sized("pot://lab/a", 1)]).await.expect("smaller than before");
    store(&mut stage, vec![sized("pot://lab/a", 1)]).await.expect("as large as before");
    assert!(store(&mut stage, vec![sized("pot://lab/a", 2)]).await.is_err());
    stage.catalog.set_quota(lab(), Quota { bytes: None, files: Some(2) }).await.expect("set");
    let files = store(&mut stage, vec![sized("pot://lab/d", 1)]).await.expect_err("a third");
    assert_eq!(files.to_string(), "the space lab may hold 2 files, and would hold 3 files");
    stage.catalog.set_quota(lab(), Quota::NONE).await.expect("taken away");
    store(&mut stage, vec![sized("pot://lab/d", 9)]).await.expect("no limits");
    assert_eq!(stage.catalog.quotas(None).await, Ok(Vec::new()));
}

#[tokio::test]
async fn an_atomic_batch_keeps_a_quota_by_all_its_files_together() {
    let mut stage = Stage::new().await;
    stage.atomic = true;
    let trees = |a, b| vec![sized("pot://lab/a", a), sized("pot://lab/b", b)];
    store(&mut stage, trees(1, 2)).await.expect("no quota");
    stage.catalog.set_quota(lab(), bytes(3000)).await.expect("set");
    store(&mut stage, trees(2, 1)).await.expect("as much as before");
    assert!(store(&mut stage, trees(1, 3)).await.is_err());
    let sums = stage.catalog.quotas(None).await.expect("read").remove(0).used;
    assert_eq!(sums, Sums { files: 2, bytes: 3000 }, "nothing of the batch is there");
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
async fn a_members_quota_is_on_all_spaces_that_they_made_and_goes_with_them() {
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
    assert_eq!((used.of, used.used), (hers, Sums { files: 1, bytes: 2000 }));
    stage.catalog.revoke(ada).await.expect("revoked");
    assert_eq!(stage.catalog.quotas(None).await, Ok(Vec::new()));
}
