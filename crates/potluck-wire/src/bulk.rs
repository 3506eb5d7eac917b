//! The bulk plane: frames on a raw stream between a client and a donor.
//!
//! A frame is a 16-byte header, a short extension, a 16-byte MAC and, for some, a body:
//!
//! ```text
//! 0  magic 0xB1 | 1 op or status | 2 ack level | 3 extension length
//! 4  tag (u32)  | 8 body length (u32)          | 12 zero (u32)       little-endian
//! ```
//! The MAC is keyed BLAKE3 over a sequence number, header and extension, with one key for each direction and
//! connection. Bodies carry no MAC: a chunk verifies itself by its name, which is in the MACed extension of the
//! request. The body of a route, which has the secret of a ticket, is sealed ([`Lane::seal_body`]). A frame that does not
//! check ends the connection.
//!
//! Requests are pipelined; a donor answers in the order asked, and every answer carries the
//! request's tag. A get whose chunk came from elsewhere is stopped: then the donor sends no more of it than the slice
//! that is under way ([`SLICE`]).

mod forward;
mod sealed_body;
mod slices;
mod stream;

pub use forward::{Forward, Forwarded};
pub use slices::{BODY_STOPPED, ReadBody, SLICE, SLICE_FOLLOWS, SlicedBody, slices};
pub use stream::{BulkIo, ReadAt, SendFileError, StreamIo, read_some_at};

use crate::ticket::{Receipt, Secret, ack_byte, ack_from_byte};
use forward::{decode_extra, encode_extra};
use potluck_core::chunk::{ChunkKind, ChunkName, MAX_CHUNK};
use potluck_core::diagnostic_transfer::MOST as MOST_DIAGNOSED;
use potluck_core::policy::AckLevel;
use std::io;
use std::ops::Range;

/// The number of bytes of a frame before its extension.
pub const HEADER: usize = 16;
/// The number of bytes of the MAC after the extension.
pub const MAC: usize = 16;
/// The longest extension: the receipts of a chunk and of all copies that its donor forwarded.
pub const MAX_EXT: usize = Receipt::SIZE * (1 + MAX_ROUTES);
/// The most donors that one put can be forwarded to.
pub const MAX_ROUTES: usize = 4;
/// The number of routes that a connection's donor remembers; the numbers of routes are below this.
pub const KNOWN_ROUTES: usize = 16;
/// The longest description of a route, in bytes.
pub const MAX_ROUTE: u32 = 2048;
/// The size of the buffer for heads of frames, which is also all that a peer who has proved nothing may fill.
pub const HEAD_BUFFER: usize = 4096;
/// The number of bytes that are moved at a time: a piece is received, hashed and written while it is warm in the cache.
pub const PIECE: usize = 256 << 10;

const MAGIC: u8 = 0xB1;
const OP_PUT: u8 = 1;
const OP_GET: u8 = 2;
const OP_ROUTE: u8 = 3;
const OP_STOP: u8 = 4;
const OP_DIAGNOSE: u8 = 5;

const _: () = assert!(HEADER + MAX_EXT + MAC <= HEAD_BUFFER);

/// The two keys of a connection.
#[derive(Debug, Clone)]
pub struct SessionKeys {
    /// The lane that authenticates what the client sends.
    pub client: Lane,
    /// The lane that authenticates what the donor sends.
    pub donor: Lane,
}

impl SessionKeys {
    /// Derives the keys from the ticket's secret and a nonce of each side. The nonces make every connection new, so
    /// that a recorded one cannot be played back.
    pub fn derive(secret: &Secret, client_nonce: &[u8; 16], donor_nonce: &[u8; 16]) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(secret.as_bytes());
        hasher.update(b"potluck 1 bulk").update(client_nonce).update(donor_nonce);
        let mut keys = [0; 64];
        hasher.finalize_xof().fill(&mut keys);
        let (client, donor) = keys.split_at(32);
        let lane = |key: &[u8]| Lane { key: key.try_into().expect("32 bytes"), next: 0 };
        Self { client: lane(client), donor: lane(donor) }
    }
}

/// One direction of a connection: a key and the number of the next frame.
#[derive(Clone)]
pub struct Lane {
    key: [u8; 32],
    next: u64,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lane(#{})", self.next)
    }
}

impl Lane {
    fn mac(&mut self, head: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&self.next.to_le_bytes()).update(head);
        self.next += 1;
        hasher.finalize()
    }

    fn sign(&mut self, head: &mut Vec<u8>) {
        let mac = self.mac(head);
        head.extend_from_slice(&mac.as_bytes()[..MAC]);
    }

    fn check(&mut self, head: &[u8], mac: &[u8]) -> Result<(), FrameError> {
        // The comparison takes constant time: the received half is widened to blake3's own equality.
        let expected = self.mac(head);
        let mut received = *expected.as_bytes();
        received[..MAC].copy_from_slice(mac);
        if expected == blake3::Hash::from_bytes(received) {
            Ok(())
        } else {
            Err(FrameError::Forged)
        }
    }
}

/// The reason why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The stream broke before the frame was whole.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// The stream ended inside a frame.
    #[error("the connection ended inside a frame")]
    Truncated,
    /// The bytes are not a frame, or are one that asks for the impossible.
    #[error("not a frame: {0}")]
    Malformed(&'static str),
    /// The MAC does not fit: no ticket, a changed frame, or one played back.
    #[error("a frame is not authentic")]
    Forged,
}

/// A request of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// The donor is to store the body as `name`.
    Put {
        /// The name that the body's bytes hash to.
        name: ChunkName,
        /// The ack level at which the donor answers.
        ack: AckLevel,
        /// The length of the body in bytes.
        len: u32,
        /// The kind of the chunk.
        kind: ChunkKind,
        /// The donors that the chunk is forwarded to.
        forward: Forward,
    },
    /// The donor is to learn, from the body, how to reach a donor that later puts are forwarded to. The body is JSON of
    /// a [`crate::control::Source`] whose ticket lets the bearer put, sealed ([`Lane::seal_body`]). The answer is a bare
    /// status.
    Route {
        /// The number of the route on this connection; a later route of the same number replaces it.
        number: u8,
        /// The length of the body in bytes.
        len: u32,
    },
    /// The donor is to send the stored chunk, or a part of it.
    Get {
        /// The name of the chunk.
        name: ChunkName,
        /// The part that is asked for; the whole chunk otherwise.
        part: Option<ChunkPart>,
    },
    /// The donor is to send no more of the answer to the get of the same tag. If that get was not begun yet, its answer
    /// is [`BulkStatus::Stopped`]; if it is under way, its body ends at the next mark between slices; and if it was
    /// done already, nothing changes. The stop itself has no answer.
    Stop,
    /// The donor is to throw the body away, and to answer with a body of zeros: a diagnostic transfer, by which the manager
    /// learns how fast a donor's line is. The body of the answer is in slices, as that of a get.
    Diagnose {
        /// The length of the body in bytes.
        len: u32,
        /// The length of the answer's body in bytes.
        wanted: u32,
    },
}

/// A part of a chunk: whole segments, which the proof of them for a reader who knows the chunk's name precedes
/// ([`potluck_core::merkle::TreeParts::proof`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkPart {
    /// The number of stored bytes before the part.
    pub offset: u32,
    /// The size of the part in stored bytes; never 0.
    pub len: u32,
}

impl ChunkPart {
    fn encode(&self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.offset.to_le_bytes());
        bytes[4..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; 8]) -> Option<Self> {
        let [offset, len] =
            [0, 4].map(|at| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")));
        (len > 0).then_some(Self { offset, len })
    }
}

/// The status of a request that a donor answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BulkStatus {
    /// The request was done.
    Ok = 0,
    /// The chunk is not at this donor.
    NotFound = 1,
    /// No lent space is left.
    Full = 2,
    /// The body was not the chunk it was said to be.
    Mismatch = 3,
    /// The ticket does not allow the request, or not any more; or the donor of a route was not confirmed.
    Denied = 4,
    /// The disk of the donor failed, or its copy does not have the part that was asked for.
    DiskFailed = 5,
    /// The donor is going down, or its lent directory is not there.
    Away = 6,
    /// The request waits for its turn, because the donor yields to its owner. The answer follows, maybe after more of
    /// these.
    Throttled = 7,
    /// The request was stopped before the donor began to answer it.
    Stopped = 8,
}

impl BulkStatus {
    fn from_byte(byte: u8) -> Option<Self> {
        [
            Self::Ok,
            Self::NotFound,
            Self::Full,
            Self::Mismatch,
            Self::Denied,
            Self::DiskFailed,
            Self::Away,
            Self::Throttled,
            Self::Stopped,
        ]
        .into_iter()
        .find(|status| *status as u8 == byte)
    }
}

/// The answer of a donor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// The status of the request: whether it was carried out.
    pub status: BulkStatus,
    /// The bytes of the body that follows. After a successful get these are the proof, if one was asked for, and then
    /// the bytes that were asked for.
    pub body: u32,
    /// The ack level at which the donor holds the chunk, and its proof, after a successful put.
    pub receipt: Option<(AckLevel, Receipt)>,
    /// The proofs of the other donors, after a put that was forwarded and waited for.
    pub forwarded: Forwarded,
    /// The bytes a second that the donor moves for others at most now, in whole KiB; `None` where there is no limit.
    pub limit: Option<u64>,
}

impl Reply {
    /// Makes an answer without body or receipt.
    pub fn bare(status: BulkStatus) -> Self {
        Self { status, body: 0, receipt: None, forwarded: Forwarded::default(), limit: None }
    }

    /// Makes the answer to a successful get.
    pub fn found(body: u32) -> Self {
        Self { body, ..Self::bare(BulkStatus::Ok) }
    }

    /// Makes the answer to a successful put.
    pub fn stored(ack: AckLevel, receipt: Receipt) -> Self {
        Self { receipt: Some((ack, receipt)), ..Self::bare(BulkStatus::Ok) }
    }
}

/// The place in an answer's header of its limit in KiB a second; 0 stands for none.
const LIMIT: Range<usize> = 12..16;

/// Returns a limit as it is sent. One of less than a KiB a second is still one.
fn limit_in_kib(limit: Option<u64>) -> u32 {
    limit.map_or(0, |bytes| u32::try_from(bytes >> 10).unwrap_or(u32::MAX).max(1))
}

fn head(kind: u8, ack: u8, tag: u32, body: u32, ext: &[&[u8]]) -> Vec<u8> {
    let ext_len: usize = ext.iter().map(|part| part.len()).sum();
    let mut head = Vec::with_capacity(HEADER + ext_len + MAC);
    head.extend_from_slice(&[MAGIC, kind, ack, ext_len as u8]);
    head.extend_from_slice(&tag.to_le_bytes());
    head.extend_from_slice(&body.to_le_bytes());
    head.extend_from_slice(&[0; 4]);
    ext.iter().for_each(|part| head.extend_from_slice(part));
    head
}

impl Request {
    /// Makes a put of data that is forwarded to nobody.
    pub fn put(name: ChunkName, ack: AckLevel, len: u32) -> Self {
        Self::Put { name, ack, len, kind: ChunkKind::Data, forward: Forward::NONE }
    }

    /// Returns the head of the frame of this request; the body of a put or a route follows it.
    pub fn encode(&self, tag: u32, lane: &mut Lane) -> Vec<u8> {
        let mut head = match self {
            Self::Put { name, ack, len, kind, forward } => {
                let extra = encode_extra(*kind, forward);
                head(OP_PUT, ack_byte(*ack), tag, *len, &[&name.0, &extra])
            }
            Self::Route { number, len } => head(OP_ROUTE, 0, tag, *len, &[&[*number]]),
            Self::Get { name, part } => {
                let part = part.as_ref().map(ChunkPart::encode);
                let part = part.as_ref().map_or(&[][..], |part| &part[..]);
                head(OP_GET, 0, tag, 0, &[&name.0, part])
            }
            Self::Stop => head(OP_STOP, 0, tag, 0, &[]),
            Self::Diagnose { len, wanted } => {
                head(OP_DIAGNOSE, 0, tag, *len, &[&wanted.to_le_bytes()])
            }
        };
        lane.sign(&mut head);
        head
    }

    fn decode(head: &Head) -> Result<Self, FrameError> {
        let (op, ack, body) = (head.bytes[1], head.bytes[2], head.body());
        if op == OP_ROUTE {
            return match *head.ext() {
                [number] if (1..=MAX_ROUTE).contains(&body) => {
                    Ok(Self::Route { number, len: body })
                }
                _ => Err(FrameError::Malformed("impossible route")),
            };
        }
        if op == OP_STOP {
            let is_bare = head.ext().is_empty() && body == 0;
            return is_bare.then_some(Self::Stop).ok_or(FrameError::Malformed("impossible stop"));
        }
        if op == OP_DIAGNOSE {
            let wanted = head.ext().try_into().ok().map(u32::from_le_bytes);
            let wanted = wanted.filter(|wanted| body.max(*wanted) <= MOST_DIAGNOSED);
            let bad = FrameError::Malformed("impossible diagnostic transfer");
            return wanted.map(|wanted| Self::Diagnose { len: body, wanted }).ok_or(bad);
        }
        let (name, extra) = head
            .ext()
            .split_at_checked(32)
            .ok_or(FrameError::Malformed("a request names one chunk"))?;
        let name = ChunkName(name.try_into().expect("32 bytes"));
        match op {
            OP_PUT if body == 0 || body > MAX_CHUNK => {
                Err(FrameError::Malformed("impossible chunk length"))
            }
            OP_PUT => {
                let ack = ack_from_byte(ack).ok_or(FrameError::Malformed("unknown ack level"))?;
                let (kind, forward) =
                    decode_extra(extra).ok_or(FrameError::Malformed("unknown kind of put"))?;
                Ok(Self::Put { name, ack, len: body, kind, forward })
            }
            OP_GET if body != 0 => Err(FrameError::Malformed("a get has no body")),
            OP_GET if extra.is_empty() => Ok(Self::Get { name, part: None }),
            OP_GET => {
                let part = <&[u8; 8]>::try_from(extra).ok().and_then(ChunkPart::decode);
                let part = part.ok_or(FrameError::Malformed("impossible part of a chunk"))?;
                Ok(Self::Get { name, part: Some(part) })
            }
            _ => Err(FrameError::Malformed("unknown operation")),
        }
    }
}

impl Reply {
    /// Returns the head of the frame of this answer; the body follows it.
    pub fn encode(&self, tag: u32, lane: &mut Lane) -> Vec<u8> {
        let sent = self.receipt.map(|(ack, receipt)| (ack_byte(ack), receipt.to_bytes()));
        let (ack, receipt) = sent.as_ref().map_or((0, &[][..]), |(ack, bytes)| (*ack, &bytes[..]));
        let others = self.forwarded.bytes();
        let mut head = head(self.status as u8, ack, tag, self.body, &[receipt, others]);
        head[LIMIT].copy_from_slice(&limit_in_kib(self.limit).to_le_bytes());
        lane.sign(&mut head);
        head
    }

    fn decode(head: &Head) -> Result<Self, FrameError> {
        let status = BulkStatus::from_byte(head.bytes[1]).ok_or(FrameError::Malformed("status"))?;
        if head.body() > MAX_CHUNK {
            return Err(FrameError::Malformed("impossible chunk length"));
        }
        let limit = match head.limit() {
            0 => None,
            kib => Some(u64::from(kib) << 10),
        };
        let bad = FrameError::Malformed("receipt");
        let (receipts, []) = head.ext().as_chunks::<{ Receipt::SIZE }>() else { return Err(bad) };
        let Some((first, others)) = receipts.split_first() else {
            return Ok(Self { status, limit, ..Self::found(head.body()) });
        };
        let ack = ack_from_byte(head.bytes[2]).ok_or(FrameError::Malformed("ack level"))?;
        let forwarded = Forwarded::from_bytes(others).ok_or(bad)?;
        let receipt = Some((ack, Receipt::from_bytes(first)));
        Ok(Self { status, body: head.body(), receipt, forwarded, limit })
    }
}

/// A header and extension that were checked.
struct Head {
    bytes: [u8; HEADER + MAX_EXT],
}

impl Head {
    fn ext(&self) -> &[u8] {
        &self.bytes[HEADER..HEADER + self.bytes[3] as usize]
    }
    fn tag(&self) -> u32 {
        u32::from_le_bytes(self.bytes[4..8].try_into().expect("4 bytes"))
    }
    fn body(&self) -> u32 {
        u32::from_le_bytes(self.bytes[8..12].try_into().expect("4 bytes"))
    }
    fn limit(&self) -> u32 {
        u32::from_le_bytes(self.bytes[LIMIT].try_into().expect("4 bytes"))
    }
}

/// The receiving side of a connection: heads are read through a small buffer, bodies straight
/// into the caller's.
pub struct Inbox {
    lane: Lane,
    buffer: Box<[u8; HEAD_BUFFER]>,
    start: usize,
    end: usize,
}

impl Inbox {
    /// Receives frames signed on `lane`; `early` are bytes of the stream that were read already
    /// (by the HTTP upgrade).
    pub fn new(lane: Lane, early: &[u8]) -> Result<Self, FrameError> {
        let mut buffer = Box::new([0; HEAD_BUFFER]);
        let room = buffer.get_mut(..early.len());
        room.ok_or(FrameError::Malformed("too much before the upgrade"))?.copy_from_slice(early);
        Ok(Self { lane, buffer, start: 0, end: early.len() })
    }

    /// Returns whether nothing was received that is still to be read.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Returns the next request and its tag; `None` at a clean end of the stream.
    pub async fn request(
        &mut self,
        io: &mut impl BulkIo,
    ) -> Result<Option<(u32, Request)>, FrameError> {
        let Some(head) = self.head(io).await? else { return Ok(None) };
        Ok(Some((head.tag(), Request::decode(&head)?)))
    }

    /// Returns the next request and its tag if it has come already, and no body follows it: what does is received in its
    /// turn. Nothing is waited for.
    pub fn request_now(
        &mut self,
        io: &mut impl BulkIo,
    ) -> Result<Option<(u32, Request)>, FrameError> {
        loop {
            let here = &self.buffer[self.start..self.end];
            if here.len() >= HEADER {
                if matches!(here[1], OP_PUT | OP_ROUTE | OP_DIAGNOSE) {
                    return Ok(None);
                }
                let whole = frame_len(here)?;
                if here.len() >= whole {
                    let head = self.take_head(whole)?;
                    return Ok(Some((head.tag(), Request::decode(&head)?)));
                }
            }
            self.make_room(HEADER + MAX_EXT + MAC);
            match io.read_now(&mut self.buffer[self.end..])? {
                0 => return Ok(None),
                read => self.end += read,
            }
        }
    }

    /// Returns the next answer and its tag if it has come already. Nothing is waited for; `None` at the end of the stream as well.
    pub fn reply_now(&mut self, io: &mut impl BulkIo) -> Result<Option<(u32, Reply)>, FrameError> {
        loop {
            let here = &self.buffer[self.start..self.end];
            if here.len() >= HEADER {
                let whole = frame_len(here)?;
                if here.len() >= whole {
                    let head = self.take_head(whole)?;
                    return Ok(Some((head.tag(), Reply::decode(&head)?)));
                }
            }
            self.make_room(HEADER + MAX_EXT + MAC);
            match io.read_now(&mut self.buffer[self.end..])? {
                0 => return Ok(None),
                read => self.end += read,
            }
        }
    }

    /// Returns the next answer and its tag; `None` at a clean end of the stream.
    pub async fn reply(
        &mut self,
        io: &mut impl BulkIo,
    ) -> Result<Option<(u32, Reply)>, FrameError> {
        let Some(head) = self.head(io).await? else { return Ok(None) };
        Ok(Some((head.tag(), Reply::decode(&head)?)))
    }

    /// Reads some bytes of the current frame's body, at most `out`, which must not be longer than what is left of the
    /// body; never returns 0 for a non-empty `out`.
    pub async fn body(
        &mut self,
        io: &mut impl BulkIo,
        out: &mut [u8],
    ) -> Result<usize, FrameError> {
        let early = &self.buffer[self.start..self.end];
        if !early.is_empty() {
            let n = early.len().min(out.len());
            out[..n].copy_from_slice(&early[..n]);
            self.start += n;
            return Ok(n);
        }
        match io.read(out).await? {
            0 if !out.is_empty() => Err(FrameError::Truncated),
            n => Ok(n),
        }
    }

    /// Reads one byte of the current frame's body.
    async fn byte(&mut self, io: &mut impl BulkIo) -> Result<u8, FrameError> {
        if !self.fill(io, 1).await? {
            return Err(FrameError::Truncated);
        }
        self.start += 1;
        Ok(self.buffer[self.start - 1])
    }

    async fn head(&mut self, io: &mut impl BulkIo) -> Result<Option<Head>, FrameError> {
        if !self.fill(io, HEADER).await? {
            return Ok(None);
        }
        let whole = frame_len(&self.buffer[self.start..self.end])?;
        if !self.fill(io, whole).await? {
            return Err(FrameError::Truncated);
        }
        Ok(Some(self.take_head(whole)?))
    }

    /// Checks and takes the frame of `whole` bytes, which are in the buffer.
    fn take_head(&mut self, whole: usize) -> Result<Head, FrameError> {
        let frame = &self.buffer[self.start..self.start + whole];
        let (text, mac) = frame.split_at(whole - MAC);
        self.lane.check(text, mac)?;
        let mut head = Head { bytes: [0; HEADER + MAX_EXT] };
        head.bytes[..text.len()].copy_from_slice(text);
        self.start += whole;
        Ok(head)
    }

    /// Makes `want` bytes available; returns false at an end of the stream before the first of them.
    async fn fill(&mut self, io: &mut impl BulkIo, want: usize) -> Result<bool, FrameError> {
        self.make_room(want);
        while self.end - self.start < want {
            let n = io.read(&mut self.buffer[self.end..]).await?;
            match n {
                0 if self.end == self.start => return Ok(false),
                0 => return Err(FrameError::Truncated),
                n => self.end += n,
            }
        }
        Ok(true)
    }

    /// Moves what is left in the buffer to its start if `want` bytes from there on would not fit.
    fn make_room(&mut self, want: usize) {
        if self.start + want > HEAD_BUFFER {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }
}

/// Returns the length of a frame with its code and without its body; at least its header is here.
fn frame_len(frame: &[u8]) -> Result<usize, FrameError> {
    let ext = frame[3] as usize;
    if frame[0] != MAGIC || ext > MAX_EXT {
        return Err(FrameError::Malformed("no frame starts like this"));
    }
    Ok(HEADER + ext + MAC)
}

#[cfg(test)]
mod tests;
