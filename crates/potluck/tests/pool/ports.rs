//! Picks ports for daemons that have to find them free when they are started again.

use std::mem;
use std::net::{TcpListener, UdpSocket};
use std::ops::Range;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// The ports to pick from, below those that the system gives to outgoing connections, and to daemons that ask for any
/// port.
const PORTS: Range<u16> = 10_000..32_000;

/// Returns a free port of this machine, which nobody else is given while this process lives.
pub fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    loop {
        // Processes that run tests at the same time begin at different places.
        let given = GIVEN.fetch_add(1, Ordering::Relaxed);
        let place = process::id().wrapping_mul(977).wrapping_add(given) % PORTS.len() as u32;
        let port = PORTS.start + place as u16;
        // No daemon uses UDP there, so this socket tells other processes that the port is given, also while the daemon
        // is dead and another one would find the port free.
        let Ok(taken) = UdpSocket::bind(("127.0.0.1", port)) else { continue };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            mem::forget(taken);
            return port;
        }
    }
}
