//! The receiving half of a link: answers come in the order of the requests, and whole chunks are verified as they come.

use super::{Body, ChunkRequest, LinkError, Owed, PutResult, Received, Seal, StoredPut, gone};
use crate::buffer::{Buffer, Buffers};
use potluck_core::chunk::{ChunkName, Verifier};
use potluck_core::hedging::{LEAST_RECEIVED, LEAST_TAKEN, STALL_TIMEOUT, THROTTLED_TIMEOUT};
use potluck_core::merkle::SEGMENT;
use potluck_wire::bulk::{
    BulkStatus, FrameError, HEADER, Inbox, MAC, ReadBody, Reply, SLICE, SlicedBody, StreamIo,
};
use potluck_wire::net::KernelSide;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// The time that the link waits for bytes that should have arrived already.
const MOMENT: Duration = Duration::from_millis(10);

/// The number of times that a donor may say of one request that it waits for its turn: those of about ten minutes, for
/// which its tickets hold.
const MOST_THROTTLED: u32 = 300;

/// The longest body that is waited for together with the head before it, for [`MOMENT`] at most, so that a reader of
/// small parts is woken once for each answer.
const TOGETHER: u32 = 2 * SEGMENT;

/// The number of bytes of a chunk that are received before they are hashed. Of 256 KiB to 2 MiB, 1 and 2 MiB cost
/// least here: there are few wake-ups, and the bytes are still in the cache when they are hashed. It is whole segments,
/// each of which is opened by itself, and a slice, so that the mark after it is read with the next piece.
const PIECE: usize = 16 * SEGMENT as usize;
const _: () = assert!(PIECE == SLICE as usize);

/// The receiving half of a link.
pub(super) struct Incoming<R> {
    pub io: StreamIo<R>,
    pub inbox: Inbox,
    pub kernel: KernelSide,
    /// The number of bytes that the sending half has written.
    pub written: Arc<AtomicU64>,
    /// The number of bytes that were read, where a head counts as one.
    pub read: Arc<AtomicU64>,
    pub buffers: Buffers,
    pub told: LimitTold,
}

/// What the donor said last of its limit, and who is told of it.
pub(super) struct LimitTold {
    /// The bytes a second that the donor moves at most; `None` for no limit.
    pub limit: Option<u64>,
    pub tell: Box<dyn FnMut(Option<u64>) + Send>,
}

impl LimitTold {
    /// Notes a limit. One that is told again is news, for its word holds for a while only.
    fn told(&mut self, limit: Option<u64>) {
        if limit.is_some() || self.limit.is_some() {
            (self.tell)(limit);
        }
        self.limit = limit;
    }

    /// Returns `stall`, or the longer time that a donor has that yields to its owner.
    fn stall_timeout(&self, stall: Duration) -> Duration {
        if self.limit.is_some() { stall.max(THROTTLED_TIMEOUT) } else { stall }
    }
}

impl<R: AsyncRead + AsyncWrite + Send + Unpin> Incoming<R> {
    pub async fn receive(mut self, mut owed: mpsc::UnboundedReceiver<(Owed, u64)>) {
        let mut tag = 0;
        while let Some((owed, end)) = owed.recv().await {
            let stall = match owed {
                // The donor itself waits as long for others as this client waits for it.
                Owed::Put { forwarded: true, .. } => 2 * STALL_TIMEOUT,
                _ => STALL_TIMEOUT,
            };
            let whole = match &owed {
                Owed::Get { asked, .. } if asked.bytes() <= TOGETHER => {
                    HEADER + MAC + asked.proof_len() + asked.bytes() as usize
                }
                _ => 1,
            };
            let answer = match self.final_reply(tag, end, stall, whole).await {
                Ok(Some((answered, reply))) if answered == tag => Ok(reply),
                Ok(Some(_)) => Err(LinkError::Away("answered out of turn".into())),
                Ok(None) => Err(gone()),
                Err(away) => Err(away),
            };
            tag = tag.wrapping_add(1);
            self.read.fetch_add(1, Ordering::Relaxed);
            let goes_on = match owed {
                Owed::Put { done, .. } => settle_put(done, answer),
                // A route that was refused shows in the puts that use it.
                Owed::Route => answer.is_ok(),
                Owed::Get { asked, done } => self.settle_get(asked, done, answer).await,
            };
            if !goes_on {
                return; // dropping the owed answers tells all callers that wait for them
            }
        }
    }

    /// Receives the next answer that is more than the word that a request waits for its turn. A donor that says so for too
    /// long is given up.
    async fn final_reply(
        &mut self,
        tag: u32,
        end: u64,
        stall: Duration,
        whole: usize,
    ) -> Result<Option<(u32, Reply)>, LinkError> {
        let mut throttled = 0;
        loop {
            let reply = self.reply(end, self.told.stall_timeout(stall), whole).await?;
            self.told.told(reply.as_ref().and_then(|(_, reply)| reply.limit));
            match &reply {
                Some((answered, Reply { status: BulkStatus::Throttled, .. }))
                    if *answered == tag && throttled < MOST_THROTTLED =>
                {
                    throttled += 1;
                }
                _ => return Ok(reply),
            }
        }
    }

    /// Receives the head of the next answer, whose request ends at byte `end` of all that is sent; `None` where the
    /// donor closed the connection. While the donor takes what is sent, it need not answer: over a slow line a chunk
    /// takes longer than any timeout. For [`MOMENT`] all `whole` bytes of an answer are waited for at once; after that
    /// any byte will do, since the answer may be a refusal, which is shorter.
    async fn reply(
        &mut self,
        end: u64,
        stall: Duration,
        whole: usize,
    ) -> Result<Option<(u32, Reply)>, LinkError> {
        let broken = |broken: FrameError| LinkError::Away(broken.to_string());
        if whole > 1 {
            let reply = woken_at(&mut self.kernel, whole, self.inbox.reply(&mut self.io));
            if let Ok(reply) = tokio::time::timeout(MOMENT, reply).await {
                return reply.map_err(broken);
            }
        }
        let mut taken = self.taken();
        loop {
            // An answer that is there already is read at once; to wait for it would have the kernel wake another
            // thread.
            let reply = woken_at(&mut self.kernel, 1, self.inbox.reply(&mut self.io));
            if let Ok(reply) = tokio::time::timeout(stall, reply).await {
                return reply.map_err(broken);
            }
            let before = std::mem::replace(&mut taken, self.taken());
            let took = taken.saturating_sub(before);
            // A donor that has just taken the rest of the request, however little that was, has the whole time for its
            // answer.
            let whole = before < end && end <= taken;
            if took == 0 {
                return Err(LinkError::Away(format!("has not answered for {stall:?}")));
            }
            if took < LEAST_TAKEN && !whole {
                return Err(LinkError::Away(format!("took {took} bytes in {stall:?}")));
            }
        }
    }

    /// Returns the number of sent bytes that the donor's machine has taken.
    fn taken(&self) -> u64 {
        self.written.load(Ordering::Relaxed).saturating_sub(self.kernel.untaken())
    }

    async fn settle_get(
        &mut self,
        asked: ChunkRequest,
        mut done: oneshot::Sender<Received>,
        answer: Result<Reply, LinkError>,
    ) -> bool {
        let reply = match answer {
            Ok(reply) => reply,
            Err(error) => {
                let _ = done.send(Err(error));
                return false;
            }
        };
        if reply.status != BulkStatus::Ok {
            let _ = done.send(Err(LinkError::Refused(reply.status)));
            return true;
        }
        let (len, proof_len) = (asked.bytes() as usize, asked.proof_len());
        if reply.body as usize != proof_len + len {
            // A chunk has one length, so the body that follows is not the chunk and not worth reading.
            let _ = done.send(Err(LinkError::WrongBytes));
            return false;
        }
        let buffer = self.buffers.claim(len).await.buffer(len);
        let body = self.body(buffer, &asked, &mut done).await;
        let goes_on = !matches!(body, Err(LinkError::Away(_)));
        let _ = done.send(body); // the caller of a hedged get that came second is gone
        goes_on
    }

    /// Receives the body of an answer, and verifies a whole chunk; a part is left to its reader. Each piece is opened and
    /// hashed while it is in the cache. What is sealed is opened first and proved by the digest of its plaintext, which
    /// proves the opening, too.
    async fn body(
        &mut self,
        mut buffer: Buffer,
        asked: &ChunkRequest,
        done: &mut oneshot::Sender<Received>,
    ) -> Received {
        let mut hashes = vec![0; asked.proof_len()];
        let mut body = SlicedBody::new((hashes.len() + buffer.len()) as u32);
        self.fill(&mut body, &mut hashes, done).await?;
        let seal = asked.seal.as_ref().filter(|_| asked.part.is_none());
        let name = seal.map_or(asked.name, |seal| ChunkName(seal.digest.0));
        let cipher = seal.map(Seal::cipher);
        let mut verifier = asked.part.is_none().then(|| Verifier::new(name));
        let mut filled = 0;
        while filled < buffer.len() {
            let piece = filled..(filled + PIECE).min(buffer.len());
            self.fill(&mut body, &mut buffer[piece.clone()], done).await?;
            let bytes = &mut buffer.bytes_mut()[piece.clone()];
            cipher.iter().for_each(|cipher| cipher.apply(filled as u32 / SEGMENT, bytes));
            verifier.iter_mut().for_each(|verifier| verifier.update(bytes));
            filled = piece.end;
        }
        let Some(verifier) = verifier else { return Ok(Body::Segments(buffer, hashes)) };
        verifier.finish().map(|_| Body::Verified(buffer)).map_err(|_| LinkError::WrongBytes)
    }

    /// Fills `out` from the body of the answer that `done` waits for.
    ///
    /// Errors: [`LinkError::Away`] also for a donor that sends less than [`LEAST_RECEIVED`] in its stall timeout, and
    /// [`BulkStatus::Stopped`] where the body was stopped.
    async fn fill(
        &mut self,
        body: &mut SlicedBody,
        out: &mut [u8],
        done: &mut oneshot::Sender<Received>,
    ) -> Result<(), LinkError> {
        let (mut filled, mut before) = (0, 0);
        let stall = self.told.stall_timeout(STALL_TIMEOUT);
        let mut deadline = Instant::now() + stall;
        let mut is_awaited = !done.is_closed();
        while filled < out.len() {
            let left = out.len() - filled;
            // After a get was stopped its body may end at the next mark, and no more bytes come.
            let enough = if is_awaited { left } else { 1 };
            if enough > TOGETHER as usize {
                // The mark is set before the first read, for one left from before wakes for each packet, which
                // was 0.07 s of CPU for each GiB. For less than this the call costs more than it saves.
                self.kernel.wake_at(enough);
            }
            let read = body.read(&mut self.inbox, &mut self.io, &mut out[filled..]);
            let read = woken_at(&mut self.kernel, enough, read);
            let mut read = tokio::select! {
                biased;
                read = tokio::time::timeout_at(deadline, read) => read,
                () = done.closed(), if is_awaited => {
                    is_awaited = false;
                    continue;
                }
            };
            if read.is_err() {
                // The bytes that are there may not reach the mark; they count all the same.
                self.kernel.wake_at(1);
                let read_now = body.read(&mut self.inbox, &mut self.io, &mut out[filled..]);
                read = tokio::time::timeout(MOMENT, read_now).await;
            }
            if let Ok(read) = read {
                match read.map_err(|error| LinkError::Away(error.to_string()))? {
                    ReadBody::Bytes(read) => {
                        self.read.fetch_add(read as u64, Ordering::Relaxed);
                        filled += read;
                    }
                    ReadBody::Stopped => return Err(LinkError::Refused(BulkStatus::Stopped)),
                }
            }
            if Instant::now() >= deadline && filled < out.len() {
                if filled - before < LEAST_RECEIVED {
                    let came = filled - before;
                    return Err(LinkError::Away(format!("sent {came} bytes in {stall:?}")));
                }
                (before, deadline) = (filled, Instant::now() + stall);
            }
        }
        Ok(())
    }
}

/// Runs `read`; where it has to wait, it is woken only when `bytes` are there.
async fn woken_at<T>(kernel: &mut KernelSide, bytes: usize, read: impl Future<Output = T>) -> T {
    let mut read = std::pin::pin!(read);
    if let Poll::Ready(done) = futures_util::poll!(read.as_mut()) {
        return done;
    }
    kernel.wake_at(bytes);
    read.await
}

fn settle_put(done: oneshot::Sender<PutResult>, answer: Result<Reply, LinkError>) -> bool {
    let goes_on = answer.is_ok();
    let result = answer.and_then(|reply| match reply {
        Reply { status: BulkStatus::Ok, receipt: Some((ack, receipt)), forwarded, .. } => {
            Ok(StoredPut { ack, receipt, forwarded: forwarded.receipts().collect() })
        }
        Reply { status, .. } => Err(LinkError::Refused(status)),
    });
    let _ = done.send(result); // the caller may have given up
    goes_on
}
