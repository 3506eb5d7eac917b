use super::*;

fn keys() -> SessionKeys {
    SessionKeys::derive(&Secret::from_bytes([7; 32]), &[1; 16], &[2; 16])
}

fn put() -> Request {
    Request::put(ChunkName::of(b"body"), AckLevel::Disk, 4)
}

async fn receive(bytes: Vec<u8>) -> Result<Option<(u32, Request)>, FrameError> {
    let mut io = StreamIo(tokio_test_stream(bytes));
    Inbox::new(keys().client, &[])?.request(&mut io).await
}

fn tokio_test_stream(bytes: Vec<u8>) -> tokio::io::Join<io::Cursor<Vec<u8>>, tokio::io::Sink> {
    tokio::io::join(io::Cursor::new(bytes), tokio::io::sink())
}

#[tokio::test]
async fn frames_arrive_as_sent_with_their_bodies() {
    let mut sender = keys();
    let mut bytes = put().encode(9, &mut sender.client);
    bytes.extend_from_slice(b"body");
    let get = Request::Get { name: ChunkName::of(b"x"), part: None };
    bytes.extend(get.encode(10, &mut sender.client));
    let (early, late) = bytes.split_at(20);
    let mut io = StreamIo(tokio_test_stream(late.to_vec()));
    let mut inbox = Inbox::new(keys().client, early).expect("fits");
    assert_eq!(inbox.request(&mut io).await.expect("put"), Some((9, put())));
    let mut body = [0; 4];
    assert_eq!(inbox.body(&mut io, &mut body).await.expect("body"), 4);
    assert_eq!(&body, b"body");
    assert_eq!(inbox.request(&mut io).await.expect("get"), Some((10, get)));
    assert_eq!(inbox.request(&mut io).await.expect("end"), None);

    let receipt = |byte| Receipt::from_bytes(&[byte; Receipt::SIZE]);
    let forwarded = Forwarded::of(&[Some(receipt(4)), None]);
    let limit = Some(3 << 20);
    let said = Reply { forwarded, limit, ..Reply::stored(AckLevel::Disk, receipt(3)) };
    assert_eq!(said.forwarded.receipts().collect::<Vec<_>>(), [Some(receipt(4)), None]);
    let bytes = said.encode(9, &mut sender.donor);
    let mut inbox = Inbox::new(keys().donor, &bytes).expect("fits");
    let mut end = StreamIo(tokio_test_stream(vec![]));
    assert_eq!(inbox.reply(&mut end).await.expect("reply"), Some((9, said)));
}

#[tokio::test]
async fn requests_without_bodies_are_taken_as_they_come() {
    let mut sender = keys();
    let get = Request::Get { name: ChunkName::of(b"x"), part: None };
    let mut frames = Vec::new();
    for (tag, request) in [(1, get), (1, Request::Stop), (2, get), (3, put()), (4, get)] {
        frames.extend(request.encode(tag, &mut sender.client));
    }
    let (here, late) = frames.split_at(get.encode(1, &mut keys().client).len() + 5);
    let mut inbox = Inbox::new(keys().client, &[]).expect("fits");
    let mut some = StreamIo(tokio_test_stream(here.to_vec()));
    assert_eq!(inbox.request_now(&mut some).expect("a frame"), Some((1, get)));
    assert_eq!(inbox.request_now(&mut some).expect("a part of one"), None);
    let mut rest = StreamIo(tokio_test_stream(late.to_vec()));
    assert_eq!(inbox.request_now(&mut rest).expect("a frame"), Some((1, Request::Stop)));
    assert_eq!(inbox.request_now(&mut rest).expect("a frame"), Some((2, get)));
    assert_eq!(inbox.request_now(&mut rest).expect("a body follows"), None);
    assert_eq!(inbox.request(&mut rest).await.expect("in its turn"), Some((3, put())));
}

#[tokio::test]
async fn changed_cut_or_replayed_frames_end_the_connection() {
    let good = put().encode(1, &mut keys().client);
    for at in 0..good.len() {
        let mut changed = good.clone();
        changed[at] ^= 0x40;
        assert!(receive(changed).await.is_err(), "byte {at}");
        if at > 0 {
            assert!(receive(good[..at].to_vec()).await.is_err(), "cut at {at}");
        }
    }
    let mut io = StreamIo(tokio_test_stream([&good[..], &good[..]].concat()));
    let mut inbox = Inbox::new(keys().client, &[]).expect("fits");
    inbox.request(&mut io).await.expect("first");
    assert!(matches!(inbox.request(&mut io).await, Err(FrameError::Forged)));
}

#[tokio::test]
async fn impossible_lengths_are_refused_before_any_buffer() {
    let huge = Request::put(ChunkName::of(b""), AckLevel::Memory, u32::MAX);
    let refused = receive(huge.encode(1, &mut keys().client)).await;
    assert!(matches!(refused, Err(FrameError::Malformed(_))));
}

#[tokio::test]
async fn kinds_routes_and_parts_survive_the_wire() {
    let forward = Forward::to(&[7, 0, 255], false).expect("few routes");
    let put = Request::Put {
        name: ChunkName([5; 32]),
        ack: AckLevel::Memory,
        len: 9,
        kind: ChunkKind::Log,
        forward,
    };
    assert_eq!(forward.routes(), [7, 0, 255]);
    assert!(Forward::to(&[0; MAX_ROUTES + 1], true).is_none());
    let part = |len| ChunkPart { offset: 1 << 20, len };
    let get = |part| Request::Get { name: ChunkName([5; 32]), part: Some(part) };
    for request in [put, Request::Route { number: 200, len: 300 }, get(part(7))] {
        let received = receive(request.encode(1, &mut keys().client)).await.expect("a frame");
        assert_eq!(received, Some((1, request)));
    }
    let long = Request::Route { number: 0, len: MAX_ROUTE + 1 };
    assert!(receive(long.encode(1, &mut keys().client)).await.is_err());
    assert!(receive(get(part(0)).encode(1, &mut keys().client)).await.is_err());
}
