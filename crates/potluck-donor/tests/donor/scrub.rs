//! Tests that rot is found without anybody asking for it (promise R1), that scrub orders are answered, and that
//! only the manager may say which kind a chunk is of.

use crate::pool::{GIB, Pool, SESSION, content};
use potluck_core::chunk::{ChunkKind, ChunkName};
use potluck_core::entropy::SystemEntropy;
use potluck_core::policy::AckLevel;
use potluck_donor::disk::SystemDisk;
use potluck_wire::bulk::{BulkStatus, Forward, Request};
use potluck_wire::control::{Holding, TaskOutcome, Work};
use potluck_wire::net::SystemNet;
use potluck_wire::peer_connection::{PeerConnection, PeerError};
use potluck_wire::ticket::{Caveat, Ops, Ticket};
use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

#[tokio::test]
async fn every_flipped_bit_is_found_in_one_round() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    let mut flipped = BTreeSet::new();
    for number in 0..300u64 {
        let bytes = content(number, 1000 + 131 * number as usize);
        assert_eq!(client.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
        if number % 3 == 0 {
            let name = ChunkName::of(&bytes);
            let mut file = fs::read(pool.place.chunk(&name)).expect("stored");
            file[number as usize * 3] ^= 1 << (number % 8);
            fs::write(pool.place.chunk(&name), file).expect("flipped");
            flipped.insert(name);
        }
    }
    let asked = Work::Scrub { rate: 1 << 30 };
    assert_eq!(pool.manager.ask(1, asked).await, TaskOutcome::Done);
    let last = pool.manager.until("the end of the round", |state| {
        state
            .heartbeats
            .last()
            .filter(|heartbeat| heartbeat.scrub.rounds == 1)
            .map(|heartbeat| heartbeat.scrub)
    });
    let last = last.await;
    assert_eq!((last.spoiled, last.hurried), (100, false));
    let found = |state: &crate::manager::State| {
        let spoiled = state.heartbeats.iter().flat_map(|heartbeat| heartbeat.spoiled.0.clone());
        let spoiled: BTreeSet<_> = spoiled.collect();
        (spoiled.len() == 100).then_some(spoiled)
    };
    assert_eq!(pool.manager.until("what was found", found).await, flipped);
    assert_eq!(pool.place.files("quarantine").len(), 100);

    // Rounds are counted over restarts, and the one that ended is not begun again.
    let (place, manager) = pool.stop().await;
    let heartbeats = manager.state().heartbeats.len();
    let pool = Pool::under(manager, place, GIB, Arc::new(SystemDisk)).await;
    let said = pool.manager.state().heartbeats[heartbeats..].last().expect("a heartbeat").scrub;
    assert_eq!((said.rounds, said.spoiled), (1, 100));
}

#[tokio::test]
async fn a_round_goes_on_where_it_was_after_a_restart() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    for number in 0..60 {
        assert_eq!(client.put(&content(number, 60_000), AckLevel::Memory).await, BulkStatus::Ok);
    }
    // At the slowest rate that there is, a round takes some 55 s.
    let asked = Work::Scrub { rate: 1 };
    assert_eq!(pool.manager.ask(1, asked).await, TaskOutcome::Done);
    let some = |state: &crate::manager::State| {
        state
            .heartbeats
            .last()
            .map(|heartbeat| heartbeat.scrub)
            .filter(|scrub| scrub.done > 100_000)
    };
    let before = pool.manager.until("some progress", some).await;
    assert!(before.hurried && before.done < before.of && before.rounds == 0);
    let (place, manager) = pool.stop().await;
    let heartbeats = manager.state().heartbeats.len();
    let pool = Pool::under(manager, place, GIB, Arc::new(SystemDisk)).await;
    let after = pool.manager.state().heartbeats[heartbeats..].first().expect("a heartbeat").scrub;
    assert!(after.done >= before.done && after.of == before.of && after.hurried, "{after:?}");
}

/// What the manager asks of a donor to see that it still has a chunk (promise R2).
#[tokio::test]
async fn a_donor_proves_any_segment_of_a_chunk_that_it_has_and_no_other_r2() {
    let pool = Pool::start().await;
    let bytes = content(1, 600_000);
    assert_eq!(pool.client().await.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    let (name, len, source) = (ChunkName::of(&bytes), 600_000, pool.source());
    let ask = async |name, segment| {
        let (at, ticket) = (&source.addresses, &source.ticket);
        let mut connection =
            PeerConnection::open(&SystemNet, &SystemEntropy, at, ticket).await.expect("opened");
        connection.check_segment(name, len, segment).await
    };
    for segment in 0..10 {
        ask(name, segment).await.expect("proved");
    }
    let absent = ask(ChunkName([1; 32]), 0).await;
    assert!(matches!(absent, Err(PeerError::Refused(BulkStatus::NotFound))), "{absent:?}");
    let path = pool.place.chunk(&name);
    let mut spoiled = fs::read(&path).expect("stored");
    spoiled[599_999] ^= 1;
    fs::write(&path, spoiled).expect("spoiled");
    ask(name, 0).await.expect("proved, whatever becomes of others");
    assert!(matches!(ask(name, 9).await, Err(PeerError::WrongBytes)));
}

#[tokio::test]
async fn only_the_manager_marks_log_blocks() {
    let (pool, other) = (Pool::start().await, Pool::start().await);
    let recorder = pool.ticket(&[]);
    let managers = {
        use crate::manager::DONOR;
        let ops = Ops::GET.and(Ops::PUT).and(Ops::RECORD);
        let caveats = [Caveat::Donor(DONOR), Caveat::Ops(ops), Caveat::Session(SESSION)];
        Ticket::issue(&pool.key, &SystemEntropy, &caveats)
    };
    let mut listed = Vec::new();
    for (number, kind) in (1..).zip([ChunkKind::Log, ChunkKind::Data]) {
        let bytes = content(number, 5000);
        let (name, len, ack) = (ChunkName::of(&bytes), 5000, AckLevel::Memory);
        let put = Request::Put { name, ack, len, kind, forward: Forward::NONE };
        for (ticket, allowed) in [(&recorder, kind == ChunkKind::Data), (&managers, true)] {
            let mut client = pool.open(ticket).await.expect("the donor answers");
            client.send(put, &bytes).await.expect("a connection");
            let status = client.reply().await.expect("a connection").expect("an answer").status;
            assert_eq!(status, if allowed { BulkStatus::Ok } else { BulkStatus::Denied });
        }
        listed.push(Holding { name, len });
    }
    let answer = pool.manager.ask(1, Work::Describe).await;
    let TaskOutcome::Described { blocks } = answer else { panic!("{answer:?}") };
    assert_eq!(blocks.0, [listed[0]]);
    // A copy of the chunk is of the same kind.
    let copy = Work::Copy {
        chunk: listed[0].name,
        len: 5000,
        ack: AckLevel::Disk,
        kind: ChunkKind::Log,
        from: vec![pool.source()],
    };
    assert_eq!(other.manager.ask(2, copy).await, TaskOutcome::Done);
    let answer = other.manager.ask(3, Work::Describe).await;
    let TaskOutcome::Described { blocks } = answer else { panic!("{answer:?}") };
    assert_eq!(blocks.0, [listed[0]]);
}
