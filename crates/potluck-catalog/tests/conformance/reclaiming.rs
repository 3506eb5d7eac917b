//! Chunks that no file uses, until no donor has them any more.

use crate::stage::{Stage, when};
use potluck_catalog::ChunkAsker;
use potluck_catalog::fixture::file;
use potluck_catalog::fixture::path;
use potluck_catalog::{CommitOutcome, DonorNote, ToldCopies, UnusedChunk, UnusedSince};
use potluck_catalog::{Upkeep, fixture::chunk};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{ChunkId, DonorId};
use potluck_core::policy::AckLevel;
use potluck_wire::control::Holding;
use std::sync::Arc;

const DONORS: [DonorId; 2] = [DonorId(1), DonorId(2)];

fn removed(n: u64) -> ToldCopies {
    ToldCopies { removed: vec![chunk(n)], ..ToldCopies::default() }
}

fn added(n: u64) -> ToldCopies {
    ToldCopies { added: vec![Holding { name: chunk(n), len: 1000 }], ..ToldCopies::default() }
}

/// Lets the session offer chunks and end, and accounts for it.
async fn offered_and_ended(stage: &Stage, names: Vec<ChunkName>, now_ms: u64) {
    let asked = Arc::new(names.clone());
    stage
        .catalog
        .offer(stage.session, names, asked, AckLevel::Memory, ChunkAsker::ALL)
        .await
        .expect("offered");
    stage.catalog.end_session(stage.session).await.expect("ended");
    account(stage, now_ms).await;
}

async fn account(stage: &Stage, now_ms: u64) {
    let ended = Upkeep::EndedSession { id: stage.session, unused_since_ms: now_ms };
    let step = || stage.catalog.upkeep(ended, now_ms);
    while step().await.expect("a step") {}
}

#[tokio::test]
async fn aborted_session_chunks_are_reclaimed_from_every_reporting_donor_d2() {
    let mut stage = Stage::new().await;
    let names: Vec<_> = (0..3).map(chunk).collect();
    let asked = Arc::new(names.clone());
    stage
        .catalog
        .offer(stage.session, names, asked, AckLevel::Memory, ChunkAsker::ALL)
        .await
        .expect("offered");
    stage.put(file("pot://lab/a", &[0], &[1])).await;
    stage.catalog.end_session(stage.session).await.expect("ended");
    account(&stage, 100).await;

    let unused = stage.unused(100).await;
    assert_eq!(unused.len(), 2, "the committed chunk is none of them");
    stage.catalog.condemn(unused, 100).await.expect("condemned");
    assert!(stage.condemned().await.iter().all(|(_, donors)| donors.is_empty()), "nobody told yet");
    for donor in [1, 2] {
        stage.tell(donor, added(1), 200).await;
        stage.tell(donor, added(2), 200).await;
    }
    let page = stage.condemned().await;
    assert!(page.iter().all(|(_, donors)| *donors == DONORS), "each donor has each");
    for donor in [1, 2] {
        assert_eq!(stage.condemned().await.len(), 2);
        stage.tell(donor, removed(1), 500).await;
    }
    assert_eq!(stage.condemned().await, [(chunk(2), DONORS.to_vec())]);
    assert_eq!(stage.catalog.stats(Default::default()).await.expect("counted").condemned, 1);
}

#[tokio::test]
async fn unused_chunks_only_at_dead_donors_are_counted_apart() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/both", &[1, 2], &[1, 2])).await;
    stage.put(file("pot://lab/one", &[3], &[1])).await;
    stage.put(file("pot://lab/used", &[4], &[1])).await;
    for name in ["both", "one"] {
        stage.remove(&format!("pot://lab/{name}"), 10).await;
    }
    stage.empty_trash().await;
    // Some chunks wait for the GC delay, and some for donors to delete them.
    stage.catalog.condemn(vec![chunk(1)], u64::MAX >> 1).await.expect("condemned");
    let counted = async |dead: &[DonorId]| {
        let stats = stage.catalog.stats(dead.iter().copied().collect()).await.expect("counted");
        (stats.condemned, stats.condemned_at_dead)
    };
    assert_eq!(counted(&[]).await, (3, 0));
    assert_eq!(counted(&[DonorId(2)]).await, (3, 0));
    assert_eq!(counted(&[DonorId(1)]).await, (2, 1));
    assert_eq!(counted(&DONORS).await, (0, 3));
    // Once donor 2 has deleted its copy, two of the chunks are only at the dead donor.
    stage.tell(2, removed(1), 500).await;
    assert_eq!(counted(&[DonorId(1)]).await, (1, 2));
}

#[tokio::test]
async fn references_of_what_is_removed_end_step_by_step() {
    let mut stage = Stage::new().await;
    let many: Vec<u64> = (100..2600).collect();
    let small: Vec<u64> = (3000..3010).collect();
    stage.put(file("pot://lab/a/large", &many, &[1])).await;
    stage.put(file("pot://lab/a/small", &small, &[1])).await;
    stage.put(file("pot://lab/replaced", &many, &[1])).await;
    let sums = async |stage: &Stage| {
        let space = stage.catalog.spaces().await.expect("spaces").remove(0);
        (space.sums.files, space.sums.bytes)
    };
    assert_eq!(sums(&stage).await, (3, 5_010_000));
    stage.put(file("pot://lab/replaced", &[1], &[1])).await;
    assert_eq!(sums(&stage).await, (3, 2_511_000), "what is replaced counts no more");
    let removed = stage
        .catalog
        .remove(path("pot://lab/a"), Default::default(), true, when(1))
        .await
        .expect("removed");
    assert_eq!((removed.files, removed.bytes, removed.more), (2, 2_510_000, false));
    assert_eq!(stage.listed("pot://lab", true, None).await, ["replaced"]);
    assert_eq!(stage.unused(500).await, [], "the references are there yet");
    let mut steps = 0;
    let mut before = 0;
    while stage
        .catalog
        .upkeep(Upkeep::Trash { entries: 32, kept_ms: 0 }, 500)
        .await
        .expect("a step")
    {
        let unused =
            stage.catalog.unused_chunks(500, UnusedSince::FIRST, 10_000).await.expect("read");
        assert!(unused.len() - before <= 1024, "a step ends {} references", unused.len() - before);
        (steps, before) = (steps + 1, unused.len());
    }
    assert!(steps > 5, "{steps}");
    assert_eq!(before, many.len() + small.len());
    assert_eq!(sums(&stage).await, (1, 1000));
}

#[tokio::test]
async fn offered_chunks_are_known_after_a_power_cut_d2() {
    let stage = Stage::new().await;
    let catalog = &stage.catalog;
    // A note about a donor waits for the next commit that reaches the disk, so it shows whether there was one.
    let mut synced = catalog.changes();
    let mut is_synced = async |job: &str| {
        let last = std::mem::replace(&mut synced, catalog.changes());
        assert!(last < synced, "{job} did not reach the disk");
        let at = "127.0.0.1:7701".parse().expect("an address");
        catalog.note_donor(DonorId(1), DonorNote::At(at)).await.expect("noted");
        assert_eq!(catalog.changes(), synced, "this one waits");
    };
    let at = "127.0.0.1:7701".parse().expect("an address");
    catalog.note_donor(DonorId(1), DonorNote::At(at)).await.expect("noted");
    let names = vec![chunk(1)];
    let asked = Arc::new(names.clone());
    catalog
        .offer(stage.session, names, asked, AckLevel::Disk, ChunkAsker::ALL)
        .await
        .expect("offered");
    is_synced("an offer").await;
    let unused = vec![Holding { name: chunk(2), len: 1000 }];
    let told = ToldCopies { unused, ..ToldCopies::default() };
    catalog.tell(DonorId(1), told, 0).await.expect("written down");
    is_synced("what a donor was sent without an offer").await;
}

#[tokio::test]
async fn offers_of_an_ended_session_cost_one_row_a_chunk() {
    let stage = Stage::new().await;
    offered_and_ended(&stage, (0..5000).map(chunk).collect(), 0).await;
    let stats = stage.catalog.stats(Default::default()).await.expect("counted");
    assert_eq!((stats.condemned, stats.donors.len()), (5000, 0));
}

#[tokio::test]
async fn a_late_write_of_an_ended_session_is_reclaimed_too_d2() {
    let stage = Stage::new().await;
    offered_and_ended(&stage, vec![chunk(1)], 0).await;
    stage.tell(1, added(1), 0).await;
    stage.catalog.condemn(vec![chunk(1)], 0).await.expect("condemned");
    stage.tell(1, removed(1), 500).await;
    assert!(stage.condemned().await.is_empty(), "gone from everywhere");

    let arrived = vec![Holding { name: chunk(1), len: 1000 }];
    let compare = || stage.catalog.compare(DonorId(1), arrived.clone());
    let compared = compare().await.expect("compared");
    assert!(compared.unknown.is_empty(), "still remembered");
    stage.tell(1, ToldCopies { added: compared.uncounted, ..ToldCopies::default() }, 600).await;
    assert_eq!(stage.condemned().await, [(chunk(1), vec![DonorId(1)])]);

    stage.tell(1, removed(1), 500).await;
    stage
        .catalog
        .upkeep(Upkeep::ReclaimedChunks { before_ms: 499, chunks: 100 }, 1000)
        .await
        .expect("pruned");
    assert!(compare().await.expect("compared").unknown.is_empty(), "not long enough ago");
    stage
        .catalog
        .upkeep(Upkeep::ReclaimedChunks { before_ms: 500, chunks: 100 }, 1000)
        .await
        .expect("pruned");
    assert_eq!(compare().await.expect("compared").unknown, arrived);
}

#[tokio::test]
async fn chunks_in_use_are_not_condemned_and_new_use_cancels_gc_d5() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/a", &[1], &[1])).await;
    stage.catalog.condemn(vec![chunk(1)], u64::MAX >> 1).await.expect("asked");
    assert!(stage.condemned().await.is_empty());

    stage.remove("pot://lab/a", 10).await;
    stage.put(file("pot://lab/b", &[1], &[])).await;
    assert!(stage.unused(1000).await.is_empty());
    // The chunk is unused again only since time 900, so a decision that was made for an earlier moment does not
    // hold.
    stage.remove("pot://lab/b", 900).await;
    stage.catalog.condemn(vec![chunk(1)], 100).await.expect("asked");
    assert!(stage.condemned().await.is_empty());
}

#[tokio::test]
async fn copy_under_a_delete_order_does_not_count_for_new_use_d5() {
    for (is_there, counted) in [(false, (0, 0)), (true, (1, 0))] {
        let mut stage = Stage::new().await;
        stage.put(file("pot://lab/a", &[1], &[1, 2])).await;
        stage.remove("pot://lab/a", 10).await;
        stage.catalog.condemn(vec![chunk(1)], 1000).await.expect("condemned");
        stage.put(file("pot://lab/b", &[1], &[2, 3])).await;
        let (_, layout) = stage.file("pot://lab/b").await;
        let holders = layout.pieces[0].holders.iter();
        let staying: Vec<u32> = holders.filter(|copy| !copy.1).map(|copy| copy.0.0).collect();
        assert_eq!(staying, [2, 3], "what the new write put, and nothing that may go");

        let looked_at = match is_there {
            true => ToldCopies { sound: vec![chunk(1)], ..ToldCopies::default() },
            false => removed(1),
        };
        assert!(!stage.tell(1, looked_at, 2000).await, "nothing was lost");
        assert_eq!(stage.counted(1).await, counted, "nor is its disk to blame");
    }
}

#[tokio::test]
async fn a_removed_tree_is_taken_apart_in_small_steps() {
    let mut stage = Stage::new().await;
    for n in 0..30 {
        stage.put(file(&format!("pot://lab/t/d{}/f{n}", n % 3), &[n], &[1])).await;
    }
    let removed = stage
        .catalog
        .remove(path("pot://lab/t"), Default::default(), true, when(5))
        .await
        .expect("removed");
    assert_eq!((removed.files, removed.bytes), (30, 30_000));
    assert!(stage.unused(6).await.is_empty(), "not yet");
    let mut steps = 0;
    while stage.catalog.upkeep(Upkeep::Trash { entries: 4, kept_ms: 0 }, 6).await.expect("reaped") {
        steps += 1;
    }
    assert!(steps > 7);
    assert_eq!(stage.unused(6).await.len(), 30);
}

#[tokio::test]
async fn chunks_that_must_wait_do_not_hold_up_those_behind_them() {
    let mut stage = Stage::new().await;
    for n in 0..10 {
        stage.put(file(&format!("pot://lab/{n}"), &[n], &[1])).await;
        stage.remove(&format!("pot://lab/{n}"), n / 3).await;
    }
    let (mut after, mut seen) = (UnusedSince::FIRST, Vec::new());
    loop {
        let page = stage.catalog.unused_chunks(100, after, 4).await.expect("read");
        let Some((last, _)) = page.last() else { break };
        after = *last;
        seen.extend(page.into_iter().map(|(_, name)| name));
    }
    assert_eq!(seen, (0..10).map(chunk).collect::<Vec<_>>());
}

#[tokio::test]
async fn chunks_only_on_removed_donors_are_forgotten_without_orders() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/a", &[1], &[1, 2])).await;
    stage.remove("pot://lab/a", 10).await;
    stage.catalog.condemn(vec![chunk(1)], 10).await.expect("condemned");
    let condemned = || stage.catalog.condemned_chunks(ChunkId::FIRST, 10);
    let id = condemned().await.expect("read").remove(0).id;
    let forget = |donor| stage.catalog.forget_copies(vec![(id, vec![DonorId(donor)])], 20);
    forget(2).await.expect("forgotten");
    assert_eq!(condemned().await.expect("read").remove(0).donors, [DonorId(1)]);
    forget(1).await.expect("forgotten");
    assert!(condemned().await.expect("read").is_empty());
    // The chunk is remembered for a while, since what was on its way to a donor may arrive late.
    let listed = Holding { name: chunk(1), len: 1000 };
    let unknown = async || {
        let compared = stage.catalog.compare(DonorId(1), vec![listed]).await.expect("compared");
        !compared.unknown.is_empty()
    };
    stage
        .catalog
        .upkeep(Upkeep::ReclaimedChunks { before_ms: 19, chunks: 100 }, 1000)
        .await
        .expect("pruned");
    assert!(!unknown().await);
    stage
        .catalog
        .upkeep(Upkeep::ReclaimedChunks { before_ms: 20, chunks: 100 }, 1000)
        .await
        .expect("pruned");
    assert!(unknown().await);
}

#[tokio::test]
async fn interrupted_upload_chunks_are_kept_for_the_resuming_session() {
    let mut stage = Stage::new().await;
    offered_and_ended(&stage, vec![chunk(1), chunk(2)], 100).await;
    stage.catalog.condemn(vec![chunk(2)], 100).await.expect("condemned");
    stage.new_session(2).await;
    let kept = |n| UnusedChunk { name: chunk(n), len: 1000, donors: vec![DonorId(1)] };
    let held = stage.catalog.keep_unused(vec![(7, kept(1)), (8, kept(2))], 200).await;
    let held: Vec<_> = held.expect("kept").iter().map(|held| (held.index, held.unused)).collect();
    assert_eq!(held, [(7, true)], "what is condemned must be sent again");
    assert!(!stage.unused(200).await.contains(&chunk(1)), "its wait begins anew");
}

#[tokio::test]
async fn memory_acked_copies_do_not_count_after_a_donor_restart_d3() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/removed", &[1, 2], &[1, 2])).await;
    stage.put(file("pot://lab/stays", &[2], &[])).await;
    let synced = ToldCopies { on_disk: vec![chunk(1)], ..ToldCopies::default() };
    stage.tell(2, synced, 0).await;
    stage.remove("pot://lab/removed", 10).await;
    stage.empty_trash().await;
    let holders = async |stage: &Stage| {
        let names = Arc::new(vec![chunk(1), chunk(2)]);
        let found = stage
            .catalog
            .offer(stage.session, Vec::new(), names, AckLevel::Memory, ChunkAsker::ALL)
            .await;
        let donors = found.expect("offered").into_iter().map(|known| known.donors);
        donors.collect::<Vec<_>>()
    };
    assert_eq!(holders(&stage).await, [DONORS, DONORS]);
    for donor in DONORS {
        stage.catalog.doubt_in_memory(donor).await.expect("doubted");
    }
    let used = DONORS.to_vec();
    assert_eq!(holders(&stage).await, [vec![DonorId(2)], used.clone()]);
    // To list the chunk is not enough, and a put is.
    let listed = vec![Holding { name: chunk(1), len: 1000 }];
    let compared = stage.catalog.compare(DonorId(1), listed.clone()).await.expect("compared");
    assert_eq!((compared.uncounted, compared.leaving), (Vec::new(), listed));
    stage.tell(1, added(1), 20).await;
    assert_eq!(holders(&stage).await, [used.clone(), used]);
}

#[tokio::test]
async fn expired_rows_are_deleted_in_bounded_steps() {
    let mut stage = Stage::new().await;
    let chunks: Vec<u64> = (0..250).collect();
    stage.put(file("pot://lab/a", &chunks, &[1])).await;
    stage.remove("pot://lab/a", 5).await;
    let names = stage.unused(10).await;
    assert_eq!(names.len(), 250);
    stage.catalog.condemn(names.clone(), 10).await.expect("condemned");
    stage.tell(1, ToldCopies { removed: names, ..ToldCopies::default() }, 10).await;
    let forget = Upkeep::ReclaimedChunks { before_ms: 10, chunks: 100 };
    let mut steps = Vec::new();
    for _ in 0..3 {
        steps.push(stage.catalog.upkeep(forget, 20).await.expect("a step"));
    }
    assert_eq!(steps, [true, true, false]);

    // Five commits have replies, of which one is of the file above.
    for n in 0..4 {
        stage.put(file(&format!("pot://lab/{n}"), &[1000 + n], &[1])).await;
    }
    let forget = Upkeep::Replies { before_ms: 1, replies: 2 };
    let mut steps = Vec::new();
    for _ in 0..3 {
        steps.push(stage.catalog.upkeep(forget, 20).await.expect("a step"));
    }
    assert_eq!(steps, [true, true, false]);
    let repeated = stage.commit_batch(1, Vec::new(), false, 20).await.expect("a batch");
    assert!(matches!(repeated.outcome, CommitOutcome::Fresh { .. }), "its reply is forgotten");
}
