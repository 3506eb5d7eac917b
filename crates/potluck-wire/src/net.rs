//! Sockets as an argument: the machine's, or a simulation's.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// How long a connection may take to open before the peer counts as away.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(3);

/// A future that can be stored.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A byte stream between two roles.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// The machine's socket behind the stream, in blocking mode, for code that runs on a thread
    /// of its own; the stream itself where there is none (TLS, simulation).
    fn detach(self: Box<Self>) -> io::Result<Detached>;
}

/// A stream that left its runtime, if it could.
pub enum Detached {
    /// The machine's socket, in blocking mode.
    Socket(std::net::TcpStream),
    /// No socket of its own; still a stream.
    Stream(BoxStream),
}

/// Any stream.
pub type BoxStream = Box<dyn Stream>;

/// Where streams come from.
pub trait Net: Send + Sync + 'static {
    /// Opens a stream to `address` (`host:port`) within [`CONNECT_DEADLINE`].
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<BoxStream>>;
    /// Accepts streams at `address`; port 0 picks a free one.
    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>>;
}

/// A network shared by the tasks of a role.
pub type SharedNet = Arc<dyn Net>;

/// Accepts streams.
pub trait Listener: Send {
    /// Where it listens.
    fn local_addr(&self) -> io::Result<SocketAddr>;
    /// The next stream and who opened it.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(BoxStream, SocketAddr)>>;
}

/// The machine's network.
#[derive(Debug, Default)]
pub struct SystemNet;

impl Stream for tokio::net::TcpStream {
    fn detach(self: Box<Self>) -> io::Result<Detached> {
        let socket = self.into_std()?;
        socket.set_nonblocking(false)?;
        Ok(Detached::Socket(socket))
    }
}

impl Net for SystemNet {
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<BoxStream>> {
        Box::pin(async move {
            #[allow(clippy::disallowed_methods)] // the one place that opens real sockets
            let connecting = tokio::net::TcpStream::connect(address);
            let stream = tokio::time::timeout(CONNECT_DEADLINE, connecting)
                .await
                .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no answer"))??;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as BoxStream)
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            #[allow(clippy::disallowed_methods)] // the one place that opens real sockets
            let listener = tokio::net::TcpListener::bind(address).await?;
            Ok(Box::new(listener) as Box<dyn Listener>)
        })
    }
}

impl Listener for tokio::net::TcpListener {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        tokio::net::TcpListener::local_addr(self)
    }

    fn accept(&mut self) -> BoxFuture<'_, io::Result<(BoxStream, SocketAddr)>> {
        Box::pin(async move {
            let (stream, peer) = tokio::net::TcpListener::accept(self).await?;
            stream.set_nodelay(true)?;
            Ok((Box::new(stream) as BoxStream, peer))
        })
    }
}
