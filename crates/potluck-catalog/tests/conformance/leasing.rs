//! Versions that readers have open when their names come to lead elsewhere.

use crate::stage::{Stage, when};
use potluck_catalog::fixture::{chunk, file, path};
use potluck_catalog::{LEASE, Upkeep};
use potluck_core::ids::{MemberId, VersionId};

const LEASE_MS: u64 = LEASE.as_millis() as u64;
/// The time for which versions that lost their names are left whole if a reader may have them open, in
/// milliseconds.
const KEPT_MS: u64 = 1000;
const READER: MemberId = MemberId(5);

/// The ways in which a name comes to lead elsewhere.
#[derive(Debug, Clone, Copy)]
enum Loss {
    Removed,
    RemovedWithItsTree,
    Replaced,
    ReplacedByAMove,
}

/// Makes a file of chunk 1 in a tree, which is opened at time 0 under a lease and then loses its name.
async fn lost(loss: Loss) -> (Stage, VersionId) {
    let mut stage = Stage::new().await;
    let version = stage.put(file("pot://lab/d/a", &[1], &[1])).await;
    stage.put(file("pot://lab/d/b", &[2], &[1])).await;
    let opened = stage.catalog.open_leased(path("pot://lab/d/a"), READER, 0).await;
    assert_eq!(opened.expect("opened").files[0].version, version);
    match loss {
        Loss::Removed => stage.remove("pot://lab/d/a", 10).await,
        Loss::RemovedWithItsTree => stage.remove("pot://lab/d", 10).await,
        Loss::Replaced => drop(stage.put(file("pot://lab/d/a", &[3], &[1])).await),
        Loss::ReplacedByAMove => {
            let (from, to) = (path("pot://lab/d/b"), path("pot://lab/d/a"));
            stage.catalog.rename(from, to, false, None, when(10)).await.expect("moved");
        }
    }
    (stage, version)
}

async fn reap(stage: &Stage, now_ms: u64) {
    let step = Upkeep::Trash { entries: 100, kept_ms: KEPT_MS };
    while stage.catalog.upkeep(step, now_ms).await.expect("reaped") {}
}

#[tokio::test]
async fn open_versions_are_kept_until_their_read_lease_ends_a5() {
    for loss in [Loss::Removed, Loss::RemovedWithItsTree, Loss::Replaced, Loss::ReplacedByAMove] {
        let (stage, version) = lost(loss).await;
        let is_used = async |now_ms: u64| {
            reap(&stage, now_ms).await;
            !stage.unused(u64::MAX >> 1).await.contains(&chunk(1))
        };
        let renewed_ms = LEASE_MS - 1;
        for now_ms in [20, KEPT_MS + 20, renewed_ms] {
            assert!(is_used(now_ms).await, "{loss:?} at {now_ms}");
        }
        let gone = stage.catalog.renew_leases(READER, "lab", vec![version], renewed_ms).await;
        assert_eq!(gone, [], "{loss:?}");
        let end_ms = renewed_ms + LEASE_MS;
        assert!(is_used(end_ms - 1).await, "{loss:?}: it was renewed");
        let gone = stage.catalog.renew_leases(READER, "lab", vec![version], end_ms + 1).await;
        assert_eq!(gone, [version], "{loss:?}");
        assert!(!is_used(end_ms + KEPT_MS + 1).await, "{loss:?}: nobody has it open any more");
    }
}

#[tokio::test]
async fn replaced_versions_are_kept_after_restart_until_leases_are_renewed_a5() {
    for is_open in [true, false] {
        let mut stage = Stage::new().await;
        let version = stage.put(file("pot://lab/a", &[1], &[1])).await;
        stage.catalog.leases_are_forgotten(5);
        stage.remove("pot://lab/a", 10).await;
        reap(&stage, LEASE_MS + 4).await;
        assert_eq!(stage.unused(u64::MAX >> 1).await, [], "nobody knows yet");
        if is_open {
            let renew = stage.catalog.renew_leases(READER, "lab", vec![version], LEASE_MS + 4);
            assert_eq!(renew.await, []);
        }
        reap(&stage, LEASE_MS + KEPT_MS + 10).await;
        let unused = stage.unused(u64::MAX >> 1).await;
        assert_eq!(unused.is_empty(), is_open, "{unused:?}");
    }
}

#[tokio::test]
async fn a_file_that_nobody_has_leased_is_reclaimed_at_once() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/a", &[1], &[1])).await;
    let opened = stage.catalog.open_files(path("pot://lab/a"), false, None).await;
    let version = opened.expect("opened").files[0].version;
    stage.remove("pot://lab/a", 10).await;
    assert_eq!(stage.unused(u64::MAX >> 1).await, [chunk(1)]);
    assert_eq!(stage.catalog.renew_leases(READER, "lab", vec![version], 11).await, [version]);
}
