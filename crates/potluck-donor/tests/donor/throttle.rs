//! Limits on what a donor moves for others.

use crate::pool::{Pool, content};
use potluck_core::chunk::ChunkName;
use potluck_core::policy::AckLevel;
use potluck_core::traffic::BothWays;
use potluck_donor::OwnerThrottle;
use potluck_wire::bulk::{BulkStatus, Reply, Request};
use std::time::Duration;

const KIB: usize = 1 << 10;

fn reading_at(bytes_s: u64) -> OwnerThrottle {
    OwnerThrottle { bytes_s: BothWays { read: Some(bytes_s), written: None }, paused: false }
}

#[tokio::test]
async fn limited_get_comes_in_slices_and_tells_its_limit() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    let bytes = content(1, 1024 * KIB);
    let name = ChunkName::of(&bytes);
    assert_eq!(client.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    pool.controls.set_owner_throttle(reading_at(512 << 10));
    let began = tokio::time::Instant::now();
    let reply = client.ask(Request::Get { name, part: None }).await;
    assert_eq!(reply, Reply { limit: Some(512 << 10), ..Reply::found(bytes.len() as u32) });
    assert!(client.body(reply.body).await.expect("a body") == bytes);
    // The first slice goes at once, and each of the three others half a second later.
    assert!(began.elapsed() >= Duration::from_millis(1400), "{:?}", began.elapsed());
    pool.controls.set_owner_throttle(OwnerThrottle::default());
    assert_eq!(client.get(&name).await, Some(bytes));
}

#[tokio::test]
async fn request_that_waits_for_its_turn_hears_of_it() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    let bytes = content(1, 256 * KIB);
    let name = ChunkName::of(&bytes);
    assert_eq!(client.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    pool.controls.set_owner_throttle(reading_at(1 << 10));
    assert_eq!(client.get(&name).await.as_ref(), Some(&bytes), "the first turn is free");
    // The next turn begins after more than four minutes.
    client.send(Request::Get { name, part: None }, &[]).await.expect("sent");
    for _ in 0..2 {
        let reply = client.reply().await.expect("a connection");
        let waits = Reply { limit: Some(1 << 10), ..Reply::bare(BulkStatus::Throttled) };
        assert_eq!(reply, Some(waits));
    }
    pool.controls.set_owner_throttle(OwnerThrottle::default());
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
async fn paused_donor_refuses_gets_and_ends_puts() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    let bytes = content(1, 256 * KIB);
    let name = ChunkName::of(&bytes);
    assert_eq!(client.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    pool.controls.set_owner_throttle(OwnerThrottle { paused: true, ..OwnerThrottle::default() });
    let refused = client.ask(Request::Get { name, part: None }).await;
    assert_eq!(refused.status, BulkStatus::Away);
    let other = content(2, 256 * KIB);
    let put = client.put_as(ChunkName::of(&other), &other, AckLevel::Memory).await;
    assert!(!matches!(put, Ok(Some(_))), "{put:?}");
    pool.controls.set_owner_throttle(OwnerThrottle::default());
    assert_eq!(pool.client().await.get(&name).await, Some(bytes));
}
