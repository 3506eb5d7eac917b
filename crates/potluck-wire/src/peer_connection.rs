//! A peer connection is a plain bulk connection, with one request and then its answer. Donors use it to fetch from each
//! other, and the manager for its metadata log and to look at copies in doubt: they move few chunks at a time. The
//! client has a pipelined connection of its own.

use crate::addresses::Addresses;
use crate::bulk::{
    BulkIo, BulkStatus, ChunkPart, Forward, FrameError, PIECE, ReadBody, Reply, Request, SlicedBody,
};
use crate::net::Net;
use crate::ticket::{Receipt, Ticket};
use crate::upgrade::{self, OpenedBulk, UpgradeError};
use potluck_core::chunk::{ChunkKind, ChunkName, Verifier, verify_segments};
use potluck_core::entropy::Entropy;
use potluck_core::hedging::{STALL_TIMEOUT, THROTTLED_TIMEOUT};
use potluck_core::merkle::{SEGMENT, proof_len, segment_count};
use potluck_core::policy::AckLevel;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The bytes a second below which a whole get is given up, though some bytes come again and again: at this rate a chunk
/// of the default size takes half a minute.
const SLOWEST: u32 = 128 << 10;

/// The number of times that a donor may say of one request that it waits for a turn: those of about two minutes.
const MOST_THROTTLED: u32 = 60;

/// One connection to one donor.
pub struct PeerConnection {
    opened: OpenedBulk,
    tag: u32,
    /// The body of the last answer.
    body: SlicedBody,
    /// Whether the donor said of the request under way that it waits for its turn.
    waits_for_turn: Arc<AtomicBool>,
    /// An answer that came while the request was still being sent.
    early: Option<Reply>,
}

/// The reason why a donor did not do what it was asked. After any but [`PeerError::Refused`] the connection is of no
/// more use.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// No bulk connection could be opened: nothing answers, the donor refused the ticket, or what answers is no donor.
    #[error(transparent)]
    Open(#[from] UpgradeError),
    /// The connection broke, or what came was no answer.
    #[error(transparent)]
    Broken(#[from] FrameError),
    /// The donor was silent for too long.
    #[error("it does not answer")]
    Silent,
    /// The donor refused the request.
    #[error("it refused: {0:?}")]
    Refused(BulkStatus),
    /// The donor sent bytes that are not the chunk.
    #[error("it sent bytes that are not the chunk")]
    WrongBytes,
}

impl PeerConnection {
    /// Connects to the donor at one of its `addresses` under `ticket`.
    pub async fn open(
        net: &dyn Net,
        entropy: &dyn Entropy,
        addresses: &Addresses,
        ticket: &Ticket,
    ) -> Result<Self, PeerError> {
        Ok(Self::over(upgrade::open(net, entropy, addresses, ticket).await?))
    }

    fn over(opened: OpenedBulk) -> Self {
        let (waits_for_turn, early) = Default::default();
        Self { opened, tag: 0, body: SlicedBody::new(0), waits_for_turn, early }
    }

    /// Fetches the chunk `name` of `len` stored bytes, and verifies it.
    pub async fn get(&mut self, name: ChunkName, len: u32) -> Result<Vec<u8>, PeerError> {
        let mut bytes = Vec::with_capacity(len as usize);
        self.check(name, len, |piece| bytes.extend_from_slice(piece)).await?;
        Ok(bytes)
    }

    /// Has the donor send the chunk `name` of `len` stored bytes, calls `each` with every piece of it as it comes, and
    /// verifies the whole at the end.
    pub async fn check(
        &mut self,
        name: ChunkName,
        len: u32,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), PeerError> {
        within(len, async {
            self.begin_get(name, len).await?;
            let mut verifier = Verifier::new(name);
            let mut piece = vec![0; PIECE.min(len as usize)];
            let mut left = len as usize;
            while left > 0 {
                let piece = &mut piece[..PIECE.min(left)];
                self.read(piece).await?;
                verifier.update(piece);
                each(piece);
                left -= piece.len();
            }
            verifier.finish().map(drop).map_err(|_| PeerError::WrongBytes)
        })
        .await
    }

    /// Has the donor send one segment of the chunk `name` of `len` stored bytes, and verifies it by the name.
    pub async fn check_segment(
        &mut self,
        name: ChunkName,
        len: u32,
        segment: usize,
    ) -> Result<(), PeerError> {
        let offset = segment as u32 * SEGMENT;
        let part = ChunkPart { offset, len: SEGMENT.min(len.saturating_sub(offset)) };
        let range = segment..segment + 1;
        let proof_len = proof_len(segment_count(len.into()) as usize, &range);
        within(part.len, async {
            let mut body = vec![0; proof_len + part.len as usize];
            let reply = self.ask(Request::Get { name, part: Some(part) }, &[]).await?;
            if reply.body as usize != body.len() {
                return Err(PeerError::WrongBytes);
            }
            self.read(&mut body).await?;
            let (proof, bytes) = body.split_at(proof_len);
            let proved = verify_segments(&name, len, &range, bytes, proof);
            proved.then_some(()).ok_or(PeerError::WrongBytes)
        })
        .await
    }

    /// Asks for the chunk `name` of `len` stored bytes, all of which are to be [`read`](Self::read)
    /// before anything else is asked.
    pub async fn begin_get(&mut self, name: ChunkName, len: u32) -> Result<(), PeerError> {
        let reply = self.ask(Request::Get { name, part: None }, &[]).await?;
        if reply.body == len { Ok(()) } else { Err(PeerError::WrongBytes) }
    }

    /// Fills `out` with the next bytes of the chunk that was asked for, unverified.
    pub async fn read(&mut self, out: &mut [u8]) -> Result<(), PeerError> {
        let mut filled = 0;
        while filled < out.len() {
            let OpenedBulk { io, inbox, .. } = &mut self.opened;
            match unless_stalled(self.body.read(inbox, io, &mut out[filled..])).await? {
                ReadBody::Bytes(read) => filled += read,
                ReadBody::Stopped => return Err(PeerError::Refused(BulkStatus::Stopped)),
            }
        }
        Ok(())
    }

    /// Stores `bytes` as `name`.
    pub async fn put(
        &mut self,
        name: ChunkName,
        ack: AckLevel,
        kind: ChunkKind,
        bytes: &[u8],
    ) -> Result<Receipt, PeerError> {
        let put = Request::Put { name, ack, len: bytes.len() as u32, kind, forward: Forward::NONE };
        receipt_of(self.ask(put, bytes).await?)
    }

    /// Begins to store a chunk of `len` bytes, all of which are to be [`written`](Self::write)
    /// before [`finish_put`](Self::finish_put).
    pub async fn begin_put(
        &mut self,
        name: ChunkName,
        ack: AckLevel,
        kind: ChunkKind,
        len: u32,
    ) -> Result<(), PeerError> {
        let put = Request::Put { name, ack, len, kind, forward: Forward::NONE };
        self.send(put, &[]).await
    }

    /// Sends the next bytes of the chunk that is being stored. A donor that yields to its owner takes them late.
    pub async fn write(&mut self, piece: &[u8]) -> Result<(), PeerError> {
        let OpenedBulk { io, inbox, .. } = &mut self.opened;
        if self.early.is_none()
            && let Some((answered, reply)) = inbox.reply_now(io)?
            && answered == self.tag
        {
            match reply.status {
                BulkStatus::Throttled => self.waits_for_turn.store(true, Ordering::Relaxed),
                _ => self.early = Some(reply),
            }
        }
        let stall_timeout = match self.waits_for_turn.load(Ordering::Relaxed) {
            true => THROTTLED_TIMEOUT,
            false => STALL_TIMEOUT,
        };
        let written = tokio::time::timeout(stall_timeout, io.write(&[], piece)).await;
        Ok(written.map_err(|_| PeerError::Silent)?.map_err(FrameError::from)?)
    }

    /// Returns a flag that is set while the donor says of the request under way that it waits for its turn.
    pub fn waits_for_turn(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.waits_for_turn)
    }

    /// Waits until the donor has stored the chunk whose bytes were all written, and returns its receipt.
    pub async fn finish_put(&mut self) -> Result<Receipt, PeerError> {
        receipt_of(self.answer().await?)
    }

    /// Has the donor throw `len` bytes away and send `wanted` others, of which nothing is kept either.
    ///
    /// Errors: [`PeerError::Refused`] while the donor yields to its owner.
    pub async fn diagnose(&mut self, len: u32, wanted: u32) -> Result<(), PeerError> {
        let mut piece = vec![0; PIECE.min(len.max(wanted) as usize)];
        self.send(Request::Diagnose { len, wanted }, &[]).await?;
        let mut left = len as usize;
        while left > 0 {
            let now = left.min(piece.len());
            self.write(&piece[..now]).await?;
            left -= now;
        }
        if self.answer().await?.body != wanted {
            return Err(PeerError::WrongBytes);
        }
        left = wanted as usize;
        while left > 0 {
            let now = left.min(piece.len());
            self.read(&mut piece[..now]).await?;
            left -= now;
        }
        Ok(())
    }

    async fn ask(&mut self, request: Request, body: &[u8]) -> Result<Reply, PeerError> {
        self.send(request, body).await?;
        self.answer().await
    }

    async fn send(&mut self, request: Request, body: &[u8]) -> Result<(), PeerError> {
        self.tag = self.tag.wrapping_add(1);
        self.early = None;
        self.waits_for_turn.store(false, Ordering::Relaxed);
        let OpenedBulk { io, lane, .. } = &mut self.opened;
        let head = request.encode(self.tag, lane);
        unless_stalled(async { Ok(io.write(&head, body).await?) }).await
    }

    async fn answer(&mut self) -> Result<Reply, PeerError> {
        let OpenedBulk { io, inbox, .. } = &mut self.opened;
        let mut throttled = 0;
        loop {
            let next = match self.early.take() {
                Some(reply) => Some((self.tag, reply)),
                None => unless_stalled(inbox.reply(io)).await?,
            };
            match next {
                Some((answered, reply)) if answered == self.tag => match reply.status {
                    BulkStatus::Ok => {
                        self.body = SlicedBody::new(reply.body);
                        return Ok(reply);
                    }
                    // The donor yields to its owner and says so, but not for ever.
                    BulkStatus::Throttled if throttled < MOST_THROTTLED => {
                        throttled += 1;
                        self.waits_for_turn.store(true, Ordering::Relaxed);
                    }
                    refused => return Err(PeerError::Refused(refused)),
                },
                Some(_) => return Err(FrameError::Malformed("an answer out of turn").into()),
                None => return Err(FrameError::Truncated.into()),
            }
        }
    }
}

fn receipt_of(reply: Reply) -> Result<Receipt, PeerError> {
    match reply.receipt {
        Some((_, receipt)) => Ok(receipt),
        None => Err(FrameError::Malformed("a stored chunk without a receipt").into()),
    }
}

/// Gives up what takes longer than `len` bytes may take, though some come again and again.
async fn within<T>(
    len: u32,
    work: impl Future<Output = Result<T, PeerError>>,
) -> Result<T, PeerError> {
    let most = STALL_TIMEOUT + Duration::from_secs((len / SLOWEST).into());
    tokio::time::timeout(most, work).await.unwrap_or(Err(PeerError::Silent))
}

async fn unless_stalled<T>(
    work: impl Future<Output = Result<T, FrameError>>,
) -> Result<T, PeerError> {
    match tokio::time::timeout(STALL_TIMEOUT, work).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(PeerError::Silent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::{Inbox, SessionKeys, StreamIo};
    use crate::net::{BoxStream, Detached, Stream};
    use crate::ticket::Secret;
    use tokio::io::{AsyncWriteExt, DuplexStream};

    impl Stream for DuplexStream {
        fn detach(self: Box<Self>) -> std::io::Result<Detached> {
            Ok(Detached::Stream(self))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_get_ends_though_a_byte_comes_again_and_again_a2() {
        let keys = || SessionKeys::derive(&Secret::from_bytes([1; 32]), &[2; 16], &[3; 16]);
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let near: BoxStream = Box::new(near);
        let inbox = Inbox::new(keys().donor, &[]).expect("nothing yet");
        let opened = OpenedBulk { io: StreamIo(near), inbox, lane: keys().client };
        let mut connection = PeerConnection::over(opened);
        let len = 4 << 20;
        tokio::spawn(async move {
            let head = Reply::found(len).encode(1, &mut keys().donor);
            far.write_all(&head).await.expect("sent");
            while far.write_all(&[0]).await.is_ok() {
                tokio::time::sleep(STALL_TIMEOUT / 2).await;
            }
        });
        let began = tokio::time::Instant::now();
        let got = connection.get(ChunkName::of(b"never whole"), len).await;
        assert!(matches!(got, Err(PeerError::Silent)), "{got:?}");
        assert!(began.elapsed() <= Duration::from_secs(60), "{:?}", began.elapsed());
    }
}
