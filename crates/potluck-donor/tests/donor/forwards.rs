//! Puts that their donor passes on: receipts of all mirrors, or copies soon after; and no mirror
//! fails a put.

use crate::manager::DONOR;
use crate::pool::{Client, Pool, content, receipt};
use potluck_core::chunk::{ChunkKind, ChunkName};
use potluck_core::ids::DonorId;
use potluck_core::lend_mode::LendMode;
use potluck_core::policy::AckLevel;
use potluck_core::timetable::Bandwidth;
use potluck_wire::bulk::{BulkStatus, Forward, Reply, Request};
use potluck_wire::control::Source;
use potluck_wire::ticket::{Caveat, Ops};

const LEN: usize = 1_200_000;

/// Returns the way to `pool` under a number that is no other donor's.
fn to(pool: &Pool) -> Source {
    let ticket = pool.ticket(&[Caveat::Ops(Ops::PUT)]);
    Source {
        donor: DonorId(DONOR.0 + u32::from(pool.address.port())),
        addresses: pool.address.into(),
        ticket,
    }
}

/// Tells `first` of a donor that its manager knows.
async fn learn(first: &Pool, client: &mut Client, number: u8, source: &Source) -> BulkStatus {
    first.manager.state().located.insert(source.donor, source.addresses.clone());
    tell(client, number, source).await
}

async fn tell(client: &mut Client, number: u8, source: &Source) -> BulkStatus {
    let mut body = serde_json::to_vec(source).expect("plain data");
    client.opened.lane.seal_body(&mut body);
    let route = Request::Route { number, len: body.len() as u32 };
    client.send(route, &body).await.expect("a connection");
    client.reply().await.expect("a connection").expect("an answer").status
}

async fn put(client: &mut Client, bytes: &[u8], routes: &[u8], wait: bool) -> Reply {
    let forward = Forward::to(routes, wait).expect("few routes");
    let (name, len, ack) = (ChunkName::of(bytes), bytes.len() as u32, AckLevel::Memory);
    let put = Request::Put { name, ack, len, kind: ChunkKind::Data, forward };
    client.send(put, bytes).await.expect("a connection");
    loop {
        let reply = client.reply().await.expect("a connection").expect("an answer");
        // The donor says meanwhile that it waits for a mirror.
        if reply.status != BulkStatus::Throttled {
            return reply;
        }
    }
}

#[tokio::test]
async fn a_put_that_waits_brings_the_receipts_of_all_mirrors() {
    let (first, a, b) = (Pool::start().await, Pool::start().await, Pool::start().await);
    let mut client = first.client().await;
    for (number, pool) in [(3, &a), (200, &b)] {
        assert_eq!(learn(&first, &mut client, number, &to(pool)).await, BulkStatus::Ok);
    }
    // The third put is of a chunk that the first donor has by then; it is forwarded all the same.
    for number in [1, 2, 1] {
        let bytes = content(number, LEN);
        let reply = put(&mut client, &bytes, &[200, 3], true).await;
        assert_eq!(
            (reply.status, reply.receipt),
            (BulkStatus::Ok, receipt(&first, &bytes, AckLevel::Memory))
        );
        let expected = [&b, &a].map(|pool| Some(receipt(pool, &bytes, AckLevel::Memory)?.1));
        assert_eq!(reply.forwarded.receipts().collect::<Vec<_>>(), expected);
        for pool in [&first, &a, &b] {
            assert!(pool.client().await.get(&ChunkName::of(&bytes)).await == Some(bytes.clone()));
        }
    }
}

#[tokio::test]
async fn a_put_that_does_not_wait_is_copied_soon_after() {
    let (first, mirror) = (Pool::start().await, Pool::start().await);
    let mut client = first.client().await;
    assert_eq!(learn(&first, &mut client, 0, &to(&mirror)).await, BulkStatus::Ok);
    let mut expected = Vec::new();
    for number in 0..5 {
        let bytes = content(number, LEN);
        let reply = put(&mut client, &bytes, &[0], false).await;
        assert_eq!((reply.status, reply.forwarded.receipts().count()), (BulkStatus::Ok, 0));
        expected.push(ChunkName::of(&bytes));
    }
    expected.sort();
    let arrived = |state: &crate::manager::State| {
        let added = state.heartbeats.iter().flat_map(|heartbeat| &heartbeat.added.0);
        let mut names: Vec<_> = added.map(|arrived| arrived.holding.name).collect();
        names.sort();
        (names == expected).then_some(())
    };
    mirror.manager.until("the copies", arrived).await;
}

#[tokio::test]
async fn copies_that_are_not_taken_on_are_said_not_to_be_made() {
    let (first, mirror) = (Pool::start().await, Pool::start().await);
    let mut client = first.client().await;
    assert_eq!(learn(&first, &mut client, 0, &to(&mirror)).await, BulkStatus::Ok);
    let bytes = content(1, LEN);
    let reply = put(&mut client, &bytes, &[0, 9], false).await;
    assert_eq!(reply.status, BulkStatus::Ok);
    assert_eq!(reply.forwarded.receipts().collect::<Vec<_>>(), [None, None]);
}

#[tokio::test]
async fn a_mirror_that_is_dead_full_or_unknown_fails_no_put() {
    let (first, full, good) =
        (Pool::start().await, Pool::lending(100_000).await, Pool::start().await);
    let mut client = first.client().await;
    let nobody = Source {
        donor: DonorId(9),
        addresses: "127.0.0.1:9".parse().expect("an address"),
        ..to(&good)
    };
    for (number, source) in [(0, nobody), (1, to(&full)), (2, to(&good))] {
        assert_eq!(learn(&first, &mut client, number, &source).await, BulkStatus::Ok);
    }
    for number in 0..3 {
        let bytes = content(number, LEN);
        let reply = put(&mut client, &bytes, &[0, 1, 9, 2], true).await;
        assert_eq!(reply.status, BulkStatus::Ok);
        let good = receipt(&good, &bytes, AckLevel::Memory).map(|(_, receipt)| receipt);
        assert_eq!(reply.forwarded.receipts().collect::<Vec<_>>(), [None, None, None, good]);
    }
}

/// Makes a mirror, as route `number`, whose connections the system accepts and no program serves.
async fn silent_mirror(first: &Pool, client: &mut Client, number: u8) -> std::net::TcpListener {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    let donor = DonorId(DONOR.0 + u32::from(address.port()));
    let source = Source { donor, addresses: address.into(), ..to(first) };
    assert_eq!(learn(first, client, number, &source).await, BulkStatus::Ok);
    silent
}

#[tokio::test]
async fn mirrors_that_take_nothing_hold_up_a_put_for_seconds_at_most() {
    let first = Pool::start().await;
    let mut client = first.client().await;
    let _silent = [
        silent_mirror(&first, &mut client, 0).await,
        silent_mirror(&first, &mut client, 1).await,
        silent_mirror(&first, &mut client, 2).await,
    ];
    let clock = potluck_core::clock::SystemClock::default();
    for number in 0..3 {
        let reply = put(&mut client, &content(number, LEN), &[0, 1, 2], true).await;
        assert_eq!(reply.status, BulkStatus::Ok);
        assert_eq!(reply.forwarded.receipts().collect::<Vec<_>>(), [None; 3]);
    }
    let took = potluck_core::clock::Clock::now(&clock).as_secs_f64();
    assert!(took < 5.0, "{took}: they were not given up, or one after the other");
}

#[tokio::test]
async fn mirror_that_yields_is_waited_for_and_no_failure() {
    let (first, mirror) = (Pool::start().await, Pool::start().await);
    let mut client = first.client().await;
    assert_eq!(learn(&first, &mut client, 0, &to(&mirror)).await, BulkStatus::Ok);
    // It takes 200 kB a second, so that the chunk takes it twice as long as a mirror has that says nothing.
    let slow = Bandwidth { up: None, down: Some(200_000) };
    mirror.controls.lend_in(LendMode::Full, slow, None);
    let bytes = content(1, LEN);
    let forward = Forward::to(&[0], true).expect("few routes");
    let (name, ack) = (ChunkName::of(&bytes), AckLevel::Memory);
    let put = Request::Put { name, ack, len: LEN as u32, kind: ChunkKind::Data, forward };
    client.send(put, &bytes).await.expect("a connection");
    let mut waited = 0;
    let reply = loop {
        let reply = client.reply().await.expect("a connection").expect("an answer");
        match reply.status {
            BulkStatus::Throttled => waited += 1,
            _ => break reply,
        }
    };
    assert_eq!(reply.status, BulkStatus::Ok);
    assert!(reply.forwarded.receipts().all(|receipt| receipt.is_some()), "{reply:?}");
    assert!(waited >= 1, "the client is told that its put waits");
    assert!(mirror.client().await.get(&name).await == Some(bytes));
}

#[tokio::test]
async fn a_donor_that_goes_down_waits_for_no_mirror() {
    let first = Pool::start().await;
    let mut client = first.client().await;
    let silent = silent_mirror(&first, &mut client, 0).await;
    let small = content(1, 200_000);
    let waiting = tokio::spawn(async move { put(&mut client, &small, &[0], true).await });
    // The donor has connected to the mirror, and waits for it.
    let accept = tokio::task::spawn_blocking(move || silent.accept());
    let _connected = accept.await.expect("a thread").expect("a connection");
    let clock = potluck_core::clock::SystemClock::default();
    let answered = async {
        let reply = waiting.await.expect("answered");
        (reply, potluck_core::clock::Clock::now(&clock).as_secs_f64())
    };
    let (_stopped, (reply, took)) = tokio::join!(first.stop(), answered);
    assert!(took < 2.9, "{took}: it waited for the mirror");
    assert_eq!((reply.status, reply.forwarded.receipts().next()), (BulkStatus::Ok, Some(None)));
}

#[tokio::test]
async fn routes_are_few_and_for_those_who_may_put() {
    let (first, mirror) = (Pool::start().await, Pool::start().await);
    let mut client = first.client().await;
    for number in 0..16 {
        assert_eq!(learn(&first, &mut client, number, &to(&mirror)).await, BulkStatus::Ok);
    }
    assert_eq!(learn(&first, &mut client, 16, &to(&mirror)).await, BulkStatus::Denied);
    assert_eq!(
        learn(&first, &mut client, 3, &to(&mirror)).await,
        BulkStatus::Ok,
        "a number used again"
    );
    let itself = Source { donor: DONOR, ..to(&first) };
    assert_eq!(learn(&first, &mut client, 4, &itself).await, BulkStatus::Denied);
    let reader = first.ticket(&[Caveat::Ops(Ops::GET)]);
    let mut reader = first.open(&reader).await.expect("the donor answers");
    assert_eq!(learn(&first, &mut reader, 0, &to(&mirror)).await, BulkStatus::Denied);
}

#[tokio::test]
async fn donor_dials_only_donors_named_by_the_manager_x4() {
    let (first, mirror) = (Pool::start().await, Pool::start().await);
    let mut client = first.client().await;
    let there = to(&mirror);
    assert_eq!(learn(&first, &mut client, 0, &there).await, BulkStatus::Ok);
    // This is some other service in the owner's network, under a donor's number and under nobody's.
    let service = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = service.local_addr().expect("an address");
    let scan = Source { addresses: address.into(), ..there.clone() };
    let beside = Source { addresses: there.addresses.and(&address.into()), ..there };
    let nobody = Source { donor: DonorId(1 << 20), ..scan.clone() };
    assert_eq!(tell(&mut client, 1, &scan).await, BulkStatus::Denied);
    assert_eq!(tell(&mut client, 2, &nobody).await, BulkStatus::Denied);
    assert_eq!(
        tell(&mut client, 3, &beside).await,
        BulkStatus::Denied,
        "one of its addresses is not the donor's"
    );
    let reply = put(&mut client, &content(1, LEN), &[1, 2, 0], true).await;
    let made: Vec<_> = reply.forwarded.receipts().map(|receipt| receipt.is_some()).collect();
    assert_eq!(made, [false, false, true]);
    service.set_nonblocking(true).expect("a socket");
    let came = service.accept().map(drop).map_err(|why| why.kind());
    assert_eq!(came, Err(std::io::ErrorKind::WouldBlock));
}
