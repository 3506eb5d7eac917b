//! A stream whose writes end with an error when the other side takes nothing.
//!
//! Otherwise a peer that asks and never reads the answer could keep the answer in memory, and the connection open, for
//! ever.

use crate::net::{BoxStream, Detached, KernelSide, Stream};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// The longest time that a write waits for the other side to take anything.
pub const STALL_DEADLINE: Duration = Duration::from_secs(30);

/// A stream whose writes fail when nothing that is written to it gets away for [`STALL_DEADLINE`]. A slow reader does
/// not stall it: each byte that the system takes begins the time anew.
pub struct StalledWrites {
    stream: BoxStream,
    /// The timer that runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl StalledWrites {
    /// Watches what is written to a stream. The stream has to be the one below TLS, whose buffers take bytes that the
    /// other side may never read.
    pub fn watch(stream: BoxStream) -> Self {
        Self { stream, stalled: None }
    }

    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        done: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.stalled = None;
            return done;
        }
        let sleep = || Box::pin(tokio::time::sleep(STALL_DEADLINE));
        match self.stalled.get_or_insert_with(sleep).as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Stream for StalledWrites {
    fn detach(self: Box<Self>) -> io::Result<Detached> {
        self.stream.detach()
    }

    fn kernel_side(&self) -> KernelSide {
        self.stream.kernel_side()
    }
}

impl AsyncRead for StalledWrites {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for StalledWrites {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.judge(context, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn stalled_write_fails_and_slow_one_continues() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let mut watched = StalledWrites::watch(Box::new(ours));
        let slow = async {
            for _ in 0..10 {
                tokio::time::sleep(STALL_DEADLINE * 2 / 3).await;
                theirs.read_exact(&mut [0; 10]).await.expect("bytes");
            }
        };
        let (written, ()) = tokio::join!(watched.write_all(&[7; 150]), slow);
        written.expect("all that was taken, and what fits between the two");
        let began = tokio::time::Instant::now();
        let why = watched.write_all(&[7; 100]).await.expect_err("nobody reads");
        assert_eq!(why.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), STALL_DEADLINE.as_secs());
    }
}
