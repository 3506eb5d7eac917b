//! Tests losses under a running donor: its whole disk vanishes, or single files (promises S3, L1).

use crate::manager::State;
use crate::pool::{Pool, content, receipt};
use potluck_core::chunk::ChunkName;
use potluck_core::policy::AckLevel;
use potluck_wire::bulk::{BulkStatus, Request};
use potluck_wire::control::{ChunkOrders, Tombstone, Work};
use potluck_wire::packed::Packed;
use std::collections::BTreeSet;
use std::fs;

async fn stored(pool: &Pool, count: u64) -> Vec<ChunkName> {
    let mut client = pool.client().await;
    let mut names = Vec::new();
    for number in 0..count {
        let bytes = content(number, 30_000);
        assert_eq!(client.put(&bytes, AckLevel::Disk).await, BulkStatus::Ok);
        names.push(ChunkName::of(&bytes));
    }
    names
}

fn listed(state: &State) -> Option<BTreeSet<ChunkName>> {
    Some(state.inventory()?.iter().map(|holding| holding.name).collect())
}

#[tokio::test]
async fn pulled_disk_is_reported_and_recovers_s3() {
    let pool = Pool::start().await;
    let names = stored(&pool, 3).await;
    let (lent, elsewhere) = (pool.place.lent(), pool.place.lent().with_extension("pulled"));
    fs::rename(&lent, &elsewhere).expect("pulled");
    fs::create_dir(&lent).expect("the bare mount point");
    let why = pool.manager.until("that it is missing", |state| {
        state.heartbeats.last()?.disk_fault.clone().filter(|fault| fault.missing)
    });
    let why = why.await.why;
    assert!(!why.is_empty());

    // A request meanwhile does not prove that a chunk is missing, for the whole disk is.
    let mut client = pool.client().await;
    client.send(Request::Get { name: names[0], part: None }, &[]).await.expect("a connection");
    let reply = client.reply().await.expect("a connection").expect("an answer");
    assert_eq!(reply.status, BulkStatus::DiskFailed);
    assert_eq!(client.put(&content(9, 10), AckLevel::Memory).await, BulkStatus::DiskFailed);
    {
        let mut state = pool.manager.state();
        let incarnation = state.registers[0].incarnation;
        let tombstone = Tombstone { chunk: names[1], incarnation, write_sequence: 99 };
        state.chunk_orders =
            ChunkOrders { delete: vec![tombstone], verify: Packed(vec![names[0]]) };
        state.forgetful = true; // also a manager that starts anew is told
    }
    pool.manager.until("registered anew", |state| state.registers.get(1).cloned()).await;
    pool.manager.heartbeats(3).await;
    {
        let mut state = pool.manager.state();
        state.chunk_orders = ChunkOrders::default();
        assert!(state.registers[1].disk_fault.as_ref().is_some_and(|fault| fault.missing));
        assert!(
            state.heartbeats.iter().all(|heartbeat| heartbeat.removed.is_empty()),
            "not removed"
        );
        assert_eq!(fs::read_dir(&lent).expect("dir").count(), 0, "nothing was made there");
    }

    // The directory is back, but for one chunk.
    fs::remove_dir(&lent).expect("unused");
    let lost = elsewhere.join(pool.place.chunk(&names[2]).strip_prefix(&lent).expect("below"));
    fs::remove_file(lost).expect("lost with it");
    fs::rename(&elsewhere, &lent).expect("mounted again");
    let again = pool.manager.until("registered again", |state| state.registers.get(2).cloned());
    let again = again.await;
    assert_eq!(again.disk_fault, None);
    let before = pool.manager.state().registers[0].incarnation;
    assert_ne!(again.incarnation, before, "receipts of before are for chunks that may be lost");
    let kept = BTreeSet::from([names[0], names[1]]);
    let all = pool.manager.until("all it holds", listed).await;
    assert_eq!(all, kept);
    let used = pool.manager.until("a heartbeat", |state| {
        let last = state.heartbeats.last()?;
        last.disk_fault.is_none().then_some(last.disk.lent_used)
    });
    assert_eq!(used.await, 2 * 32_768 + 4096, "two chunks and the marker");
    assert_eq!(pool.client().await.get(&names[0]).await, Some(content(0, 30_000)));
    let bytes = content(7, 20_000);
    let given = pool.client().await.put_reply(&bytes, AckLevel::Memory).await.receipt;
    assert_eq!(given, receipt(&pool, &bytes, AckLevel::Memory), "of the incarnation since then");
    pool.still_serves().await;
}

/// A power cut can leave a spoiled file of the right length. A client that puts its chunk again relies on the
/// receipt.
#[tokio::test]
async fn a_put_of_a_chunk_that_is_spoiled_here_stores_it_anew_d3() {
    let pool = Pool::start().await;
    let names = stored(&pool, 2).await;
    let path = pool.place.chunk(&names[0]);
    let mut spoiled = fs::read(&path).expect("a chunk file");
    spoiled[..4096].fill(0);
    fs::write(&path, spoiled).expect("spoiled");
    let mut client = pool.client().await;
    for (number, name) in (0..).zip(&names) {
        let bytes = content(number, 30_000);
        let given = client.put_reply(&bytes, AckLevel::Memory).await;
        assert_eq!(given.receipt, receipt(&pool, &bytes, AckLevel::Memory));
        assert_eq!(client.get(name).await, Some(bytes));
    }
    assert_eq!(pool.place.files("quarantine").len(), 1);
}

#[tokio::test]
async fn lost_inventory_page_alone_is_resent() {
    let pool = Pool::start().await;
    let names = stored(&pool, 6).await;
    pool.manager.until("the first inventory", listed).await;
    let whole: BTreeSet<ChunkName> = names.into_iter().collect();
    for answer in [false, true] {
        {
            let mut state = pool.manager.state();
            state.page_numbers.clear();
            (state.lost_page, state.lost_answer) = match answer {
                false => (Some(1), None),
                true => (None, Some(1)),
            };
        }
        pool.manager.ask(1 + u64::from(answer), Work::Scrub { rate: 1 << 30 }).await;
        let seen = |state: &State| {
            (listed(state)? == whole && state.page_numbers.len() == 3).then_some(())
        };
        pool.manager.until("all that is there", seen).await;
        assert_eq!(pool.manager.state().page_numbers, [0, 1, 1]);
    }
}

#[tokio::test]
async fn busy_manager_gets_the_inventory_later_during_heartbeats() {
    let pool = Pool::start().await;
    let names = stored(&pool, 3).await;
    pool.manager.until("the first inventory", listed).await;
    let heartbeats = {
        let mut state = pool.manager.state();
        state.page_numbers.clear();
        state.has_no_time = 2;
        state.forgetful = true;
        state.heartbeats.len()
    };
    pool.manager.until("it to register", |state| (!state.forgetful).then_some(())).await;
    let whole: BTreeSet<ChunkName> = names.into_iter().collect();
    let seen = |state: &State| (listed(state)? == whole).then_some(());
    pool.manager.until("all that is there", seen).await;
    let state = pool.manager.state();
    assert_eq!(state.page_numbers, [0, 0, 0, 1], "nothing is listed before the manager has time");
    assert!(state.heartbeats.len() > heartbeats, "it was heard meanwhile");
}

#[tokio::test]
async fn files_that_vanished_are_told_after_a_round_of_the_scrub_l1() {
    let pool = Pool::start().await;
    let names = stored(&pool, 6).await;
    pool.manager.until("the first inventory", listed).await;
    for name in &names[..3] {
        fs::remove_file(pool.place.chunk(name)).expect("removed behind its back");
    }
    // Somebody removed a bucket with all that was in it.
    let bucket = pool.place.chunk(&names[3]);
    fs::remove_dir_all(bucket.parent().expect("a bucket")).expect("removed with its directory");
    let left: BTreeSet<ChunkName> =
        names.iter().copied().filter(|name| pool.place.chunk(name).exists()).collect();
    pool.manager.ask(1, Work::Scrub { rate: 1 << 30 }).await;
    let seen = |state: &State| (listed(state)? == left && state.pages.len() == 2).then_some(());
    pool.manager.until("what is left", seen).await;
    // The disk is looked at before the scrub is, so one heartbeat may tell the usage of before the round's end and
    // the scrub state of after it.
    let used = left.len() as u64 * 32_768 + 4096;
    let last = pool.manager.until("the end of the round, and usage corrected", |state| {
        let last = state.heartbeats.last()?;
        (last.scrub.rounds == 1 && last.disk.lent_used == used).then(|| last.clone())
    });
    let last = last.await;
    assert_eq!((last.scrub.done, last.scrub.spoiled), (last.scrub.of, 0), "the round is over");
    assert!(pool.manager.state().pages[0].holdings.is_empty(), "watched before it is listed");

    // A chunk that is made again is stored, though its directory was deleted too.
    let (mut client, again) = (pool.client().await, content(3, 30_000));
    assert_eq!(client.put(&again, AckLevel::Disk).await, BulkStatus::Ok);
    assert_eq!(client.get(&names[3]).await, Some(again));
    assert_eq!(
        client.put(&content(9, 10), AckLevel::Memory).await,
        BulkStatus::Ok,
        "nothing broke"
    );
}
