//! Putting and getting chunks.

use crate::pool::{Pool, SESSION, bytes_below, content, receipt};
use potluck_core::chunk::{ChunkName, verify_segments};
use potluck_core::merkle::{SEGMENT, proof_len};
use potluck_core::policy::AckLevel;
use potluck_wire::bulk::{BulkStatus, ChunkPart, Reply, Request, SLICE};
use potluck_wire::ticket::Caveat;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[tokio::test]
async fn chunks_come_back_as_they_were_put() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    // These are the sizes at which something in the donor changes: piece, head buffer, block.
    for len in [1, 64, 4032, 4096, 65_536, 262_143, 262_144, 262_145, 4 << 20, 64 << 20] {
        for ack in [AckLevel::Memory, AckLevel::Disk] {
            let bytes = content(len as u64 + u64::from(ack == AckLevel::Disk), len);
            let reply = client.put_reply(&bytes, ack).await;
            assert_eq!(
                reply,
                Reply { receipt: receipt(&pool, &bytes, ack), ..Reply::bare(BulkStatus::Ok) }
            );
            assert!(client.get(&ChunkName::of(&bytes)).await == Some(bytes), "{len}");
        }
    }
    assert_eq!(client.get(&ChunkName::of(b"never put")).await, None);
    assert!(pool.place.files("temp").is_empty());
    pool.stop().await;
}

/// Keeps many more connections open than the donor has threads, and uses them again and again.
#[tokio::test]
async fn hundreds_of_clients_are_served_and_none_is_hung_up_on() {
    let pool = Pool::start().await;
    let mut clients = Vec::new();
    for number in 0..300_u64 {
        let (mut client, bytes) = (pool.client().await, content(number, 2000));
        assert_eq!(client.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
        clients.push((client, bytes));
    }
    for _ in 0..2 {
        // All clients ask before any of them reads an answer.
        for (client, bytes) in &mut clients {
            let get = Request::Get { name: ChunkName::of(bytes), part: None };
            client.send(get, &[]).await.expect("a connection");
        }
        for (client, bytes) in &mut clients {
            let reply = client.reply().await.expect("a connection").expect("an answer");
            assert!(client.body(reply.body).await.expect("a body") == *bytes);
        }
    }
    drop(clients);
    pool.stop().await;
}

/// A client that sends a part of a body and then nothing more keeps a thread, as long as it is waited for.
#[tokio::test]
async fn clients_that_stall_keep_no_other_address_waiting() {
    let pool = Pool::start().await;
    let mut stalling = Vec::new();
    for _ in 0..200 {
        let mut client = pool.client().await;
        let put = Request::put(ChunkName([1; 32]), AckLevel::Memory, 60_000);
        client.send(put, &[0]).await.expect("sent");
        stalling.push(client);
    }
    let began = tokio::time::Instant::now();
    let mut other = pool.client_from([127, 0, 0, 2].into()).await;
    let bytes = content(1, 2000);
    assert_eq!(other.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    drop(stalling);
}

#[tokio::test]
async fn a_part_of_a_chunk_comes_with_what_proves_it() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    let (bytes, segment) = (content(1, 1_000_000), SEGMENT as usize);
    let (name, len) = (ChunkName::of(&bytes), bytes.len() as u32);
    client.put(&bytes, AckLevel::Memory).await;
    let count = bytes.len().div_ceil(segment);
    for segments in [0..1, 3..4, 5..9, 15..16, 14..16, 0..16] {
        let range = segments.start * segment..bytes.len().min(segments.end * segment);
        let part = ChunkPart { offset: range.start as u32, len: range.len() as u32 };
        let reply = client.ask(Request::Get { name, part: Some(part) }).await;
        let proof_len = proof_len(count, &segments);
        assert_eq!(reply, Reply::found((proof_len + range.len()) as u32));
        let body = client.body(reply.body).await.expect("a body");
        let (proof, part) = body.split_at(proof_len);
        assert!(part == &bytes[range], "{segments:?}");
        assert!(verify_segments(&name, len, &segments, part, proof), "{segments:?}");
    }
    // A range that is no segment cannot be proved, and a range that is not there cannot be sent.
    let part = |offset, len| Some(ChunkPart { offset, len });
    for part in [part(1, 65_536), part(0, 65_535), part(0, len + 1), part(len, 1)] {
        let reply = client.ask(Request::Get { name, part }).await;
        assert_eq!(reply, Reply::bare(BulkStatus::DiskFailed), "{part:?}");
    }
    assert_eq!(client.get(&name).await, Some(bytes), "it was not the chunk's fault");
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    let chunks: Vec<_> = (0..20).map(|number| content(number, 70_000)).collect();
    for bytes in &chunks {
        let name = ChunkName::of(bytes);
        let put = Request::put(name, AckLevel::Memory, bytes.len() as u32);
        client.send(put, bytes).await.expect("sent");
        client.send(Request::Get { name, part: None }, &[]).await.expect("sent");
    }
    for bytes in &chunks {
        let stored = client.reply().await.expect("connection").expect("answer");
        assert_eq!(stored.receipt, receipt(&pool, bytes, AckLevel::Memory));
        let sent = client.reply().await.expect("connection").expect("answer");
        assert!(client.body(sent.body).await.expect("body") == *bytes);
    }
}

/// The chunk is far longer than what sockets hold, so that the donor is in the middle of it when it hears of the stops.
#[tokio::test]
async fn a_stopped_get_ends_between_slices() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    let (long, short) = (content(1, 64 << 20), content(2, 70_000));
    client.put(&long, AckLevel::Memory).await;
    client.put(&short, AckLevel::Memory).await;
    let get = |bytes: &[u8]| Request::Get { name: ChunkName::of(bytes), part: None };
    for bytes in [&long, &short, &long, &short] {
        client.send(get(bytes), &[]).await.expect("sent");
    }
    let first = client.reply().await.expect("a connection").expect("an answer");
    assert_eq!(first, Reply::found(long.len() as u32));
    client.stop(&[3, 2, 1]).await;
    let body = client.body(first.body).await.expect("a body");
    assert!(body.len() < long.len() && body.len().is_multiple_of(SLICE as usize));
    assert!(body == long[..body.len()]);
    for _ in [2, 1] {
        let stopped = client.reply().await.expect("a connection").expect("an answer");
        assert_eq!(stopped, Reply::bare(BulkStatus::Stopped));
    }
    let last = client.reply().await.expect("a connection").expect("an answer");
    assert!(client.body(last.body).await.expect("a body") == short, "it was not stopped");
    client.stop(&[0, 2]).await;
    assert!(client.get(&ChunkName::of(&short)).await == Some(short), "late stops change nothing");
    pool.stop().await;
}

#[tokio::test]
async fn bytes_that_are_not_the_chunk_are_refused_and_leave_nothing() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    for len in [10, 300_000] {
        let (mut bytes, name) = (content(1, len), ChunkName::of(&content(1, len)));
        bytes[len / 2] ^= 1;
        let reply =
            client.put_as(name, &bytes, AckLevel::Memory).await.expect("io").expect("reply");
        assert_eq!(reply, Reply::bare(BulkStatus::Mismatch));
        assert_eq!(client.get(&name).await, None);
        // Wrong bytes get no receipt either under the name of a chunk that is there.
        bytes[len / 2] ^= 1;
        assert_eq!(client.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
        bytes[0] ^= 1;
        let reply =
            client.put_as(name, &bytes, AckLevel::Memory).await.expect("io").expect("reply");
        assert_eq!(reply, Reply::bare(BulkStatus::Mismatch));
    }
    assert!(pool.place.files("temp").is_empty());
}

#[tokio::test]
async fn putting_again_is_idempotent_and_raises_the_write_sequence() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    let bytes = content(1, 100_000);
    for ack in [AckLevel::Memory, AckLevel::Memory, AckLevel::Disk] {
        let reply = client.put_reply(&bytes, ack).await;
        assert_eq!((reply.status, reply.receipt), (BulkStatus::Ok, receipt(&pool, &bytes, ack)));
    }
    pool.manager.heartbeats(2).await;
    let state = pool.manager.state();
    let last = state.heartbeats.last().expect("one");
    assert_eq!(last.write_sequence, 3);
    assert_eq!(last.disk.lent_used, 26 * 4096, "25 blocks of chunk and trailer, 1 of marker");
    let added: Vec<_> = state.heartbeats.iter().flat_map(|heartbeat| &heartbeat.added.0).collect();
    assert_eq!(added.len(), 1, "reported once");
    assert_eq!(added[0].session, Some(SESSION), "with the session that brought it");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_puts_of_one_chunk_at_once_both_succeed() {
    let pool = Pool::start().await;
    for round in 0..20 {
        let bytes = content(round, 600_000);
        let (mut one, mut two) = (pool.client().await, pool.client().await);
        let (first, second) = tokio::join!(
            one.put_reply(&bytes, AckLevel::Memory),
            two.put_reply(&bytes, AckLevel::Disk)
        );
        assert_eq!(first.receipt, receipt(&pool, &bytes, AckLevel::Memory));
        assert_eq!(second.receipt, receipt(&pool, &bytes, AckLevel::Disk));
        assert_eq!(one.get(&ChunkName::of(&bytes)).await, Some(bytes));
    }
    assert!(pool.place.files("temp").is_empty());
    pool.manager.heartbeats(2).await;
    let used = pool.manager.state().heartbeats.last().expect("one").disk.lent_used;
    assert_eq!(used, 20 * 147 * 4096 + 4096, "nothing is counted twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cap_is_never_exceeded_by_a_byte_however_many_write() {
    let cap = 10_000_000;
    let pool = Arc::new(Pool::lending(cap).await);
    let writing = Arc::new(AtomicBool::new(true));
    let watch = {
        let (writing, lent) = (Arc::clone(&writing), pool.place.lent());
        std::thread::spawn(move || {
            let mut most = 0;
            while writing.load(Ordering::Relaxed) {
                most = bytes_below(&lent).max(most);
            }
            most
        })
    };
    let writers: Vec<_> = (0..8_u64)
        .map(|writer| {
            let pool = Arc::clone(&pool);
            tokio::spawn(async move {
                let mut client = pool.client().await;
                let mut stored = 0;
                for number in 0..30 {
                    let len = 50_000 + 7_919 * ((writer + number) % 11) as usize;
                    match client.put(&content(writer << 32 | number, len), AckLevel::Memory).await {
                        BulkStatus::Ok => stored += (len as u64 + 64).next_multiple_of(4096),
                        BulkStatus::Full => {}
                        other => panic!("{other:?}"),
                    }
                }
                stored
            })
        })
        .collect();
    let mut stored = 0;
    for writer in writers {
        stored += writer.await.expect("no panic");
    }
    writing.store(false, Ordering::Relaxed);
    let most = watch.join().expect("no panic");
    assert!(stored > cap - 140_000, "the cap is used: {stored}");
    assert!(most <= cap && bytes_below(&pool.place.lent()) <= cap, "{most}");
    assert!(pool.place.files("temp").is_empty());
}

#[tokio::test]
async fn a_connection_cut_inside_a_body_leaves_nothing_behind() {
    let pool = Pool::start().await;
    let bytes = content(1, 3 << 20);
    let name = ChunkName::of(&bytes);
    for cut in [0, 1, 100_000, bytes.len() - 1] {
        let mut client = pool.client().await;
        let put = Request::put(name, AckLevel::Memory, bytes.len() as u32);
        client.send(put, &bytes[..cut]).await.expect("sent");
        drop(client);
    }
    pool.manager.heartbeats(2).await;
    assert!(pool.place.files("temp").is_empty());
    assert_eq!(pool.manager.state().heartbeats.last().expect("one").disk.lent_used, 4096);
    pool.still_serves().await;
}

#[tokio::test]
async fn a_stopped_donor_has_answered_what_it_took() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    assert_eq!(client.put(&content(1, 10), AckLevel::Memory).await, BulkStatus::Ok);
    let mut cut = pool.open(&pool.ticket(&[Caveat::Session(SESSION)])).await.expect("open");
    let name = ChunkName::of(b"never finished");
    let put = Request::put(name, AckLevel::Memory, 1000);
    cut.send(put, b"never").await.expect("sent");
    let (place, _) = pool.stop().await;
    assert!(matches!(client.reply().await, Ok(None)), "the idle connection ends cleanly");
    assert!(!matches!(cut.reply().await, Ok(Some(_))));
    assert!(place.files("temp").is_empty());
}
