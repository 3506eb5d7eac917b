//! The receiving half of a link: answers in the order of the questions, chunks verified as they come.

use super::{GetResult, LinkError, Owed, Proof, PutResult, Stored, Wanted, gone};
use crate::buffer::{Buffer, Buffers};
use potluck_core::chunk::{Verifier, verify_segments};
use potluck_core::hedging::{LEAST_RECEIVED, LEAST_TAKEN, STALL_TIMEOUT};
use potluck_core::seal::{Meaning, sealed_segments};
use potluck_wire::bulk::{Inbox, Reply, Status, StreamIo};
use potluck_wire::net::KernelSide;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// For what has already arrived.
const MOMENT: Duration = Duration::from_millis(10);

/// Bytes of a chunk that are received before they are hashed. Of 256 KiB to 2 MiB, 1 and 2 MiB cost
/// least here: few wake-ups, and still in the cache when they are hashed.
const PIECE: usize = 1 << 20;

/// The receiving half of a link.
pub(super) struct Incoming<R> {
    pub io: StreamIo<R>,
    pub inbox: Inbox,
    pub kernel: KernelSide,
    /// The number of bytes that the sending half has written.
    pub written: Arc<AtomicU64>,
    pub buffers: Buffers,
}

impl<R: AsyncRead + AsyncWrite + Send + Unpin> Incoming<R> {
    pub async fn receive(mut self, mut owed: mpsc::UnboundedReceiver<(Owed, u64)>) {
        let mut tag = 0;
        while let Some((owed, end)) = owed.recv().await {
            let stall = match owed {
                // Its donor waits as long for others as we wait for it.
                Owed::Put { forwarded: true, .. } => 2 * STALL_TIMEOUT,
                _ => STALL_TIMEOUT,
            };
            let answer = match self.reply(end, stall).await {
                Ok(Some((answered, reply))) if answered == tag => Ok(reply),
                Ok(Some(_)) => Err(LinkError::Away("answered out of turn".into())),
                Ok(None) => Err(gone()),
                Err(away) => Err(away),
            };
            tag = tag.wrapping_add(1);
            let goes_on = match owed {
                Owed::Put { done, .. } => settle_put(done, answer),
                // A route that was refused shows in the puts that use it.
                Owed::Route => answer.is_ok(),
                Owed::Get { wanted, done } => self.settle_get(wanted, done, answer).await,
            };
            if !goes_on {
                return; // dropping what is still owed tells everybody who waits
            }
        }
    }

    /// The next answer, to the request that ends at `end` of all that is sent. While the donor takes
    /// what we send, it need not answer: over a slow line a chunk takes longer than any timeout.
    async fn reply(
        &mut self,
        end: u64,
        stall: Duration,
    ) -> Result<Option<(u32, Reply)>, LinkError> {
        self.kernel.wake_at(1);
        let mut taken = self.taken();
        loop {
            let reply = self.inbox.reply(&mut self.io);
            if let Ok(reply) = tokio::time::timeout(stall, reply).await {
                return reply.map_err(|broken| LinkError::Away(broken.to_string()));
            }
            let before = std::mem::replace(&mut taken, self.taken());
            let took = taken.saturating_sub(before);
            // Who has a request whole has as long for the answer, whatever it was that came last.
            let whole = before < end && end <= taken;
            if took == 0 {
                return Err(LinkError::Away(format!("has not answered for {stall:?}")));
            }
            if took < LEAST_TAKEN && !whole {
                return Err(LinkError::Away(format!("took {took} bytes in {stall:?}")));
            }
        }
    }

    /// Bytes of ours that the donor's machine has taken.
    fn taken(&self) -> u64 {
        self.written.load(Ordering::Relaxed).saturating_sub(self.kernel.untaken())
    }

    async fn settle_get(
        &mut self,
        wanted: Wanted,
        done: oneshot::Sender<GetResult>,
        answer: Result<Reply, LinkError>,
    ) -> bool {
        let reply = match answer {
            Ok(reply) => reply,
            Err(error) => {
                let _ = done.send(Err(error));
                return false;
            }
        };
        if reply.status != Status::Ok {
            let _ = done.send(Err(LinkError::Refused(reply.status)));
            return true;
        }
        let (len, proof_len) = (wanted.bytes() as usize, wanted.proof_len());
        if reply.body as usize != proof_len + len {
            // A chunk has one length. The body that follows is not worth reading.
            let _ = done.send(Err(LinkError::WrongBytes));
            return false;
        }
        let mut buffer = self.buffers.claim(len).await.buffer(len);
        match self.body(&mut buffer, &wanted).await {
            Ok(verified) => {
                // Nobody waits for a hedged get that came second.
                let _ = done.send(verified.map(|()| buffer).ok_or(LinkError::WrongBytes));
                true
            }
            Err(error) => {
                let _ = done.send(Err(error));
                false
            }
        }
    }

    /// Receives a body; `None` if it is not what was wanted.
    async fn body(
        &mut self,
        buffer: &mut Buffer,
        wanted: &Wanted,
    ) -> Result<Option<()>, LinkError> {
        let mut hashes = vec![0; wanted.proof_len()];
        self.fill(&mut hashes).await?;
        let whole = wanted.part.is_none() && !matches!(wanted.proof, Proof::Seal(..));
        let mut verifier = whole.then(|| Verifier::new(wanted.name));
        let mut filled = 0;
        while filled < buffer.len() {
            let piece = filled..(filled + PIECE).min(buffer.len());
            self.fill(&mut buffer[piece.clone()]).await?;
            verifier.iter_mut().for_each(|verifier| verifier.update(&buffer[piece.clone()]));
            filled = piece.end;
        }
        if let Some(verifier) = verifier {
            return Ok(verifier.finish().ok().map(drop));
        }
        let good = match (&wanted.proof, wanted.proven_segments()) {
            (Proof::Seal(key, digest), _) => {
                let all = 0..wanted.len;
                let part = sealed_segments(wanted.part.as_ref().unwrap_or(&all));
                let count = sealed_segments(&all).end;
                key.open_part(Meaning::Chunk, digest, &part, count, buffer.bytes_mut()).is_ok()
            }
            (Proof::Name, Some(segments)) => {
                verify_segments(&wanted.name, wanted.len, &segments, buffer, &hashes)
            }
            (Proof::Name, None) => false, // no reader asks for a part that cannot be proved
            (Proof::Rebuilt, _) => true,
        };
        Ok(good.then_some(()))
    }

    /// Fills `out` from the body.
    async fn fill(&mut self, out: &mut [u8]) -> Result<(), LinkError> {
        let (mut filled, mut before) = (0, 0);
        let mut deadline = Instant::now() + STALL_TIMEOUT;
        while filled < out.len() {
            if !self.inbox.has_bytes() {
                self.kernel.wake_at(out.len() - filled);
            }
            let read = self.inbox.body(&mut self.io, &mut out[filled..]);
            let mut read = tokio::time::timeout_at(deadline, read).await;
            if read.is_err() {
                // The bytes that are there may not reach the mark; they count all the same.
                self.kernel.wake_at(1);
                let read_now = self.inbox.body(&mut self.io, &mut out[filled..]);
                read = tokio::time::timeout(MOMENT, read_now).await;
            }
            if let Ok(read) = read {
                filled += read.map_err(|error| LinkError::Away(error.to_string()))?;
            }
            if Instant::now() >= deadline && filled < out.len() {
                if filled - before < LEAST_RECEIVED {
                    let came = filled - before;
                    return Err(LinkError::Away(format!("sent {came} bytes in {STALL_TIMEOUT:?}")));
                }
                (before, deadline) = (filled, Instant::now() + STALL_TIMEOUT);
            }
        }
        Ok(())
    }
}

fn settle_put(done: oneshot::Sender<PutResult>, answer: Result<Reply, LinkError>) -> bool {
    let goes_on = answer.is_ok();
    let result = answer.and_then(|reply| match reply {
        Reply { status: Status::Ok, receipt: Some((ack, receipt)), forwarded, .. } => {
            Ok(Stored { ack, receipt, forwarded: forwarded.receipts().collect() })
        }
        Reply { status, .. } => Err(LinkError::Refused(status)),
    });
    let _ = done.send(result); // nobody waits for a put that was hedged
    goes_on
}
