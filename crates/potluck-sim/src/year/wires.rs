//! A network in memory without latency, which costs little for many machines over a long time.
//!
//! A machine leaves the network at once, as when it goes to sleep, and its peers find their connections reset.

use potluck_wire::net::{BoxFuture, BoxStream, Detached, Listener, Net, Stream};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The most bytes that are on their way in one direction of a connection.
const WINDOW: usize = 256 << 10;

/// The network of all machines. Clones are the same network.
#[derive(Clone, Default)]
pub struct Wires(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    listeners: BTreeMap<SocketAddr, UnboundedSender<(BoxStream, SocketAddr)>>,
    /// The connections of each machine, some of which may have ended.
    connections: BTreeMap<SocketAddr, Vec<Weak<Connection>>>,
}

/// The state that both ends of a connection share.
#[derive(Debug, Default)]
struct Connection(Mutex<Ends>);

#[derive(Debug, Default)]
struct Ends {
    is_reset: bool,
    /// The wakers of the reader and the writer of one end, and then those of the other.
    waiting: [Option<Waker>; 4],
}

impl Connection {
    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().expect("no holder panics")
    }

    fn reset(&self) {
        let mut ends = self.ends();
        ends.is_reset = true;
        ends.waiting.iter_mut().filter_map(Option::take).for_each(Waker::wake);
    }

    /// Fails if the connection was reset; otherwise has `context` woken when it is.
    fn check(&self, side: usize, context: &Context<'_>) -> io::Result<()> {
        let mut ends = self.ends();
        if ends.is_reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        ends.waiting[side] = Some(context.waker().clone());
        Ok(())
    }
}

impl Wires {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no holder panics")
    }

    /// Returns the network of the machine at `here`.
    pub fn machine(&self, here: SocketAddr) -> MachineNet {
        MachineNet { wires: self.clone(), here }
    }

    /// Takes the machine at `here` off the network.
    pub fn cut(&self, here: SocketAddr) {
        let connections = {
            let mut state = self.state();
            state.listeners.remove(&here);
            state.connections.remove(&here).unwrap_or_default()
        };
        connections.iter().filter_map(Weak::upgrade).for_each(|connection| connection.reset());
    }

    fn connect(&self, from: SocketAddr, to: SocketAddr) -> io::Result<BoxStream> {
        let connection = Arc::new(Connection::default());
        let (ours, theirs) = tokio::io::duplex(WINDOW);
        let mut state = self.state();
        let listener = state.listeners.get(&to).ok_or(io::ErrorKind::ConnectionRefused)?;
        let theirs = End { bytes: theirs, connection: Arc::clone(&connection), side: 2 };
        if listener.send((Box::new(theirs), from)).is_err() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        for machine in [from, to] {
            let connections = state.connections.entry(machine).or_default();
            // Ended connections are removed only when the list is full, so that this costs little on average.
            if connections.len() == connections.capacity() {
                connections.retain(|connection| connection.strong_count() > 0);
            }
            connections.push(Arc::downgrade(&connection));
        }
        Ok(Box::new(End { bytes: ours, connection, side: 0 }))
    }
}

/// The network of one machine.
pub struct MachineNet {
    wires: Wires,
    here: SocketAddr,
}

impl Net for MachineNet {
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<BoxStream>> {
        let to = address.parse().map_err(|_| io::Error::from(io::ErrorKind::NotFound));
        Box::pin(std::future::ready(to.and_then(|to| self.wires.connect(self.here, to))))
    }

    fn listen<'a>(&'a self, _address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        let (sender, connections) = unbounded_channel();
        self.wires.state().listeners.insert(self.here, sender);
        let listener = MachineListener { here: self.here, connections };
        Box::pin(std::future::ready(Ok(Box::new(listener) as Box<dyn Listener>)))
    }

    fn own_hosts(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(std::future::ready(Vec::new()))
    }
}

struct MachineListener {
    here: SocketAddr,
    connections: UnboundedReceiver<(BoxStream, SocketAddr)>,
}

impl Listener for MachineListener {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.here)
    }

    fn accept(&mut self) -> BoxFuture<'_, io::Result<(BoxStream, SocketAddr)>> {
        Box::pin(async move {
            match self.connections.recv().await {
                Some(connection) => Ok(connection),
                // The machine has left the network.
                None => std::future::pending().await,
            }
        })
    }
}

/// One end of a connection.
struct End {
    bytes: DuplexStream,
    connection: Arc<Connection>,
    /// The index of its reader in [`Ends::waiting`]; its writer has the next one.
    side: usize,
}

impl Stream for End {
    fn detach(self: Box<Self>) -> io::Result<Detached> {
        Ok(Detached::Stream(self))
    }
}

impl AsyncRead for End {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.connection.check(self.side, context)?;
        Pin::new(&mut self.bytes).poll_read(context, buffer)
    }
}

impl AsyncWrite for End {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.connection.check(self.side + 1, context)?;
        Pin::new(&mut self.bytes).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_shutdown(context)
    }
}
