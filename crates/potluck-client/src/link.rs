//! One connection to one donor: requests go out one after another without waiting, answers come
//! back in the same order.

mod incoming;

use crate::body::{Body as ChunkBody, FileRange};
use crate::buffer::{Buffer, Buffers};
use incoming::{Incoming, LimitTold};
use potluck_core::chunk::{ChunkKind, ChunkName, Digest, verify_segments};
use potluck_core::merkle::{proof_len, segment_count, whole_segments};
use potluck_core::policy::AckLevel;
use potluck_core::seal::{Cipher, Meaning, SpaceKey};
use potluck_wire::addresses::Addresses;
use potluck_wire::bulk::{
    BulkIo, BulkStatus, ChunkPart, Forward, KNOWN_ROUTES, Lane, MAX_ROUTE, PIECE, Request, StreamIo,
};
use potluck_wire::control::Source;
use potluck_wire::env;
use potluck_wire::error::Failure;
use potluck_wire::net::{BoxStream, FileSender, UnreadBytes};
use potluck_wire::ticket::{Caveat, Ops, Receipt};
use potluck_wire::upgrade::{OpenedBulk, UpgradeError};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncWrite, Empty, Join, WriteHalf};
use tokio::sync::{Mutex, mpsc, oneshot};

/// The outcome of a put.
pub type PutResult = Result<StoredPut, LinkError>;
/// The outcome of a get: the bytes that were asked for, verified, and opened if [`ChunkRequest::seal`] is given.
pub type GetResult = Result<Buffer, LinkError>;

/// The acknowledgement of a donor that it stored a chunk.
#[derive(Debug, Clone)]
pub struct StoredPut {
    /// The ack level that the copy has reached.
    pub ack: AckLevel,
    /// The donor's proof that it holds the chunk.
    pub receipt: Receipt,
    /// The receipts of the donors that the chunk was forwarded to, in the order of [`Forwarding::to`], where
    /// the put waited for them; `None` for copies that were not made.
    pub forwarded: Vec<Option<Receipt>>,
}

/// The donors to which a donor forwards a chunk: while it receives the chunk, or after its answer.
#[derive(Debug, Clone)]
pub struct Forwarding {
    /// The donors that copies are forwarded to, at most [`potluck_wire::bulk::MAX_ROUTES`].
    pub to: Vec<Source>,
    /// True if the donor forwards the chunk while it receives it, and its answer waits for these copies.
    pub wait: bool,
}

/// The reason why a donor did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The donor cannot be reached, went away or stopped answering.
    #[error("{0}")]
    Away(String),
    /// The donor refused the request, or its answer was not one to the request ([`BulkStatus::Ok`]).
    #[error("{}", describe(*.0))]
    Refused(BulkStatus),
    /// The donor sent bytes that are not the chunk.
    #[error("sent bytes that are not the chunk")]
    WrongBytes,
    /// The donor was sent other bytes than were read before, because their local file has changed.
    #[error("was sent bytes of a file that has changed meanwhile")]
    FileChanged,
    /// The donor was sent nothing, because the bytes to send could not be read.
    #[error("was sent nothing: {0}")]
    Unread(Failure),
}

fn describe(status: BulkStatus) -> &'static str {
    match status {
        BulkStatus::Ok => "answered something else than it was asked",
        BulkStatus::NotFound => "does not have the chunk",
        BulkStatus::Full => "has no lent space left",
        BulkStatus::Mismatch => "received other bytes than were sent",
        BulkStatus::Denied => "refused the ticket",
        BulkStatus::DiskFailed => "has a failing disk",
        BulkStatus::Away => "is shutting down, or has lost its disk",
        BulkStatus::Throttled => "yields to its owner",
        BulkStatus::Stopped => "stopped, though it was not asked to",
    }
}

impl From<UpgradeError> for LinkError {
    fn from(error: UpgradeError) -> Self {
        match error {
            UpgradeError::Refused(http_status) if http_status == 403 => {
                Self::Refused(BulkStatus::Denied)
            }
            other => Self::Away(other.to_string()),
        }
    }
}

/// The most bytes of a file that are copied through this process at a time while its socket takes no more.
const WAITING_PIECE: usize = 64 << 10;

enum Job {
    /// Writes the bytes that the socket did not take of a request that its caller wrote itself.
    Flush,
    Put {
        name: ChunkName,
        ack: AckLevel,
        body: Arc<ChunkBody>,
        forward: Option<Forwarding>,
        done: oneshot::Sender<PutResult>,
    },
    Get {
        asked: ChunkRequest,
        done: oneshot::Sender<Received>,
        sent: SentTag,
    },
    /// Stops a get, if it was sent.
    Stop(SentTag),
}

/// The tag under which a get was sent, once it was.
type SentTag = Arc<OnceLock<u32>>;

/// Stops a get when it is dropped before the answer is here, so that the donor does not send what nobody waits for.
struct StoppedOnDrop<'a> {
    jobs: &'a mpsc::UnboundedSender<Job>,
    sent: Option<SentTag>,
}

impl Drop for StoppedOnDrop<'_> {
    fn drop(&mut self) {
        // If the connection is gone, nothing is sent anyway.
        self.sent.take().into_iter().for_each(|sent| drop(self.jobs.send(Job::Stop(sent))));
    }
}

/// The answer to a get.
type Received = Result<Body, LinkError>;

/// The bytes that answer a get.
enum Body {
    /// The bytes were verified as they came.
    Verified(Buffer),
    /// The bytes are a part of a chunk and the hashes that came before it. The caller of [`Link::get`] verifies them,
    /// so that the link meanwhile receives the next answers.
    Segments(Buffer, Vec<u8>),
}

/// A chunk to fetch, or a part of it.
#[derive(Debug, Clone)]
pub struct ChunkRequest {
    /// The name of the chunk.
    pub name: ChunkName,
    /// The size of the chunk in bytes.
    pub len: u32,
    /// The bytes that are asked for, which are whole segments; `None` for the whole chunk.
    pub part: Option<Range<u32>>,
    /// The seal that is taken off what arrives; `None` for the stored bytes.
    pub seal: Option<Seal>,
}

/// What opens the bytes of a sealed chunk.
#[derive(Debug, Clone)]
pub struct Seal {
    /// The key of the space.
    pub key: SpaceKey,
    /// The digest of the chunk's plaintext.
    pub digest: Digest,
}

impl Seal {
    fn cipher(&self) -> Cipher {
        self.key.cipher(Meaning::Chunk, &self.digest)
    }
}

impl ChunkRequest {
    /// Returns the number of bytes that are asked for, without the hashes that prove them.
    pub fn bytes(&self) -> u32 {
        self.part.as_ref().map_or(self.len, |part| part.end - part.start)
    }

    /// Returns the number of bytes of the hashes that prove the part.
    fn proof_len(&self) -> usize {
        let segments = self.part.as_ref().and_then(|part| whole_segments(part, self.len));
        let count = segment_count(self.len.into()) as usize;
        segments.map_or(0, |segments| proof_len(count, &segments))
    }

    /// Returns whether `buffer` has the part that was asked for, by the chunk's name and the `hashes` that the donor sent
    /// before the part; opens the bytes if they are sealed.
    fn verify(&self, buffer: &mut Buffer, hashes: &[u8]) -> bool {
        let part = self.part.as_ref().and_then(|part| whole_segments(part, self.len));
        let Some(segments) = part else { return false }; // a part of a segment cannot be proved
        let proved = verify_segments(&self.name, self.len, &segments, buffer, hashes);
        if let Some(seal) = self.seal.as_ref().filter(|_| proved) {
            seal.cipher().apply(segments.start as u32, buffer.bytes_mut());
        }
        proved
    }

    fn request(&self) -> Request {
        let part = self.part.as_ref();
        let part = part.map(|part| ChunkPart { offset: part.start, len: part.end - part.start });
        Request::Get { name: self.name, part }
    }
}

/// An answer that a donor owes. It is kept with the number of bytes of all requests up to the end of its own.
enum Owed {
    Put { done: oneshot::Sender<PutResult>, forwarded: bool },
    Route,
    Get { asked: ChunkRequest, done: oneshot::Sender<Received> },
}

/// A handle on the connection; when the last one is gone, the connection closes.
#[derive(Clone)]
pub struct Link {
    jobs: mpsc::UnboundedSender<Job>,
    sending: Arc<Mutex<Option<Sending>>>,
    /// The bytes that the receiving half has read.
    read: Arc<AtomicU64>,
    unread: UnreadBytes,
}

impl Link {
    /// Starts working on an opened connection; `limited` is told what the donor says of its limit in bytes a second.
    pub fn start(
        opened: OpenedBulk,
        buffers: Buffers,
        limited: impl FnMut(Option<u64>) + Send + 'static,
    ) -> Self {
        let OpenedBulk { io: StreamIo(stream), inbox, lane } = opened;
        let kernel = stream.kernel_side();
        let (reading, writing) = tokio::io::split(stream);
        let written = Arc::new(AtomicU64::new(0));
        let writing = Counted { stream: writing, written: written.clone() };
        let (jobs, queue) = mpsc::unbounded_channel();
        let (owe, owed) = mpsc::unbounded_channel();
        let files = kernel.file_sender();
        let sending = Arc::new(Mutex::new(Some(Sending::new(writing, lane, owe, files))));
        let (read, unread) = (Arc::default(), kernel.unread());
        let link = Self { jobs, sending: Arc::clone(&sending), read: Arc::clone(&read), unread };
        env::spawn(async move {
            let io = StreamIo(tokio::io::join(reading, tokio::io::sink()));
            let told = LimitTold { limit: None, tell: Box::new(limited) };
            let incoming = Incoming { io, inbox, kernel, written, read, buffers, told };
            let mut receiver = env::spawn(incoming.receive(owed));
            tokio::select! {
                // Answers that were owed when the sender stopped are still received; if the donor died, there are
                // none and this ends.
                () = send(&sending, queue) => {
                    *sending.lock().await = None;
                    drop(receiver.await);
                }
                // Nothing will be answered any more. A sender that is stuck in a full socket would never know, nor
                // would anybody whose job still waits.
                _ = &mut receiver => *sending.lock().await = None,
            }
        });
        link
    }

    /// Returns whether the connection still works as far as is known.
    pub fn is_open(&self) -> bool {
        !self.jobs.is_closed()
    }

    /// Returns a figure that changes when something comes from the donor, even if it is not read yet: about the number
    /// of bytes that came.
    pub fn heard(&self) -> u64 {
        self.read.load(Ordering::Relaxed) + self.unread.count()
    }

    /// Stores a chunk on the donor, which forwards it as `forward` says.
    pub async fn put(
        &self,
        name: ChunkName,
        ack: AckLevel,
        body: Arc<ChunkBody>,
        forward: Option<Forwarding>,
    ) -> PutResult {
        let (done, result) = oneshot::channel();
        self.ask(Job::Put { name, ack, body, forward, done })?;
        result.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Fetches a chunk or a part of it, verifies the bytes, and opens them if they are sealed. If the future is dropped
    /// before it is done, the donor is told to send no more.
    pub async fn get(&self, asked: ChunkRequest) -> GetResult {
        let (done, result) = oneshot::channel();
        let sent = SentTag::default();
        let mut unless_answered = StoppedOnDrop { jobs: &self.jobs, sent: Some(sent.clone()) };
        // If the socket is free, the caller writes the request itself, which wakes nobody here.
        match self.sending.try_lock().as_deref_mut() {
            Ok(Some(sending)) if sending.rest.is_empty() => {
                sending.get_now(asked.clone(), done, &sent)?;
                if !sending.rest.is_empty() {
                    self.ask(Job::Flush)?;
                }
            }
            _ => self.ask(Job::Get { asked: asked.clone(), done, sent })?,
        }
        let answer = result.await.unwrap_or_else(|_| Err(gone()));
        unless_answered.sent = None;
        match answer? {
            Body::Verified(buffer) => Ok(buffer),
            Body::Segments(mut buffer, hashes) => {
                let verified = asked.verify(&mut buffer, &hashes);
                verified.then_some(buffer).ok_or(LinkError::WrongBytes)
            }
        }
    }

    fn ask(&self, job: Job) -> Result<(), LinkError> {
        self.jobs.send(job).map_err(|_| gone())
    }
}

fn gone() -> LinkError {
    LinkError::Away("closed the connection".into())
}

/// The sending half of a link.
struct Sending {
    io: StreamIo<Join<Empty, Counted>>,
    lane: Lane,
    routes: Routes,
    /// The number of the next request.
    tag: u32,
    /// The number of bytes of all requests until now.
    end: u64,
    /// The bytes that the socket did not take of the last request; they go before the next request.
    rest: Vec<u8>,
    /// The channel that tells the receiving half which answers are owed.
    owe: mpsc::UnboundedSender<(Owed, u64)>,
    /// The sender for parts of files, where the stream is a socket of this machine's kernel.
    files: Option<FileSender>,
    written: Arc<AtomicU64>,
}

impl Sending {
    fn new(
        stream: Counted,
        lane: Lane,
        owe: mpsc::UnboundedSender<(Owed, u64)>,
        files: Option<FileSender>,
    ) -> Self {
        let written = Arc::clone(&stream.written);
        let io = StreamIo(tokio::io::join(tokio::io::empty(), stream));
        let (routes, rest) = Default::default();
        Self { io, lane, routes, tag: 0, end: 0, rest, owe, files, written }
    }

    /// Encodes the head of a request with a body of `len` bytes, whose answer is owed from now on.
    fn head(&mut self, request: &Request, len: usize, owed: Owed) -> Result<Vec<u8>, LinkError> {
        let head = request.encode(self.tag, &mut self.lane);
        self.tag = self.tag.wrapping_add(1);
        self.end += (head.len() + len) as u64;
        self.owe.send((owed, self.end)).map_err(|_| gone())?;
        Ok(head)
    }

    /// Writes the request of a get as far as the socket takes it at once; the rest is left in `rest`.
    fn get_now(
        &mut self,
        asked: ChunkRequest,
        done: oneshot::Sender<Received>,
        sent: &SentTag,
    ) -> Result<(), LinkError> {
        let request = asked.request();
        let _ = sent.set(self.tag); // it is sent once
        let mut head = self.head(&request, 0, Owed::Get { asked, done })?;
        let mut now = Context::from_waker(Waker::noop());
        let written = match Pin::new(&mut self.io.0).poll_write(&mut now, &head) {
            Poll::Ready(Ok(bytes)) => bytes,
            // An error shows again when the rest is written.
            Poll::Ready(Err(_)) | Poll::Pending => 0,
        };
        head.drain(..written);
        self.rest = head;
        Ok(())
    }

    /// Tells the donor to send no more of the answer to a get; returns false when nothing more can be sent.
    async fn stop(&mut self, tag: u32) -> bool {
        let head = Request::Stop.encode(tag, &mut self.lane);
        self.end += head.len() as u64;
        self.io.write(&head, &[]).await.is_ok()
    }

    /// Writes a request and its body; returns false when nothing more can be sent.
    async fn request(&mut self, request: Request, body: &[u8], owed: Owed) -> bool {
        match self.head(&request, body.len(), owed) {
            Ok(head) => self.io.write(&head, body).await.is_ok(),
            Err(_) => false,
        }
    }

    /// Writes a request and a body that is still in its file; returns false when nothing more can be sent.
    async fn request_from_file(&mut self, request: Request, body: &FileRange, owed: Owed) -> bool {
        match self.head(&request, body.len as usize, owed) {
            Ok(head) => self.send_range(&head, body).await.is_ok(),
            Err(_) => false,
        }
    }

    async fn send_range(&mut self, head: &[u8], range: &FileRange) -> io::Result<()> {
        let sent = self.unless_full(|files| files.send_head(head))?.unwrap_or(0);
        self.io.write(&head[sent..], &[]).await?;
        let mut at = range.offset;
        let end = at + u64::from(range.len);
        let mut piece = Vec::new();
        while at < end {
            match self.unless_full(|files| files.send(&range.file, &mut at, end))? {
                Some(0) => break,
                Some(_) => continue,
                None => {}
            }
            // This waits until the socket takes more; what follows is sent without a copy through this process again.
            piece.resize(WAITING_PIECE, 0);
            let piece = &mut piece[..WAITING_PIECE.min((end - at) as usize)];
            match range.file.read_at(piece, at) {
                Ok(read @ 1..) => {
                    self.io.write(&piece[..read], &[]).await?;
                    at += read as u64;
                }
                _ => break,
            }
        }
        // The file got shorter, or cannot be read any more. As many bytes as were announced are sent, and the donor
        // finds that they are not the chunk.
        let zeros = vec![0; if at < end { PIECE } else { 0 }];
        while at < end {
            let zeros = &zeros[..PIECE.min((end - at) as usize)];
            self.io.write(zeros, &[]).await?;
            at += zeros.len() as u64;
        }
        Ok(())
    }

    /// Runs `send` with the sender for files, and counts and returns the bytes that it sent; `None` where the socket
    /// takes no more now, or the stream has no such sender.
    fn unless_full<N: Copy + TryInto<u64>>(
        &self,
        send: impl FnOnce(&FileSender) -> io::Result<N>,
    ) -> io::Result<Option<N>> {
        match self.files.as_ref().map(send) {
            Some(Ok(sent)) => {
                self.written.fetch_add(sent.try_into().unwrap_or(0), Ordering::Relaxed);
                Ok(Some(sent))
            }
            Some(Err(why)) if why.kind() != io::ErrorKind::WouldBlock => Err(why),
            _ => Ok(None),
        }
    }

    /// Does a job; returns false when nothing more can be sent.
    async fn work(&mut self, job: Job) -> bool {
        let rest = std::mem::take(&mut self.rest);
        if self.io.write(&rest, &[]).await.is_err() {
            return false;
        }
        match job {
            Job::Flush => true,
            // Nobody waits for this answer any more: another donor was faster.
            Job::Get { done, .. } if done.is_closed() => true,
            Job::Stop(sent) => match sent.get() {
                Some(tag) => self.stop(*tag).await,
                None => true,
            },
            Job::Get { asked, done, sent } => {
                let _ = sent.set(self.tag); // it is sent once
                self.request(asked.request(), &[], Owed::Get { asked, done }).await
            }
            Job::Put { name, ack, body, forward, done } => {
                let (new, forward) = self.routes.forward(forward);
                for (number, mut body) in new {
                    self.lane.seal_body(&mut body);
                    let route = Request::Route { number, len: body.len() as u32 };
                    if !self.request(route, &body, Owed::Route).await {
                        return false;
                    }
                }
                let len = body.len() as u32;
                let put = Request::Put { name, ack, len, kind: ChunkKind::Data, forward };
                let owed = Owed::Put { done, forwarded: forward.wait };
                match &*body {
                    ChunkBody::Memory(bytes) => self.request(put, bytes, owed).await,
                    ChunkBody::File(range) => self.request_from_file(put, range, owed).await,
                    ChunkBody::Kept(_) => unreachable!("it is taken in hand before it is put"),
                }
            }
        }
    }
}

/// Does the jobs of a link until all handles on it are gone, or its stream is broken.
async fn send(sending: &Mutex<Option<Sending>>, mut queue: mpsc::UnboundedReceiver<Job>) {
    while let Some(job) = queue.recv().await {
        let mut sending = sending.lock().await;
        let Some(sending) = sending.as_mut() else { return };
        if !sending.work(job).await {
            return;
        }
    }
}

/// The bytes by which the description of a route is longer when it is sealed.
const ROUTE_SEAL: usize = 16;

/// The donors that this connection's donor was told how to reach.
#[derive(Default)]
struct Routes {
    known: BTreeMap<u8, Source>,
    next: u8,
}

impl Routes {
    /// Returns the routes to tell before a put so that it can be forwarded, each a number and its description, and the
    /// way in which the put refers to them.
    fn forward(&mut self, forwarding: Option<Forwarding>) -> (Vec<(u8, Vec<u8>)>, Forward) {
        let Some(Forwarding { to, wait }) = forwarding else { return (Vec::new(), Forward::NONE) };
        let mut new = Vec::new();
        let mut numbers = Vec::new();
        for source in to {
            let known = self.known.iter().find(|(_, known)| **known == source);
            let number = known.map(|(number, _)| *number).unwrap_or_else(|| {
                let number = self.free(&numbers);
                new.push((number, told(source.clone())));
                self.known.insert(number, source);
                number
            });
            numbers.push(number);
        }
        match Forward::to(&numbers, wait) {
            Some(forward) => (new, forward),
            None => (new, Forward::NONE), // the caller counts the copies as not made
        }
    }

    /// Returns the next route number that this put does not use. There are [`KNOWN_ROUTES`] numbers, which is as many
    /// routes as a donor remembers; a new route under a used number replaces the old one at both ends.
    fn free(&mut self, used: &[u8]) -> u8 {
        loop {
            let number = self.next;
            self.next = (number + 1) % KNOWN_ROUTES as u8;
            if !used.contains(&number) {
                return number;
            }
        }
    }
}

/// Returns the description of a route to a donor: its ticket, for puts only, since forwarding takes no more, and as many
/// of its addresses, the best first, as fit what a donor reads.
fn told(mut source: Source) -> Vec<u8> {
    source.ticket.narrow(&Caveat::Ops(Ops::PUT));
    loop {
        let text = serde_json::to_vec(&source).expect("a source is JSON");
        let others = source.addresses.iter().count().saturating_sub(1);
        if text.len() + ROUTE_SEAL <= MAX_ROUTE as usize || others == 0 {
            return text;
        }
        source.addresses = Addresses::new(source.addresses.iter().take(others).cloned());
    }
}

/// The sending half of a stream, which counts the bytes that the system has taken.
struct Counted {
    stream: WriteHalf<BoxStream>,
    written: Arc<AtomicU64>,
}

impl Counted {
    fn count(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.written.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        written
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.count(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.count(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
