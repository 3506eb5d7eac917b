//! Limits on what a donor moves for others.

use crate::pool::{Pool, content};
use potluck_core::chunk::ChunkName;
use potluck_core::lend_mode::LendMode;
use potluck_core::policy::AckLevel;
use potluck_core::timetable::Bandwidth;
use potluck_wire::bulk::{BulkStatus, Reply, Request};
use std::time::Duration;

const KIB: usize = 1 << 10;

/// Has the donor do this much, and send so many bytes a second at most.
fn lend(pool: &Pool, mode: LendMode, up: Option<u64>) {
    pool.controls.lend_in(mode, Bandwidth { up, down: None }, None);
}

#[tokio::test]
async fn limited_get_comes_in_slices_and_tells_its_limit() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    let bytes = content(1, 1024 * KIB);
    let name = ChunkName::of(&bytes);
    assert_eq!(client.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    lend(&pool, LendMode::Full, Some(512 << 10));
    let began = tokio::time::Instant::now();
    let reply = client.ask(Request::Get { name, part: None }).await;
    assert_eq!(reply, Reply { limit: Some(512 << 10), ..Reply::found(bytes.len() as u32) });
    assert!(client.body(reply.body).await.expect("a body") == bytes);
    // The first slice goes at once, and each of the three others half a second later.
    assert!(began.elapsed() >= Duration::from_millis(1400), "{:?}", began.elapsed());
    lend(&pool, LendMode::Full, None);
    assert_eq!(client.get(&name).await, Some(bytes));
}

#[tokio::test]
async fn request_that_waits_for_its_turn_hears_of_it() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    let bytes = content(1, 256 * KIB);
    let name = ChunkName::of(&bytes);
    assert_eq!(client.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    lend(&pool, LendMode::Full, Some(1 << 10));
    assert_eq!(client.get(&name).await.as_ref(), Some(&bytes), "the first turn is free");
    // The next turn begins after more than four minutes.
    client.send(Request::Get { name, part: None }, &[]).await.expect("sent");
    for _ in 0..2 {
        let reply = client.reply().await.expect("a connection");
        let waits = Reply { limit: Some(1 << 10), ..Reply::bare(BulkStatus::Throttled) };
        assert_eq!(reply, Some(waits));
    }
    lend(&pool, LendMode::Full, None);
    let found = loop {
        let reply = client.reply().await.expect("a connection").expect("an answer");
        if reply.status != BulkStatus::Throttled {
            break reply;
        }
    };
    assert_eq!(found, Reply::found(bytes.len() as u32));
    assert!(client.body(found.body).await.expect("a body") == bytes);
}

#[tokio::test]
async fn donor_that_is_off_ends_sessions_and_takes_none() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    let bytes = content(1, 256 * KIB);
    let name = ChunkName::of(&bytes);
    assert_eq!(client.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    // One waits between requests, the other in the middle of a body that takes for ever.
    let mut busy = pool.client().await;
    lend(&pool, LendMode::Full, Some(1 << 10));
    assert_eq!(busy.get(&name).await.as_ref(), Some(&bytes), "the first turn is free");
    busy.send(Request::Get { name, part: None }, &[]).await.expect("sent");
    lend(&pool, LendMode::Off, None);
    let ended = client.reply().await;
    assert!(!matches!(ended, Ok(Some(_))), "{ended:?}");
    while let Ok(Some(reply)) = busy.reply().await {
        assert_ne!(reply.status, BulkStatus::Ok, "{reply:?}");
    }
    lend(&pool, LendMode::Full, None);
    assert_eq!(pool.client().await.get(&name).await, Some(bytes));
}

#[tokio::test]
async fn donor_that_is_read_from_only_is_full_for_puts() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    let bytes = content(1, 256 * KIB);
    let name = ChunkName::of(&bytes);
    assert_eq!(client.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    lend(&pool, LendMode::Reads, None);
    assert_eq!(client.put(&content(2, 256 * KIB), AckLevel::Memory).await, BulkStatus::Full);
    assert_eq!(client.get(&name).await.as_ref(), Some(&bytes));
}
