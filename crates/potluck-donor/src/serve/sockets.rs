//! The sockets that threads wait on, so that the threads can be woken when the donor shuts down.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

/// The sockets in use by threads.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    open: Mutex<OpenSockets>,
}

#[derive(Debug, Default)]
struct OpenSockets {
    next: u64,
    sockets: BTreeMap<u64, TcpStream>,
}

impl Sockets {
    fn open(&self) -> MutexGuard<'_, OpenSockets> {
        self.open.lock().expect("no holder panics")
    }

    /// Remembers `socket` until the result is dropped.
    pub fn enter(self: &Arc<Self>, socket: &TcpStream) -> io::Result<Entered> {
        let socket = socket.try_clone()?;
        let mut open = self.open();
        let key = open.next;
        open.next += 1;
        open.sockets.insert(key, socket);
        Ok(Entered { sockets: Arc::clone(self), key })
    }

    /// Ends reading from all sockets: threads see the end of their stream where the next request would begin.
    pub fn stop_reading(&self) {
        self.shut(Shutdown::Read);
    }

    /// Ends reading and writing on all sockets, so that threads can do neither.
    pub fn cut(&self) {
        self.shut(Shutdown::Both);
    }

    fn shut(&self, how: Shutdown) {
        for socket in self.open().sockets.values() {
            let _ = socket.shutdown(how); // the peer may have been faster
        }
    }
}

/// A socket in use, which is forgotten when this is dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    sockets: Arc<Sockets>,
    key: u64,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.sockets.open().sockets.remove(&self.key);
    }
}
