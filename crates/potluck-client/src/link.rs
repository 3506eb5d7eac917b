//! One connection to one donor: requests go out one after another without waiting, answers come
//! back in the same order.

use crate::buffer::{Buffer, Buffers};
use potluck_core::chunk::{ChunkName, Verifier};
use potluck_core::policy::AckLevel;
use potluck_wire::bulk::{BulkIo, FrameError, Inbox, Lane, PIECE, Reply, Request, Status, StreamIo};
use potluck_wire::net::BoxStream;
use potluck_wire::ticket::Receipt;
use potluck_wire::upgrade::{OpenError, Opened};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};

/// A donor that owes us something and sends nothing for this long is given up.
pub const STALL: Duration = Duration::from_secs(8);

/// What a put brings.
pub type PutResult = Result<(AckLevel, Receipt), LinkError>;
/// What a get brings: the chunk as stored, verified by its name.
pub type GetResult = Result<Buffer, LinkError>;

/// Why a donor did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Cannot be reached, went away or stopped answering.
    #[error("{0}")]
    Away(String),
    /// Answered, and refused.
    #[error("{}", describe(*.0))]
    Refused(Status),
    /// Sent bytes that are not the chunk.
    #[error("sent bytes that are not the chunk")]
    WrongBytes,
}

fn describe(status: Status) -> &'static str {
    match status {
        Status::Ok => "answered something else than it was asked",
        Status::NotFound => "does not have the chunk",
        Status::Full => "has no lent space left",
        Status::Mismatch => "received other bytes than were sent",
        Status::Denied => "refused the ticket",
        Status::DiskFailed => "has a failing disk",
        Status::Away => "is paused or shutting down",
    }
}

impl From<OpenError> for LinkError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Refused(http_status) if http_status == 403 => Self::Refused(Status::Denied),
            other => Self::Away(other.to_string()),
        }
    }
}

enum Job {
    Put { name: ChunkName, ack: AckLevel, body: Arc<Buffer>, done: oneshot::Sender<PutResult> },
    Get { name: ChunkName, len: u32, done: oneshot::Sender<GetResult> },
}

enum Owed {
    Put { done: oneshot::Sender<PutResult> },
    Get { name: ChunkName, len: u32, done: oneshot::Sender<GetResult> },
}

/// A handle on the connection; when the last one is gone, the connection closes.
#[derive(Clone)]
pub struct Link {
    jobs: mpsc::UnboundedSender<Job>,
}

impl Link {
    /// Starts working on an opened connection.
    pub fn start(opened: Opened, buffers: Buffers) -> Self {
        let Opened { io: StreamIo(stream), inbox, lane } = opened;
        let (reading, writing) = tokio::io::split(stream);
        let (jobs, queue) = mpsc::unbounded_channel();
        let (owe, owed) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut receiver = tokio::spawn(receive(reading, inbox, owed, buffers));
            tokio::select! {
                // What was owed when the sender stopped is still received; a donor that died ends it.
                () = send(writing, lane, queue, owe) => drop(receiver.await),
                // Nothing will be answered any more; a sender that is stuck in a full socket would
                // never know, and with it everybody whose job still waits.
                _ = &mut receiver => {}
            }
        });
        Self { jobs }
    }

    /// Whether the connection still works as far as is known.
    pub fn is_open(&self) -> bool {
        !self.jobs.is_closed()
    }

    /// Stores a chunk.
    pub async fn put(&self, name: ChunkName, ack: AckLevel, body: Arc<Buffer>) -> PutResult {
        let (done, result) = oneshot::channel();
        self.ask(Job::Put { name, ack, body, done })?;
        result.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Fetches a chunk of `len` stored bytes and verifies it.
    pub async fn get(&self, name: ChunkName, len: u32) -> GetResult {
        let (done, result) = oneshot::channel();
        self.ask(Job::Get { name, len, done })?;
        result.await.unwrap_or_else(|_| Err(gone()))
    }

    fn ask(&self, job: Job) -> Result<(), LinkError> {
        self.jobs.send(job).map_err(|_| gone())
    }
}

fn gone() -> LinkError {
    LinkError::Away("closed the connection".into())
}

async fn send(
    stream: WriteHalf<BoxStream>,
    mut lane: Lane,
    mut queue: mpsc::UnboundedReceiver<Job>,
    owe: mpsc::UnboundedSender<Owed>,
) {
    let mut io = StreamIo(tokio::io::join(tokio::io::empty(), stream));
    let mut tag = 0;
    while let Some(job) = queue.recv().await {
        let (request, body, owed) = match job {
            Job::Put { name, ack, body, done } => {
                let len = body.len() as u32;
                (Request::Put { name, ack, len }, Some(body), Owed::Put { done })
            }
            // Asked and no longer wanted: another donor was faster.
            Job::Get { done, .. } if done.is_closed() => continue,
            Job::Get { name, len, done } => {
                (Request::Get { name }, None, Owed::Get { name, len, done })
            }
        };
        let head = request.encode(tag, &mut lane);
        tag = tag.wrapping_add(1);
        let body = body.as_ref().map_or(&[][..], |body| &body[..]);
        if owe.send(owed).is_err() || io.write(&head, body).await.is_err() {
            return;
        }
    }
}

async fn receive(
    stream: ReadHalf<BoxStream>,
    mut inbox: Inbox,
    mut owed: mpsc::UnboundedReceiver<Owed>,
    buffers: Buffers,
) {
    let mut io = StreamIo(tokio::io::join(stream, tokio::io::sink()));
    let mut tag = 0;
    while let Some(owed) = owed.recv().await {
        let answer = match tokio::time::timeout(STALL, inbox.reply(&mut io)).await {
            Ok(Ok(Some((answered, reply)))) if answered == tag => Ok(reply),
            Ok(Ok(Some(_))) => Err(LinkError::Away("answered out of turn".into())),
            Ok(Ok(None)) => Err(gone()),
            Ok(Err(broken)) => Err(LinkError::Away(broken.to_string())),
            Err(_) => Err(LinkError::Away(format!("has not answered for {STALL:?}"))),
        };
        tag = tag.wrapping_add(1);
        let goes_on = match owed {
            Owed::Put { done } => settle_put(done, answer),
            Owed::Get { name, len, done } => {
                settle_get(&mut io, &mut inbox, &buffers, (name, len), done, answer).await
            }
        };
        if !goes_on {
            return; // dropping what is still owed tells everybody who waits
        }
    }
}

fn settle_put(done: oneshot::Sender<PutResult>, answer: Result<Reply, LinkError>) -> bool {
    let goes_on = answer.is_ok();
    let result = answer.and_then(|reply| match reply {
        Reply { status: Status::Ok, receipt: Some(receipt), .. } => Ok(receipt),
        Reply { status, .. } => Err(LinkError::Refused(status)),
    });
    let _ = done.send(result); // nobody waits for a put that was hedged
    goes_on
}

async fn settle_get(
    io: &mut impl BulkIo,
    inbox: &mut Inbox,
    buffers: &Buffers,
    (name, len): (ChunkName, u32),
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
    if reply.body != len {
        // A chunk has one length. The body that follows is not worth reading.
        let _ = done.send(Err(LinkError::WrongBytes));
        return false;
    }
    let mut buffer = buffers.claim(len as usize).await.buffer(len as usize);
    let mut verifier = Verifier::new(name);
    match receive_body(io, inbox, &mut buffer, &mut verifier).await {
        Ok(()) => {
            let verified = verifier.finish().map(|()| buffer).map_err(|_| LinkError::WrongBytes);
            let _ = done.send(verified); // a hedged get is wanted no longer
            true
        }
        Err(error) => {
            let _ = done.send(Err(error));
            false
        }
    }
}

async fn receive_body(
    io: &mut impl BulkIo,
    inbox: &mut Inbox,
    buffer: &mut [u8],
    verifier: &mut Verifier,
) -> Result<(), LinkError> {
    let away = |error: FrameError| LinkError::Away(error.to_string());
    let (mut hashed, mut filled) = (0, 0);
    while filled < buffer.len() {
        let read = inbox.body(io, &mut buffer[filled..]);
        filled += tokio::time::timeout(STALL, read)
            .await
            .map_err(|_| LinkError::Away(format!("sent nothing for {STALL:?}")))?
            .map_err(away)?;
        // Hash in pieces that are still in the cache, and large enough for all SIMD lanes.
        if filled - hashed >= PIECE || filled == buffer.len() {
            verifier.update(&buffer[hashed..filled]);
            hashed = filled;
        }
    }
    Ok(())
}
