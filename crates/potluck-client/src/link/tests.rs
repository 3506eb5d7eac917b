//! Tests of a client's connection to one donor: routes, forwarded puts, and donors that stall.

use super::*;
use potluck_core::entropy::SeededEntropy;
use potluck_core::hedging::STALL_TIMEOUT;
use potluck_core::ids::DonorId;
use potluck_core::merkle::{SEGMENT, SegmentHashes};
use potluck_wire::addresses::Address;
use potluck_wire::bulk::{BODY_STOPPED, Forwarded, Inbox, Reply, SLICE, SessionKeys};
use potluck_wire::net::{Detached, Net, Stream, SystemNet};
use potluck_wire::ticket::{Secret, Ticket};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::time::Instant;

fn receipt(byte: u8) -> Receipt {
    Receipt::from_bytes(&[byte; Receipt::SIZE])
}

/// A stream over one end of an in-memory pipe, which takes no more bytes than its small buffer until the other end
/// reads.
struct Hole(DuplexStream);

impl Stream for Hole {
    fn detach(self: Box<Self>) -> io::Result<Detached> {
        Ok(Detached::Stream(self))
    }
}

impl AsyncRead for Hole {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, out)
    }
}

impl AsyncWrite for Hole {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_donor_that_reads_nothing_hangs_nobody_a2() {
    let (ours, _theirs) = tokio::io::duplex(1024);
    let keys = SessionKeys::derive(&Secret::from_bytes([7; 32]), &[1; 16], &[2; 16]);
    let opened = OpenedBulk {
        io: StreamIo(Box::new(Hole(ours))),
        inbox: Inbox::new(keys.donor, &[]).expect("an inbox"),
        lane: keys.client,
    };
    let buffers = Buffers::new(1 << 20);
    let link = Link::start(opened, buffers.clone(), |_| {});
    let body = body(&buffers, 4096).await;
    let put = || link.put(name_of(&body), AckLevel::Memory, body.clone(), None);
    let both = async { tokio::join!(put(), put()) };
    let (first, second) = tokio::time::timeout(2 * STALL_TIMEOUT, both).await.expect("an end");
    assert!(first.is_err() && second.is_err());
    assert!(!link.is_open());
}

fn ticket(number: u8) -> Ticket {
    Ticket::issue(&Secret::from_bytes([number; 32]), &SeededEntropy::new(number.into()), &[])
}

fn source(donor: u32, number: u8) -> Source {
    Source {
        donor: DonorId(donor),
        addresses: format!("d{donor}:1").parse().expect("an address"),
        ticket: ticket(number),
    }
}

/// Returns the source with a ticket that allows its bearer nothing but puts.
fn for_puts(mut source: Source) -> Source {
    source.ticket.narrow(&Caveat::Ops(Ops::PUT));
    source
}

#[test]
fn a_route_is_told_once_and_again_when_it_changes() {
    let mut routes = Routes::default();
    let mut ask = |to: Vec<Source>| {
        let (new, forward) = routes.forward(Some(Forwarding { to, wait: true }));
        (new.len(), forward.routes().to_vec())
    };
    assert_eq!(ask(vec![source(1, 1), source(2, 2)]), (2, vec![0, 1]));
    assert_eq!(ask(vec![source(2, 2), source(1, 1)]), (0, vec![1, 0]));
    assert_eq!(ask(vec![source(2, 3)]), (1, vec![2]));
    assert_eq!(routes.forward(None).1, Forward::NONE);
}

#[test]
fn no_more_routes_are_told_than_a_donor_remembers() {
    let mut routes = Routes::default();
    // As at a donor, a number stands for the source that was told under it last.
    let mut donor = BTreeMap::new();
    for round in 0..100 {
        // One source is known from the put before, and one is new.
        let to = vec![source(round, 1), source(round + 1, 1)];
        let (new, forward) = routes.forward(Some(Forwarding { to: to.clone(), wait: false }));
        for (number, body) in new {
            donor.insert(number, serde_json::from_slice::<Source>(&body).expect("a source"));
        }
        assert!(donor.len() <= KNOWN_ROUTES);
        let meant: Vec<_> = forward.routes().iter().map(|number| donor[number].clone()).collect();
        assert_eq!(meant, to.into_iter().map(for_puts).collect::<Vec<_>>(), "round {round}");
    }
}

#[test]
fn route_lists_only_addresses_that_fit_a_frame() {
    let host = ["h".repeat(63), "i".repeat(63), "j".repeat(63), "k".repeat(57)].join(".");
    let address = |port: u32| format!("{host}:{port}").parse::<Address>().expect("an address");
    let all: Vec<Address> = (7701..7709).map(address).collect();
    let long = Source { addresses: all.clone().into(), ..source(1, 1) };
    let body = told(long);
    assert!(body.len() + ROUTE_SEAL <= MAX_ROUTE as usize, "{} bytes", body.len());
    let addresses = serde_json::from_slice::<Source>(&body).expect("a source").addresses;
    let count = addresses.iter().count();
    assert!(count > 4 && addresses.iter().eq(&all[..count]), "the best ones: {count}");
}

#[tokio::test]
async fn a_forwarded_put_brings_the_receipts_of_all_its_donors() {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let keys = SessionKeys::derive(&Secret::from_bytes([7; 32]), &[1; 16], &[2; 16]);
    let opened = OpenedBulk {
        io: StreamIo(Box::new(Hole(ours))),
        inbox: Inbox::new(keys.donor.clone(), &[]).expect("an inbox"),
        lane: keys.client.clone(),
    };
    let donor = tokio::spawn(async move {
        let (mut io, mut lane) = (StreamIo(theirs), keys.donor);
        let mut inbox = Inbox::new(keys.client, &[]).expect("an inbox");
        let mut told = Vec::new();
        while let Some((tag, request)) = inbox.request(&mut io).await.expect("a request") {
            let (len, reply) = match request {
                Request::Route { len, .. } => (len, Reply::bare(BulkStatus::Ok)),
                Request::Put { len, forward, .. } => {
                    assert!(forward.wait && forward.routes() == [0, 1]);
                    let forwarded = Forwarded::of(&[None, Some(receipt(9))]);
                    let stored = Reply::stored(AckLevel::Memory, receipt(1));
                    (len, Reply { forwarded, ..stored })
                }
                Request::Get { .. } | Request::Stop | Request::Diagnose { .. } => {
                    panic!("nothing is read")
                }
            };
            let mut body = vec![0; len as usize];
            let mut filled = 0;
            while filled < body.len() {
                filled += inbox.body(&mut io, &mut body[filled..]).await.expect("a body");
            }
            if matches!(request, Request::Route { .. }) {
                assert!(serde_json::from_slice::<Source>(&body).is_err(), "its secret is readable");
                let body = inbox.open_body(&mut body).expect("sealed");
                told.push(serde_json::from_slice::<Source>(body).expect("a source"));
            }
            io.write(&reply.encode(tag, &mut lane), &[]).await.expect("an answer");
        }
        told
    });
    let buffers = Buffers::new(1 << 20);
    let link = Link::start(opened, buffers.clone(), |_| {});
    let body = body(&buffers, 4096).await;
    for _ in 0..2 {
        let forward = Forwarding { to: vec![source(4, 4), source(5, 5)], wait: true };
        let put = link.put(name_of(&body), AckLevel::Memory, body.clone(), Some(forward));
        let stored = put.await.expect("stored");
        assert_eq!(stored.receipt, receipt(1));
        assert_eq!(stored.forwarded, [None, Some(receipt(9))]);
    }
    drop(link);
    assert_eq!(donor.await.expect("no panic"), [source(4, 4), source(5, 5)].map(for_puts));
}

/// Makes the body of a chunk of `len` bytes in memory.
async fn body(buffers: &Buffers, len: usize) -> Arc<ChunkBody> {
    Arc::new(ChunkBody::Memory(buffers.claim(len).await.buffer(len)))
}

fn name_of(body: &ChunkBody) -> ChunkName {
    ChunkName::of(&body.to_vec())
}

/// This runs over a socket of the machine, since only there are parts of files sent without a copy through this
/// process.
#[tokio::test]
async fn chunk_of_a_shortened_file_is_refused_alone() {
    let mut listener = SystemNet.listen("127.0.0.1:0").await.expect("listening");
    let address = listener.local_addr().expect("an address").to_string();
    let ours = SystemNet.connect(&address).await.expect("connected");
    let (theirs, _) = listener.accept().await.expect("accepted");
    let keys = SessionKeys::derive(&Secret::from_bytes([7; 32]), &[1; 16], &[2; 16]);
    let opened = OpenedBulk {
        io: StreamIo(ours),
        inbox: Inbox::new(keys.donor.clone(), &[]).expect("an inbox"),
        lane: keys.client.clone(),
    };
    let donor = tokio::spawn(async move {
        let (mut io, mut lane) = (StreamIo(theirs), keys.donor);
        let mut inbox = Inbox::new(keys.client, &[]).expect("an inbox");
        while let Some((tag, request)) = inbox.request(&mut io).await.expect("a request") {
            let Request::Put { len, name, .. } = request else { panic!("not a put") };
            let (mut body, mut filled) = (vec![0; len as usize], 0);
            while filled < body.len() {
                filled += inbox.body(&mut io, &mut body[filled..]).await.expect("a body");
            }
            let reply = match ChunkName::of(&body) == name {
                true => Reply::stored(AckLevel::Memory, receipt(1)),
                false => Reply::bare(BulkStatus::Mismatch),
            };
            io.write(&reply.encode(tag, &mut lane), &[]).await.expect("an answer");
        }
    });
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    // This is more than a socket takes at once.
    let content: Vec<u8> = (0..24_u32 << 20).map(|at| (at ^ (at >> 9)) as u8).collect();
    std::fs::write(&path, &content).expect("written");
    let file = Arc::new(std::fs::File::open(&path).expect("opened"));
    let buffers = Buffers::new(64 << 20);
    let link = Link::start(opened, buffers.clone(), |_| {});
    let whole = 100..20 << 20;
    let mut parts = Vec::new();
    for part in [whole.clone(), 0..1000, content.len() - 2000..content.len()] {
        let name = ChunkName::of(&content[part.clone()]);
        let (offset, len) = (part.start as u64, part.len() as u32);
        let range = FileRange::new(Arc::clone(&file), offset, len, buffers.claim(part.len()).await);
        parts.push((name, Arc::new(ChunkBody::File(range))));
    }
    for (name, body) in &parts {
        let put = link.put(*name, AckLevel::Memory, Arc::clone(body), None);
        assert_eq!(put.await.expect("stored").receipt, receipt(1));
        assert!(!body.has_changed(name));
    }
    let shorter = std::fs::OpenOptions::new().write(true).open(&path).expect("opened");
    shorter.set_len(whole.end as u64 - 1000).expect("shortened");
    for (at, stays) in [(0, false), (1, true), (2, false)] {
        let (name, body) = &parts[at];
        let put = link.put(*name, AckLevel::Memory, Arc::clone(body), None).await;
        assert_eq!(put.is_ok(), stays, "{put:?}");
        assert_eq!(body.has_changed(name), !stays);
    }
    drop(link);
    donor.await.expect("no panic");
}

/// Starts a link over an in-memory pipe; returns it with the donor's end and the keys of the session.
fn link() -> (Link, StreamIo<DuplexStream>, SessionKeys) {
    link_told(|_| {})
}

/// Starts such a link whose owner is told of the donor's limit by `limited`.
fn link_told(
    limited: impl FnMut(Option<u64>) + Send + 'static,
) -> (Link, StreamIo<DuplexStream>, SessionKeys) {
    let (ours, theirs) = tokio::io::duplex(1 << 10);
    let keys = SessionKeys::derive(&Secret::from_bytes([7; 32]), &[1; 16], &[2; 16]);
    let opened = OpenedBulk {
        io: StreamIo(Box::new(Hole(ours))),
        inbox: Inbox::new(keys.donor.clone(), &[]).expect("an inbox"),
        lane: keys.client.clone(),
    };
    (Link::start(opened, Buffers::new(1 << 20), limited), StreamIo(theirs), keys)
}

#[tokio::test(start_paused = true)]
async fn slow_but_progressing_chunk_does_not_time_out_a2() {
    let (link, mut io, mut keys) = link();
    let donor = tokio::spawn(async move {
        let mut inbox = Inbox::new(keys.client, &[]).expect("an inbox");
        for _ in 0..3 {
            let Ok(Some((tag, Request::Put { len, .. }))) = inbox.request(&mut io).await else {
                panic!("not a put");
            };
            let mut left = len as usize;
            while left > 0 {
                tokio::time::sleep(STALL_TIMEOUT / 48).await;
                let piece = &mut [0; 1 << 10][..left.min(1 << 10)];
                left -= inbox.body(&mut io, piece).await.expect("bytes");
            }
            tokio::time::sleep(STALL_TIMEOUT * 9 / 10).await; // a slow disk as well
            let stored = Reply::stored(AckLevel::Memory, receipt(1));
            io.write(&stored.encode(tag, &mut keys.donor), &[]).await.expect("answered");
        }
        inbox
    });
    let body = body(&Buffers::new(1 << 20), 150_000).await;
    let started = Instant::now();
    let put = || link.put(name_of(&body), AckLevel::Memory, body.clone(), None);
    let (first, second, third) = tokio::join!(put(), put(), put());
    assert!(first.is_ok() && second.is_ok() && third.is_ok(), "{first:?}, {second:?}, {third:?}");
    assert!(started.elapsed() > 9 * STALL_TIMEOUT);
    drop(donor.await);
}

#[tokio::test(start_paused = true)]
async fn a_donor_that_takes_hardly_anything_of_a_put_is_given_up_a2() {
    let (link, mut io, keys) = link();
    tokio::spawn(async move {
        let mut inbox = Inbox::new(keys.client, &[]).expect("an inbox");
        inbox.request(&mut io).await.expect("a frame").expect("a request");
        while inbox.body(&mut io, &mut [0; 64]).await.is_ok() {
            tokio::time::sleep(STALL_TIMEOUT / 24).await;
        }
    });
    let body = body(&Buffers::new(1 << 20), 1 << 20).await;
    let put = link.put(name_of(&body), AckLevel::Memory, body.clone(), None);
    let answer = tokio::time::timeout(3 * STALL_TIMEOUT, put).await.expect("an end");
    let Err(LinkError::Away(why)) = answer else { panic!("{answer:?}") };
    assert!(why.starts_with("took "), "{why}");
    assert!(!link.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_donor_that_drips_is_given_up_a2() {
    let (link, mut io, mut keys) = link();
    tokio::spawn(async move {
        let mut inbox = Inbox::new(keys.client, &[]).expect("an inbox");
        let (tag, _) = inbox.request(&mut io).await.expect("a frame").expect("a request");
        io.write(&Reply::found(100_000).encode(tag, &mut keys.donor), &[]).await.expect("a head");
        while io.write(&[0], &[]).await.is_ok() {
            tokio::time::sleep(STALL_TIMEOUT / 8).await;
        }
    });
    let request = ChunkRequest { name: ChunkName::of(b"x"), len: 100_000, part: None, seal: None };
    let answer = tokio::time::timeout(3 * STALL_TIMEOUT, link.get(request)).await.expect("an end");
    let Err(LinkError::Away(why)) = answer else { panic!("{answer:?}") };
    assert!(why.starts_with("sent "), "{why}");
    assert!(!link.is_open());
}

/// Has a donor answer a get after it said so many times, every two seconds, that it waits for its turn; returns the answer
/// to the client, and what the client was told of the donor's limit.
async fn get_from_throttled(times: usize) -> (GetResult, Vec<Option<u64>>) {
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let hearing = Arc::clone(&told);
    let (link, mut io, mut keys) =
        link_told(move |limit| hearing.lock().expect("no panic").push(limit));
    let bytes = vec![1; 1000];
    let (name, len) = (ChunkName::of(&bytes), bytes.len() as u32);
    tokio::spawn(async move {
        let mut inbox = Inbox::new(keys.client, &[]).expect("an inbox");
        let (tag, _) = inbox.request(&mut io).await.expect("a frame").expect("a request");
        let limit = Some(1 << 20);
        for _ in 0..times {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let waits = Reply { limit, ..Reply::bare(BulkStatus::Throttled) };
            if io.write(&waits.encode(tag, &mut keys.donor), &[]).await.is_err() {
                return;
            }
        }
        // Others have their turns between its slices, for longer than any donor without a limit may stall.
        let head = Reply { limit, ..Reply::found(len) }.encode(tag, &mut keys.donor);
        let (first, rest) = bytes.split_at(500);
        for (head, part) in [(&head[..], first), (&[][..], rest)] {
            if io.write(head, part).await.is_err() {
                return;
            }
            tokio::time::sleep(3 * STALL_TIMEOUT).await;
        }
    });
    let answer = link.get(ChunkRequest { name, len, part: None, seal: None }).await;
    let told = told.lock().expect("no panic").clone();
    (answer, told)
}

#[tokio::test(start_paused = true)]
async fn donor_that_yields_and_says_so_is_not_given_up() {
    let (answer, told) = get_from_throttled(30).await;
    assert_eq!(answer.expect("the chunk")[..], [1; 1000]);
    assert_eq!(told, [Some(1 << 20); 31]);
}

#[tokio::test(start_paused = true)]
async fn donor_that_says_for_ever_that_it_yields_is_given_up() {
    let (answer, _) = get_from_throttled(100_000).await;
    assert_eq!(answer.expect_err("no chunk"), LinkError::Refused(BulkStatus::Throttled));
}

/// A reader of a sealed space who lends a disk has its key, and so can seal any bytes under the digest of a chunk.
#[tokio::test]
async fn content_resealed_under_another_digest_is_refused_i4() {
    let (link, mut io, mut keys) = link();
    let key = SpaceKey::from_bytes([7; 32]);
    let right = vec![1; 3 * SEGMENT as usize + 5];
    let forged = vec![2; right.len()];
    let seal = Seal { key, digest: Digest::of(&right) };
    let sealed = |plain: &[u8]| {
        let mut bytes = plain.to_vec();
        seal.cipher().apply(0, &mut bytes);
        bytes
    };
    let (name, len) = (ChunkName::of(&sealed(&right)), right.len() as u32);
    let texts = [sealed(&right), sealed(&forged)];
    let donor = tokio::spawn(async move {
        let mut inbox = Inbox::new(keys.client, &[]).expect("an inbox");
        for sealed in texts.iter().cycle() {
            let asked = inbox.request(&mut io).await.expect("a request");
            let Some((tag, Request::Get { part, .. })) = asked else { return };
            let range = part.map_or(0..len, |part| part.offset..part.offset + part.len);
            let proof = whole_segments(&range, len).filter(|_| part.is_some());
            let proof = proof.map(|segments| SegmentHashes::of(sealed).parts().proof(&segments));
            let mut body = proof.map_or(Vec::new(), |proof| proof.as_bytes().to_vec());
            body.extend_from_slice(&sealed[range.start as usize..range.end as usize]);
            let head = Reply::found(body.len() as u32).encode(tag, &mut keys.donor);
            io.write(&head, &body).await.expect("an answer");
        }
    });
    for part in [None, Some(SEGMENT..3 * SEGMENT), Some(3 * SEGMENT..len)] {
        let range = part.clone().unwrap_or(0..len);
        let asked = ChunkRequest { name, len, part, seal: Some(seal.clone()) };
        let opened = link.get(asked.clone()).await.expect("the chunk");
        assert!(opened[..] == right[range.start as usize..range.end as usize]);
        assert!(matches!(link.get(asked).await, Err(LinkError::WrongBytes)), "other bytes");
    }
    drop(link);
    donor.await.expect("no panic");
}

#[tokio::test]
async fn partially_sent_requests_get_their_own_chunks() {
    let (link, mut io, mut keys) = link();
    let donor = tokio::spawn(async move {
        let mut inbox = Inbox::new(keys.client, &[]).expect("an inbox");
        let chunks: BTreeMap<_, _> = (0..100).map(|n| (ChunkName::of(&[n]), [n])).collect();
        while let Some((tag, request)) = inbox.request(&mut io).await.expect("a request") {
            let Request::Get { name, .. } = request else { panic!("not a get") };
            let head = Reply::found(1).encode(tag, &mut keys.donor);
            io.write(&head, &chunks[&name]).await.expect("an answer");
        }
    });
    let reads = (0..100).map(|n| {
        let name = ChunkName::of(&[n]);
        let read = link.get(ChunkRequest { name, len: 1, part: None, seal: None });
        async move { assert_eq!(read.await.expect("a chunk")[..], [n]) }
    });
    futures_util::future::join_all(reads).await;
    drop(link);
    donor.await.expect("no panic");
}

#[tokio::test]
async fn a_get_that_nobody_waits_for_is_stopped() {
    let (link, mut io, mut keys) = link();
    let long = vec![5; 3 * SLICE as usize];
    let next = vec![6; 1000];
    let asked = |bytes: &[u8]| {
        let (name, len) = (ChunkName::of(bytes), bytes.len() as u32);
        ChunkRequest { name, len, part: None, seal: None }
    };
    let (began, begun) = oneshot::channel();
    let (stopped, is_stopped) = oneshot::channel();
    let (long_body, next_body) = (long.clone(), next.clone());
    let donor = tokio::spawn(async move {
        let mut inbox = Inbox::new(keys.client, &[]).expect("an inbox");
        let (tag, _) = inbox.request(&mut io).await.expect("a frame").expect("a get");
        let head = Reply::found(long_body.len() as u32).encode(tag, &mut keys.donor);
        io.write(&head, &long_body[..SLICE as usize]).await.expect("a slice");
        began.send(()).expect("the test waits");
        let stop = inbox.request(&mut io).await.expect("a frame");
        assert_eq!(stop, Some((tag, Request::Stop)));
        stopped.send(()).expect("the test waits");
        io.write(&BODY_STOPPED, &[]).await.expect("stopped");
        let (tag, _) = inbox.request(&mut io).await.expect("a frame").expect("a get");
        let head = Reply::found(next_body.len() as u32).encode(tag, &mut keys.donor);
        io.write(&head, &next_body).await.expect("an answer");
    });
    tokio::select! {
        _ = link.get(asked(&long)) => panic!("it never ends"),
        begun = begun => begun.expect("the donor runs"),
    }
    is_stopped.await.expect("the donor is told");
    let got = link.get(asked(&next)).await.expect("the connection is of use");
    assert!(got[..] == next);
    donor.await.expect("no panic");
}

#[tokio::test]
async fn a_donor_that_stops_unasked_has_failed_and_stays_of_use() {
    let (link, mut io, mut keys) = link();
    let bytes = vec![5; 2 * SLICE as usize];
    let (name, len) = (ChunkName::of(&bytes), bytes.len() as u32);
    tokio::spawn(async move {
        let mut inbox = Inbox::new(keys.client, &[]).expect("an inbox");
        while let Ok(Some((tag, _))) = inbox.request(&mut io).await {
            let head = Reply::found(len).encode(tag, &mut keys.donor);
            io.write(&head, &bytes[..SLICE as usize]).await.expect("a slice");
            io.write(&BODY_STOPPED, &[]).await.expect("stopped");
        }
    });
    for _ in 0..2 {
        let answer = link.get(ChunkRequest { name, len, part: None, seal: None }).await;
        assert!(matches!(answer, Err(LinkError::Refused(BulkStatus::Stopped))), "{answer:?}");
    }
}
