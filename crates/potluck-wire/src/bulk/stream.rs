//! The byte streams that bulk connections run over, and the stored bytes that are sent over them.

use super::PIECE;
use std::fs::File;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};

/// The byte stream under a bulk connection.
///
/// One implementation waits in the kernel on a thread of its own (donors), one in the runtime (clients, simulations);
/// the protocol above is the same code.
pub trait BulkIo: Send {
    /// Reads some bytes; 0 means the end.
    fn read(&mut self, out: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;
    /// Reads some of the bytes that are there already; 0 means that none are, or that the stream has ended.
    fn read_now(&mut self, out: &mut [u8]) -> io::Result<usize>;
    /// Writes a frame's head and the body after it, together where the system can.
    fn write(&mut self, head: &[u8], body: &[u8]) -> impl Future<Output = io::Result<()>> + Send;
    /// Writes a frame's head and then the bytes `range` of `file`, without passing them through this
    /// process where the system can.
    fn send_file(
        &mut self,
        head: &[u8],
        file: &dyn ReadAt,
        range: Range<u64>,
    ) -> impl Future<Output = Result<(), SendFileError>> + Send;
}

/// The reason why a transfer failed. The stream cannot go on in either case, because a length was promised.
#[derive(Debug, thiserror::Error)]
pub enum SendFileError {
    /// The file ended early or cannot be read.
    #[error("the file cannot be read: {0}")]
    File(io::Error),
    /// The stream broke before all was sent.
    #[error("the connection broke: {0}")]
    Stream(#[from] io::Error),
}

/// Reads some bytes of a file at `offset`, and returns their number. A file that ends there is an error.
pub fn read_some_at(
    file: &dyn ReadAt,
    out: &mut [u8],
    offset: u64,
) -> Result<usize, SendFileError> {
    match file.read_at(out, offset) {
        Ok(0) => Err(SendFileError::File(io::ErrorKind::UnexpectedEof.into())),
        read => read.map_err(SendFileError::File),
    }
}

/// The stored bytes that can be sent.
pub trait ReadAt: Send + Sync {
    /// Returns the machine's file that has the bytes, if they are in one.
    fn as_file(&self) -> Option<&File>;
    /// Reads some bytes at `offset`; 0 means the end.
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn as_file(&self) -> Option<&File> {
        Some(self)
    }
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self, out, offset)
    }
}

/// A bulk connection over a stream of the runtime.
#[derive(Debug)]
pub struct StreamIo<S>(pub S);

impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> BulkIo for StreamIo<S> {
    async fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out).await
    }

    fn read_now(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut out = ReadBuf::new(out);
        // The one task that reads the stream registers itself again when it waits.
        let mut now = Context::from_waker(Waker::noop());
        match Pin::new(&mut self.0).poll_read(&mut now, &mut out) {
            Poll::Ready(read) => read.map(|()| out.filled().len()),
            Poll::Pending => Ok(0),
        }
    }

    async fn write(&mut self, head: &[u8], body: &[u8]) -> io::Result<()> {
        let mut sent = 0;
        while sent < head.len() {
            let parts = [io::IoSlice::new(&head[sent..]), io::IoSlice::new(body)];
            let n = self.0.write_vectored(&parts).await?;
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            sent += n;
        }
        self.0.write_all(&body[sent - head.len()..]).await
    }

    async fn send_file(
        &mut self,
        head: &[u8],
        file: &dyn ReadAt,
        range: Range<u64>,
    ) -> Result<(), SendFileError> {
        let mut at = range.start;
        let mut buffer = vec![0; PIECE.min((range.end - at) as usize)];
        self.0.write_all(head).await?;
        while at < range.end {
            let want = buffer.len().min((range.end - at) as usize);
            let n = read_some_at(file, &mut buffer[..want], at)?;
            self.0.write_all(&buffer[..n]).await?;
            at += n as u64;
        }
        Ok(())
    }
}
