//! A network in memory, without latency: many machines over a long time, at little cost.
//!
//! Machines go off the network at once, as they do when they sleep: what they were connected to finds its
//! connections reset.

use potluck_wire::net::{BoxFuture, BoxStream, Detached, Listener, Net, Stream};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Bytes on their way in one direction of a connection.
const WINDOW: usize = 256 << 10;

/// All machines. Clones are the same network.
#[derive(Clone, Default)]
pub struct Wires(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    listeners: BTreeMap<SocketAddr, UnboundedSender<(BoxStream, SocketAddr)>>,
    /// The connections of each machine, of which some may be gone.
    connections: BTreeMap<SocketAddr, Vec<Weak<Connection>>>,
}

/// A connection, as both of its ends know it.
#[derive(Debug, Default)]
struct Connection(Mutex<Ends>);

#[derive(Debug, Default)]
struct Ends {
    is_reset: bool,
    /// Who waits for either end to be read or written.
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

    /// Fails once it is reset; until then wakes `context` for it.
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

    /// The network as the machine at `here` has it.
    pub fn machine(&self, here: SocketAddr) -> MachineNet {
        MachineNet { wires: self.clone(), here }
    }

    /// The machine at `here` goes off the network.
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
            // Looked through when it has doubled, so that each connection is looked at a few times at most.
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
                // The machine is off the network.
                None => std::future::pending().await,
            }
        })
    }
}

/// One end of a connection.
struct End {
    bytes: DuplexStream,
    connection: Arc<Connection>,
    /// The number of its reader in [`Ends::waiting`]; that of its writer is the next.
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
