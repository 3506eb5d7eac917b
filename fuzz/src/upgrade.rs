//! The decoder of the answer to the upgrade that opens a bulk connection.

use crate::decoder::Decoder;
use potluck_core::entropy::SystemEntropy;
use potluck_wire::addresses::Address;
use potluck_wire::net::{BoxFuture, BoxStream, Detached, Listener, Net, Stream};
use potluck_wire::upgrade::{UpgradeError, open_at};
use std::io::{self, Cursor};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Builder, Runtime};

pub const DECODERS: [Decoder; 1] =
    [Decoder { name: "upgrade-answer", read: upgrade_answer, seeds: answers }];

fn upgrade_answer(bytes: &[u8]) -> bool {
    thread_local! {
        static RUNTIME: Runtime =
            Builder::new_current_thread().enable_time().build().expect("a runtime");
    }
    let net = Answering(bytes.to_vec());
    let address: Address = "127.0.0.1:7701".parse().expect("an address");
    let ticket = crate::texts::issued_ticket();
    let opening = open_at(&net, &SystemEntropy, address, &ticket);
    let opened = RUNTIME.with(|runtime| runtime.block_on(opening));
    matches!(opened, Ok(_) | Err(UpgradeError::Refused(_)))
}

fn answers() -> Vec<Vec<u8>> {
    let (nonce, frame) = ("1".repeat(32), "0".repeat(40));
    let upgraded =
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: potluck-bulk/1\r\n";
    let refused = "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno";
    vec![format!("{upgraded}potluck-nonce: {nonce}\r\n\r\n{frame}").into(), refused.into()]
}

/// A network in which every peer answers with the same bytes, whatever it hears.
struct Answering(Vec<u8>);

impl Net for Answering {
    fn connect<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<BoxStream>> {
        let answer = Cursor::new(self.0.clone());
        let stream: BoxStream = Box::new(Answer { answer, was_asked: false, waiting: None });
        Box::pin(async { Ok(stream) })
    }

    fn listen<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    fn own_hosts(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async { Vec::new() })
    }
}

/// A stream whose peer answers once it was asked something.
struct Answer {
    answer: Cursor<Vec<u8>>,
    /// True once something was written; the peer does not answer before.
    was_asked: bool,
    waiting: Option<Waker>,
}

impl Stream for Answer {
    fn detach(self: Box<Self>) -> io::Result<Detached> {
        Ok(Detached::Stream(self))
    }
}

impl AsyncRead for Answer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.was_asked {
            self.waiting = Some(context.waker().clone());
            return Poll::Pending;
        }
        Pin::new(&mut self.answer).poll_read(context, into)
    }
}

impl AsyncWrite for Answer {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.was_asked = true;
        self.waiting.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
