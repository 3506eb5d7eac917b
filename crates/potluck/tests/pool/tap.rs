//! A proxy between a client and a donor that the test holds: it can be slow, record what passes, and be cut.

use super::waiting::pause;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The bytes of socket buffers of a slow proxy: few, so that it holds little and pushes back at once.
const SOCKET_BUFFER: usize = 32 << 10;

/// A proxy that forwards connections to a donor. Closed when dropped.
pub struct Tap {
    address: SocketAddr,
    wire: Arc<Wire>,
}

#[derive(Default)]
struct Wire {
    target: Mutex<Option<SocketAddr>>,
    /// The bytes a second in each direction of a connection; `None` where there is no limit.
    rate: Option<u64>,
    /// True while the rate has no limit.
    hurries: AtomicBool,
    heard: Option<Mutex<Vec<u8>>>,
    /// True while nothing passes and nobody is told, as on a cable that was pulled.
    cut: AtomicBool,
    closed: AtomicBool,
}

impl Tap {
    /// Makes a proxy that carries at most `bytes_a_second` in each direction of each connection.
    pub fn slow(bytes_a_second: u64) -> Self {
        Self::open(Wire { rate: Some(bytes_a_second), ..Wire::default() })
    }

    /// Makes a proxy that keeps all that passes, in both directions.
    pub fn listening() -> Self {
        Self::open(Wire { heard: Some(Mutex::default()), ..Wire::default() })
    }

    fn open(wire: Wire) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        if wire.rate.is_some() {
            // Connections take these over from the listener.
            set_socket_recv_buffer_size(&listener, SOCKET_BUFFER).expect("a smaller buffer");
            set_socket_send_buffer_size(&listener, SOCKET_BUFFER).expect("a smaller buffer");
        }
        let address = listener.local_addr().expect("an address");
        let wire = Arc::new(wire);
        let carried = Arc::clone(&wire);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if carried.closed.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), Some(target)) = (stream, carried.target()) else { continue };
                carried.connect(stream, target);
            }
        });
        Self { address, wire }
    }

    /// Returns the proxy's address, which the donor tells others as its own.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Sets the address to which connections go.
    pub fn aim(&self, target: &str) {
        let target = target.parse().expect("a donor's address");
        *self.wire.target.lock().expect("no holder panics") = Some(target);
    }

    /// Lifts the limit of the rate, or sets it again.
    pub fn hurry(&self, hurries: bool) {
        self.wire.hurries.store(hurries, Ordering::Relaxed);
    }

    /// Stops all that passes, as when a cable is pulled, or lets it pass again.
    pub fn cut(&self, cut: bool) {
        self.wire.cut.store(cut, Ordering::Relaxed);
    }

    /// Returns the bytes that passed so far.
    pub fn heard(&self) -> Vec<u8> {
        let heard = self.wire.heard.as_ref().expect("a wire that listens");
        heard.lock().expect("no holder panics").clone()
    }

    /// Returns how many bytes passed so far.
    pub fn count(&self) -> usize {
        let heard = self.wire.heard.as_ref().expect("a wire that listens");
        heard.lock().expect("no holder panics").len()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.wire.closed.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address)); // wakes the thread that accepts
    }
}

impl Wire {
    fn target(&self) -> Option<SocketAddr> {
        *self.target.lock().expect("no holder panics")
    }

    fn connect(self: &Arc<Self>, near: TcpStream, target: SocketAddr) {
        let Ok(far) = TcpStream::connect(target) else { return };
        let clone = |stream: &TcpStream| stream.try_clone().expect("another handle");
        for (from, to) in [(clone(&near), clone(&far)), (far, near)] {
            let wire = Arc::clone(self);
            std::thread::spawn(move || wire.carry(from, to));
        }
    }

    /// Carries bytes until either side closes; then both are closed.
    fn carry(&self, mut from: TcpStream, mut to: TcpStream) {
        let (started, mut carried) = (Instant::now(), 0);
        let mut piece = vec![0; 16 << 10];
        while let Ok(n @ 1..) = from.read(&mut piece) {
            while self.cut.load(Ordering::Relaxed) {
                pause(Duration::from_millis(20));
            }
            if let Some(heard) = &self.heard {
                heard.lock().expect("no holder panics").extend_from_slice(&piece[..n]);
            }
            if to.write_all(&piece[..n]).is_err() {
                break;
            }
            carried += n as u64;
            if let Some(rate) = self.rate
                && !self.hurries.load(Ordering::Relaxed)
            {
                let due = Duration::from_secs_f64(carried as f64 / rate as f64);
                pause(due.saturating_sub(started.elapsed()));
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}
