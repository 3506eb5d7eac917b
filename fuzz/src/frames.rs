//! Decoders of frames of the bulk plane.

use std::io::Cursor;

use crate::decoder::Decoder;
use potluck_core::chunk::{ChunkKind, ChunkName};
use potluck_core::policy::AckLevel;
use potluck_wire::bulk::{
    ChunkPart, Forward, FrameError, Inbox, Reply, Request, SessionKeys, StreamIo,
};
use potluck_wire::ticket::{Receipt, Secret};

pub const DECODERS: [Decoder; 3] = [
    Decoder { name: "frame-request", read: request, seeds: || heads(requests()) },
    Decoder { name: "frame-reply", read: reply, seeds: || heads(replies()) },
    Decoder { name: "frame-unsigned", read: unsigned, seeds: requests },
];

const SECRET: [u8; 32] = [7; 32];
const NONCES: [[u8; 16]; 2] = [[1; 16], [2; 16]];
const MAC: usize = 16;

fn keys() -> SessionKeys {
    SessionKeys::derive(&Secret::from_bytes(SECRET), &NONCES[0], &NONCES[1])
}

/// Returns `head` with the code that the client or the donor adds to the first head of a connection
/// (docs/format/bulk.md).
fn signed(head: &[u8], of_client: bool) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new_keyed(&SECRET);
    hasher.update(b"potluck 1 bulk").update(&NONCES[0]).update(&NONCES[1]);
    let mut keys = [0; 64];
    hasher.finalize_xof().fill(&mut keys);
    let key = if of_client { &keys[..32] } else { &keys[32..] };
    let mut hasher = blake3::Hasher::new_keyed(key.try_into().expect("32 bytes"));
    hasher.update(&0_u64.to_le_bytes()).update(head);
    [head, &hasher.finalize().as_bytes()[..MAC]].concat()
}

/// Returns a head whose length of the extension is true, so that what is signed is what is read; `None` if there
/// are too few bytes for one.
fn head(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut head = bytes.get(..16)?.to_vec();
    let ext = &bytes[16..bytes.len().min(16 + 255)];
    (head[0], head[3]) = (0xB1, ext.len() as u8);
    head.extend_from_slice(ext);
    Some(head)
}

fn received<T>(read: impl Future<Output = Result<T, FrameError>>) -> Result<T, FrameError> {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    }
    RUNTIME.with(|runtime| runtime.block_on(read))
}

fn stream(bytes: Vec<u8>) -> StreamIo<tokio::io::Join<Cursor<Vec<u8>>, tokio::io::Sink>> {
    StreamIo(tokio::io::join(Cursor::new(bytes), tokio::io::sink()))
}

fn request(bytes: &[u8]) -> bool {
    let Some(head) = head(bytes) else { return false };
    let mut io = stream(signed(&head, true));
    let mut inbox = Inbox::new(keys().client, &[]).expect("nothing before");
    let Ok(Some((tag, request))) = received(inbox.request(&mut io)) else { return false };
    let mut io = stream(request.encode(tag, &mut keys().client));
    let mut inbox = Inbox::new(keys().client, &[]).expect("nothing before");
    let again = received(inbox.request(&mut io)).expect("what was encoded is read");
    assert_eq!(again, Some((tag, request)));
    true
}

fn reply(bytes: &[u8]) -> bool {
    let Some(head) = head(bytes) else { return false };
    let mut io = stream(signed(&head, false));
    let mut inbox = Inbox::new(keys().donor, &[]).expect("nothing before");
    let Ok(Some((tag, reply))) = received(inbox.reply(&mut io)) else { return false };
    let mut io = stream(reply.encode(tag, &mut keys().donor));
    let mut inbox = Inbox::new(keys().donor, &[]).expect("nothing before");
    let again = received(inbox.reply(&mut io)).expect("what was encoded is read");
    assert_eq!(again, Some((tag, reply)));
    true
}

/// Checks that nothing which a peer without the key sends passes for a frame. The key follows from the bytes, so
/// each input has another one, and libFuzzer learns nothing from inputs that were nearly right.
fn unsigned(bytes: &[u8]) -> bool {
    let secret = Secret::from_bytes(*blake3::hash(bytes).as_bytes());
    let keys = SessionKeys::derive(&secret, &NONCES[0], &NONCES[1]);
    let early = bytes.first().map_or(0, |first| usize::from(*first).min(bytes.len()));
    let (before, after) = bytes.split_at(early);
    let Ok(mut inbox) = Inbox::new(keys.client, before) else { return false };
    let read = received(inbox.request(&mut stream(after.to_vec())));
    assert!(!matches!(read, Ok(Some(_))), "{read:?}");
    true
}

fn requests() -> Vec<Vec<u8>> {
    let name = ChunkName([5; 32]);
    let forward = Forward::to(&[7, 0, 255], false).expect("few routes");
    let part = ChunkPart { offset: 1 << 20, len: 70_000 };
    [
        Request::put(name, AckLevel::Disk, 4),
        Request::Put { name, ack: AckLevel::Memory, len: 9, kind: ChunkKind::Log, forward },
        Request::Route { number: 200, len: 300 },
        Request::Get { name, part: None },
        Request::Get { name, part: Some(part) },
        Request::Stop,
        Request::Diagnose { len: 1000, wanted: 1 << 20 },
    ]
    .map(|request| request.encode(3, &mut keys().client))
    .into()
}

fn replies() -> Vec<Vec<u8>> {
    [Reply::found(100), Reply::stored(AckLevel::Disk, Receipt::from_bytes(&[3; Receipt::SIZE]))]
        .map(|reply| reply.encode(3, &mut keys().donor))
        .into()
}

/// Returns frames without their codes.
fn heads(frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    frames.iter().map(|frame| frame[..frame.len() - MAC].to_vec()).collect()
}
