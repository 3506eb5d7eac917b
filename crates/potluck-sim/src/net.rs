//! The product's network interface over turmoil's network, and membership without TLS.
//!
//! In a simulation a certificate only has to say who a member is. Members join by the real call and get
//! real certificates. Afterwards a connection to the manager begins with the certificate's fingerprint in
//! the clear instead of a TLS handshake, whose randomness no seed decides.

use crate::cast::Who;
use crate::trace::Trace;
use potluck_core::chunk::Digest;
use potluck_wire::net::{BoxFuture, BoxStream, CONNECT_DEADLINE, Detached, Listener, Net, Stream};
use potluck_wire::tls::{Admit, Dial, HANDSHAKE_DEADLINE};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use turmoil::net::{TcpListener, TcpStream};

/// The network of one machine.
#[derive(Debug, Clone)]
pub struct SimNet {
    /// The machine that this network belongs to.
    pub who: Who,
    /// Records every attempt to connect.
    pub trace: Trace,
    /// The number of bytes that the machine has sent.
    pub sent: Arc<AtomicU64>,
}

struct SimStream {
    tcp: TcpStream,
    sent: Arc<AtomicU64>,
}

struct SimListener {
    tcp: TcpListener,
    sent: Arc<AtomicU64>,
}

impl Net for SimNet {
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<BoxStream>> {
        Box::pin(async move {
            let connected = in_time(CONNECT_DEADLINE, TcpStream::connect(address)).await;
            match &connected {
                Ok(_) => self.trace.say(self.who, format_args!("connected to {address}")),
                Err(why) => {
                    self.trace.say(self.who, format_args!("no way to {address}: {:?}", why.kind()));
                }
            }
            Ok(Box::new(SimStream { tcp: connected?, sent: Arc::clone(&self.sent) }) as BoxStream)
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let tcp = TcpListener::bind(address).await?;
            Ok(Box::new(SimListener { tcp, sent: Arc::clone(&self.sent) }) as Box<dyn Listener>)
        })
    }

    /// Returns no names: a simulated machine advertises its address in its configuration.
    fn own_hosts(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(std::future::ready(Vec::new()))
    }
}

async fn in_time<T>(most: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "no answer");
    tokio::time::timeout(most, work).await.map_err(|_| late())?
}

impl Listener for SimListener {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    fn accept(&mut self) -> BoxFuture<'_, io::Result<(BoxStream, SocketAddr)>> {
        Box::pin(async move {
            let (tcp, peer) = self.tcp.accept().await?;
            Ok((Box::new(SimStream { tcp, sent: Arc::clone(&self.sent) }) as BoxStream, peer))
        })
    }
}

impl Stream for SimStream {
    fn detach(self: Box<Self>) -> io::Result<Detached> {
        Ok(Detached::Stream(self))
    }
}

impl AsyncRead for SimStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(context, buffer)
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.tcp).poll_write(context, bytes);
        if let Poll::Ready(Ok(n)) = &written {
            self.sent.fetch_add(*n as u64, Ordering::Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}

/// Begins a connection with the caller's identity: a member's fingerprint, or zeros for a stranger.
#[derive(Debug, Clone, Copy)]
pub struct SayWho(pub Option<Digest>);

/// Admits connections and believes the identity that the caller sends.
#[derive(Debug, Clone, Copy)]
pub struct BelieveWho;

impl Dial for SayWho {
    fn secure(&self, mut stream: BoxStream) -> BoxFuture<'_, io::Result<BoxStream>> {
        Box::pin(in_time(HANDSHAKE_DEADLINE, async move {
            stream.write_all(&self.0.unwrap_or(Digest([0; 32])).0).await?;
            Ok(stream)
        }))
    }
}

impl Admit for BelieveWho {
    fn admit(
        &self,
        mut stream: BoxStream,
    ) -> BoxFuture<'_, io::Result<(BoxStream, Option<Digest>)>> {
        Box::pin(in_time(HANDSHAKE_DEADLINE, async move {
            let mut who = [0; 32];
            stream.read_exact(&mut who).await?;
            Ok((stream, (who != [0; 32]).then_some(Digest(who))))
        }))
    }
}
