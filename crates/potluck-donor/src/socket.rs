//! Byte streams under a session: the machine's socket on a thread of its own, or a stream of the
//! runtime.

use crate::stall_timeout::{Phase, SEND_TICK, StallTimeout, TICK};
use potluck_wire::bulk::{BulkIo, PIECE, ReadAt, SendFileError, StreamIo, read_some_at};
use potluck_wire::net::{BoxStream, LowWater};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::future::Future;
use std::io::{self, IoSlice, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::AsFd;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::Handle;

/// The time for which a peer may be silent between requests before its connection gives up its thread. Starting a
/// thread takes much less; a reader that works on what it read takes more.
const QUIET: Duration = Duration::from_millis(50);

/// The number of bytes of waiting answers from which they are sent: those of some 37 puts.
const WAITING: usize = 2 << 10;

/// A stream whose peer is waited for only for a limited time. In [`Phase::Idle`] a read may fail with `WouldBlock` when
/// the peer is silent for a moment, so that the connection is waited for without a thread.
pub(crate) trait PeerIo: BulkIo {
    /// Sets what is expected of the peer from now on.
    fn expect(&mut self, phase: Phase);

    /// Sends an answer. One that `may_wait` may be kept and sent with later answers, at the latest when the peer would
    /// be waited for.
    fn answer(
        &mut self,
        answer: &[u8],
        may_wait: bool,
    ) -> impl Future<Output = io::Result<()>> + Send;

    /// Sends the answers that were kept.
    fn send_answers(&mut self) -> impl Future<Output = io::Result<()>> + Send;

    /// Runs a future of the runtime to its end while the peer waits.
    fn meanwhile<T: Send>(
        &mut self,
        work: impl Future<Output = T> + Send,
    ) -> impl Future<Output = T> + Send;
}

/// A blocking socket. Its futures wait inside of their first poll, which completes them.
pub(crate) struct SocketIo {
    socket: TcpStream,
    timeout: StallTimeout,
    runtime: Handle,
    /// The answers that were kept, to be sent together: each send wakes the peer.
    waiting: Vec<u8>,
    low_water: LowWater,
}

impl SocketIo {
    /// Makes a stream of `socket`, which must be in blocking mode. It is to be used on a thread that is none of
    /// `runtime`'s.
    pub fn new(socket: TcpStream, timeout: StallTimeout, runtime: Handle) -> io::Result<Self> {
        socket.set_read_timeout(Some(QUIET))?;
        socket.set_write_timeout(Some(SEND_TICK))?;
        let (waiting, low_water) = Default::default();
        Ok(Self { socket, timeout, runtime, waiting, low_water })
    }

    /// Returns the socket, in blocking mode.
    pub fn into_socket(mut self) -> TcpStream {
        self.low_water.set(self.socket.as_fd(), 1); // the next wait is for a head
        self.socket
    }

    /// Repeats a call until it succeeds, the peer's time is up, or it fails; in [`Phase::Idle`] the first timeout of
    /// the socket is an error.
    fn unless_stalled(
        &mut self,
        mut call: impl FnMut(&TcpStream) -> Result<usize, Errno>,
    ) -> io::Result<usize> {
        self.timeout.start();
        loop {
            match call(&self.socket) {
                Ok(n) => {
                    self.timeout.moved(n)?;
                    return Ok(n);
                }
                Err(Errno::INTR) => {}
                Err(why @ Errno::AGAIN) => {
                    self.timeout.check()?;
                    if self.timeout.phase() == Phase::Idle {
                        return Err(why.into());
                    }
                }
                Err(why) => return Err(why.into()),
            }
        }
    }

    fn send_all(&mut self, mut bytes: &[u8], flags: SendFlags) -> io::Result<()> {
        while !bytes.is_empty() {
            let n =
                self.unless_stalled(|socket| send(socket, bytes, flags | SendFlags::NOSIGNAL))?;
            bytes = &bytes[n..];
        }
        Ok(())
    }
}

impl PeerIo for SocketIo {
    fn expect(&mut self, phase: Phase) {
        self.timeout.expect(phase);
    }

    async fn answer(&mut self, answer: &[u8], may_wait: bool) -> io::Result<()> {
        self.waiting.extend_from_slice(answer);
        if may_wait && self.waiting.len() < WAITING {
            return Ok(());
        }
        self.send_answers().await
    }

    async fn send_answers(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let mut answers = std::mem::take(&mut self.waiting);
        // The peer has as long to take these answers as it has for a body, whatever it says next.
        let phase = self.timeout.phase();
        self.timeout.expect(Phase::Body);
        let sent = self.send_all(&answers, SendFlags::empty());
        self.timeout.expect(phase);
        answers.clear();
        self.waiting = answers;
        sent
    }

    async fn meanwhile<T: Send>(&mut self, work: impl Future<Output = T> + Send) -> T {
        self.runtime.block_on(work)
    }
}

impl BulkIo for SocketIo {
    async fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if !self.waiting.is_empty() {
            if let Ok((n @ 1.., _)) = recv(&self.socket, &mut *out, RecvFlags::DONTWAIT) {
                self.timeout.start();
                self.timeout.moved(n)?;
                return Ok(n);
            }
            self.send_answers().await?; // the peer may say nothing more before it has them
        }
        // All of a body is wanted, so one call may wait for as much as fits; the length of anything else is not known.
        let (flags, wake_at) = match self.timeout.phase() {
            Phase::Body => (RecvFlags::WAITALL, out.len()),
            Phase::Idle | Phase::Head => (RecvFlags::empty(), 1),
        };
        self.low_water.set(self.socket.as_fd(), wake_at);
        self.unless_stalled(|socket| recv(socket, &mut *out, flags).map(|(n, _)| n))
    }

    fn read_now(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match recv(&self.socket, out, RecvFlags::DONTWAIT) {
            Ok((read, _)) => Ok(read),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(why) => Err(why.into()),
        }
    }

    async fn write(&mut self, head: &[u8], body: &[u8]) -> io::Result<()> {
        if body.is_empty() {
            return self.send_all(head, SendFlags::empty());
        }
        let mut parts = [IoSlice::new(head), IoSlice::new(body)];
        let mut parts = &mut parts[..];
        self.timeout.start();
        while !parts.is_empty() {
            let n = match (&self.socket).write_vectored(parts) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => n,
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                    self.timeout.check()?;
                    continue;
                }
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                Err(why) => return Err(why),
            };
            self.timeout.moved(n)?;
            IoSlice::advance_slices(&mut parts, n);
        }
        Ok(())
    }

    async fn send_file(
        &mut self,
        head: &[u8],
        file: &dyn ReadAt,
        range: Range<u64>,
    ) -> Result<(), SendFileError> {
        self.send_all(head, SendFlags::MORE)?; // leaves with the first bytes of the file
        let (mut at, end) = (range.start, range.end);
        match file.as_file() {
            Some(system_file) => {
                while at < end {
                    let count = (end - at) as usize;
                    let moved = self.unless_stalled(|socket| {
                        rustix::fs::sendfile(socket, system_file, Some(&mut at), count)
                    });
                    if !matches!(moved, Ok(1..)) {
                        // The call does not say which end failed, so the file is read to find out.
                        read_some_at(file, &mut [0], at)?;
                        moved?;
                    }
                }
            }
            None => {
                let mut piece = vec![0; PIECE.min((end - at) as usize)];
                while at < end {
                    let want = piece.len().min((end - at) as usize);
                    let n = read_some_at(file, &mut piece[..want], at)?;
                    self.send_all(&piece[..n], SendFlags::empty())?;
                    at += n as u64;
                }
            }
        }
        Ok(())
    }
}

/// Runs a future that never waits outside of its polls.
///
/// # Panics
/// If the future waits for anything else.
pub(crate) fn run_ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("blocking calls are never pending"),
    }
}

/// A stream of the runtime.
pub(crate) struct RuntimeIo {
    stream: StreamIo<BoxStream>,
    timeout: StallTimeout,
}

impl RuntimeIo {
    /// Makes a stream that waits in the runtime.
    pub fn new(stream: BoxStream, timeout: StallTimeout) -> Self {
        Self { stream: StreamIo(stream), timeout }
    }
}

impl PeerIo for RuntimeIo {
    fn expect(&mut self, phase: Phase) {
        self.timeout.expect(phase);
    }

    async fn answer(&mut self, answer: &[u8], _may_wait: bool) -> io::Result<()> {
        self.write(answer, &[]).await
    }

    async fn send_answers(&mut self) -> io::Result<()> {
        Ok(()) // none waits
    }

    async fn meanwhile<T: Send>(&mut self, work: impl Future<Output = T> + Send) -> T {
        work.await
    }
}

/// Returns the time that a stream of the runtime has to take `bytes`: about as long as a socket's slowest peer that is
/// not dropped.
fn write_deadline(bytes: u64) -> Duration {
    4 * TICK + TICK * (bytes >> 14).min(u64::from(u32::MAX)) as u32
}

async fn in_time<E: From<io::Error>>(
    bytes: u64,
    write: impl Future<Output = Result<(), E>> + Send,
) -> Result<(), E> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "the peer is too slow");
    tokio::time::timeout(write_deadline(bytes), write).await.map_err(|_| late())?
}

impl BulkIo for RuntimeIo {
    async fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.timeout.start();
        loop {
            match tokio::time::timeout(TICK, self.stream.read(out)).await {
                Ok(read) => {
                    let n = read?;
                    self.timeout.moved(n)?;
                    return Ok(n);
                }
                Err(_) => self.timeout.check()?,
            }
        }
    }

    fn read_now(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.stream.read_now(out)
    }

    async fn write(&mut self, head: &[u8], body: &[u8]) -> io::Result<()> {
        in_time(body.len() as u64, self.stream.write(head, body)).await
    }

    async fn send_file(
        &mut self,
        head: &[u8],
        file: &dyn ReadAt,
        range: Range<u64>,
    ) -> Result<(), SendFileError> {
        in_time(range.end - range.start, self.stream.send_file(head, file, range)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::clock::SystemClock;
    use std::io::Read;
    use std::net::TcpListener;
    use std::sync::Arc;

    #[tokio::test]
    #[allow(clippy::disallowed_methods)] // it is about the machine's sockets
    async fn answers_wait_for_others_and_for_nothing_else() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let mut peer = TcpStream::connect(address).expect("a connection");
        let (socket, _) = listener.accept().expect("its other end");
        let timeout = StallTimeout::new(Arc::new(SystemClock::default()));
        let mut io = SocketIo::new(socket, timeout, Handle::current()).expect("a socket");
        let mut said = [0; 8];
        let mut heard = [0; 2];
        let nothing_came = |peer: &mut TcpStream| {
            peer.set_nonblocking(true).expect("an option");
            let read = peer.read(&mut [0]).expect_err("nothing to read");
            assert_eq!(read.kind(), io::ErrorKind::WouldBlock);
            peer.set_nonblocking(false).expect("an option");
        };

        io.expect(Phase::Idle);
        peer.write_all(b"1").expect("sent");
        assert_eq!(io.read(&mut said).await.expect("a request"), 1);
        peer.write_all(b"2").expect("sent");
        io.answer(b"a", true).await.expect("kept");
        assert_eq!(io.read(&mut said).await.expect("what is there already"), 1);
        nothing_came(&mut peer);
        io.answer(b"b", true).await.expect("kept");
        io.expect(Phase::Idle);
        let quiet = io.read(&mut said).await.expect_err("the peer is silent");
        assert_eq!(quiet.kind(), io::ErrorKind::WouldBlock);
        peer.read_exact(&mut heard).expect("both answers");
        assert_eq!(&heard, b"ab", "sent before the peer was waited for");

        io.answer(b"c", true).await.expect("kept");
        nothing_came(&mut peer);
        io.answer(b"d", false).await.expect("sent");
        peer.read_exact(&mut heard).expect("both answers");
        assert_eq!(&heard, b"cd", "in their order");
    }
}
