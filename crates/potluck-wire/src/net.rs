//! Sockets as an argument: those of the machine, or of a simulation.

use crate::addresses::{Addresses, is_of_one_machine};
use crate::mdns::{self, Nearby};
use crate::open_files;
use potluck_core::chunk::Digest;
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::fs::File;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpSocket;

/// The time within which a connection has to open before the peer counts as away.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(3);

/// A future that can be stored.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A byte stream between two roles.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// Returns the machine's socket behind the stream, in blocking mode, for code that runs on a thread of its own; the
    /// stream itself where there is none (TLS, simulation).
    fn detach(self: Box<Self>) -> io::Result<Detached>;

    /// Returns the machine's socket behind the stream, as the kernel sees it; where there is no socket, a side that
    /// knows nothing.
    fn kernel_side(&self) -> KernelSide {
        KernelSide::default()
    }
}

/// A stream that left its runtime, if it could.
pub enum Detached {
    /// The machine's socket, in blocking mode.
    Socket(std::net::TcpStream),
    /// The stream has no socket of its own, and remains a stream.
    Stream(BoxStream),
}

/// The kernel's side of a stream's socket. It keeps the connection open, and is to be dropped with the stream.
#[derive(Debug, Default)]
pub struct KernelSide {
    socket: Option<Arc<OwnedFd>>,
    low_water: LowWater,
}

impl KernelSide {
    /// Makes the kernel's side of a socket of this machine.
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self {
            socket: Some(Arc::new(socket.try_clone_to_owned()?)),
            low_water: LowWater::default(),
        })
    }

    /// Lets the reader sleep until `bytes` are there, or the stream has ended, instead of waking it
    /// for every segment. The kernel caps it by what its receive buffer can hold.
    pub fn wake_at(&mut self, bytes: usize) {
        if let Some(socket) = &self.socket {
            self.low_water.set(socket.as_fd(), bytes);
        }
    }

    /// Returns the sender of parts of files over this socket; `None` where there is no socket.
    pub fn file_sender(&self) -> Option<FileSender> {
        let socket = Arc::clone(self.socket.as_ref()?);
        Some(FileSender { socket })
    }

    /// Returns a view of the bytes that are to be read, which does not keep the connection open.
    pub fn unread(&self) -> UnreadBytes {
        UnreadBytes { socket: self.socket.as_ref().map(Arc::downgrade).unwrap_or_default() }
    }

    /// Returns the number of bytes that were written and that the peer has not taken; 0 where it is not known.
    pub fn untaken(&self) -> u64 {
        let Some(socket) = &self.socket else { return 0 };
        let mut bytes: libc::c_int = 0;
        // SAFETY: the call writes one int, which outlives it.
        let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if done == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
    }
}

/// A view of the bytes that a socket has received and its reader has not read yet.
#[derive(Debug, Clone, Default)]
pub struct UnreadBytes {
    socket: Weak<OwnedFd>,
}

impl UnreadBytes {
    /// Returns the number of these bytes; 0 where it is not known.
    pub fn count(&self) -> u64 {
        let unread = self.socket.upgrade().map(|socket| rustix::io::ioctl_fionread(&*socket));
        unread.and_then(Result::ok).unwrap_or(0)
    }
}

/// A sender of parts of files over a stream's socket, which does not pass them through this process. It waits for
/// nothing: where the socket takes no more, `WouldBlock` is returned, and a write to the stream waits. It may be used
/// only between two writes to the stream, by the task that writes.
#[derive(Debug)]
pub struct FileSender {
    socket: Arc<OwnedFd>,
}

impl FileSender {
    /// Sends some bytes of what goes before a part, to leave together with its first bytes; returns their number.
    pub fn send_head(&self, head: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
        Ok(rustix::io::retry_on_intr(|| rustix::net::send(&self.socket, head, flags))?)
    }

    /// Sends some bytes of `file` between the offsets `at` and `end`, moves `at` past them, and returns their number. 0
    /// means that the file ends at `at`.
    ///
    /// Errors: `WouldBlock` where the socket takes no more now, and also where the file cannot be sent in this way,
    /// because its file system does not support it or a read fails. A plain read of the file then tells which.
    pub fn send(&self, file: &File, at: &mut u64, end: u64) -> io::Result<u64> {
        let count = (end - *at) as usize;
        let sent = rustix::io::retry_on_intr(|| {
            rustix::fs::sendfile(&self.socket, file, Some(&mut *at), count)
        });
        match sent {
            // The error does not say which end failed; if it was the socket, the next write tells.
            Err(Errno::INVAL | Errno::NOSYS | Errno::IO | Errno::OVERFLOW) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            sent => Ok(sent? as u64),
        }
    }
}

/// The number of bytes that must be there before the kernel wakes the reader of a socket, as far as this program has
/// said.
#[derive(Debug)]
pub struct LowWater(usize);

impl Default for LowWater {
    /// Returns the setting of every new socket: any byte wakes the reader.
    fn default() -> Self {
        Self(1)
    }
}

impl LowWater {
    /// Lets a reader of `socket`, which must always be the same, sleep until `bytes` are there, or the stream has
    /// ended. It costs a system call where this changes anything.
    pub fn set(&mut self, socket: BorrowedFd<'_>, bytes: usize) {
        if bytes == self.0 {
            return;
        }
        let mark = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        // SAFETY: the option takes one int, which outlives the call.
        let done = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVLOWAT,
                (&raw const mark).cast(),
                size_of_val(&mark) as libc::socklen_t,
            )
        };
        // If this fails, the reader is woken more often than need be.
        if done == 0 {
            self.0 = bytes;
        }
    }
}

/// Any stream, on the heap.
pub type BoxStream = Box<dyn Stream>;

/// A network: it opens streams and accepts them.
pub trait Net: Send + Sync + 'static {
    /// Opens a stream to `address` (`host:port`) within [`CONNECT_DEADLINE`].
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<BoxStream>>;
    /// Accepts streams at `address`; port 0 picks a free one.
    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>>;
    /// Returns how others call this machine: names and addresses without ports, the best first; none where
    /// that cannot be known.
    fn own_hosts(&self) -> BoxFuture<'_, Vec<String>>;
    /// Returns the addresses of this machine's network interfaces that other machines may reach; none where they cannot
    /// be known. It costs little, so that it can be asked often.
    fn own_ips(&self) -> Vec<IpAddr> {
        Vec::new()
    }
    /// Looks on this machine's own networks for members that say they are of the pool with this
    /// fingerprint; finds none where nobody can be asked.
    fn nearby<'a>(&'a self, _pool: &'a Digest) -> BoxFuture<'a, Nearby> {
        Box::pin(async { Nearby::default() })
    }
}

/// A network shared by the tasks of a role.
pub type SharedNet = Arc<dyn Net>;

/// A listener that accepts streams.
pub trait Listener: Send {
    /// Returns the address at which the listener listens.
    fn local_addr(&self) -> io::Result<SocketAddr>;
    /// Returns the number of streams that can be open at once; a thousand or two where nothing limits them.
    fn capacity(&self) -> usize {
        2048
    }
    /// Waits for the next stream, and tells who opened it.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(BoxStream, SocketAddr)>>;
}

/// The network of the machine.
#[derive(Debug, Default)]
pub struct SystemNet;

impl Stream for tokio::net::TcpStream {
    fn detach(self: Box<Self>) -> io::Result<Detached> {
        let socket = self.into_std()?;
        socket.set_nonblocking(false)?;
        Ok(Detached::Socket(socket))
    }

    fn kernel_side(&self) -> KernelSide {
        // Without a kernel side all works, with more wake-ups.
        KernelSide::of(self.as_fd()).unwrap_or_default()
    }
}

impl Net for SystemNet {
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<BoxStream>> {
        Box::pin(async move {
            #[allow(clippy::disallowed_methods)] // the one place that opens real sockets
            let connecting = async {
                let found = match mdns::local_name(address) {
                    None => look_up(address).await?,
                    Some((host, port)) => mdns::look_up(host, port).await?,
                };
                tokio::net::TcpStream::connect(&*to_try(found)).await
            };
            let stream = tokio::time::timeout(CONNECT_DEADLINE, connecting)
                .await
                .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no answer"))??;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as BoxStream)
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = match bind(address).await {
                // On a kernel without IPv6, all addresses are those of IPv4.
                Err(why) if no_ipv6(&why) && address.starts_with("[::]:") => {
                    bind(&address.replacen("[::]", "0.0.0.0", 1)).await?
                }
                bound => bound?,
            };
            Ok(Box::new(listener) as Box<dyn Listener>)
        })
    }

    fn own_hosts(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(crate::own_addresses::of_this_machine())
    }

    fn own_ips(&self) -> Vec<IpAddr> {
        crate::own_addresses::ips_of_this_machine()
    }

    fn nearby<'a>(&'a self, pool: &'a Digest) -> BoxFuture<'a, Nearby> {
        Box::pin(mdns::look_around(pool))
    }
}

/// Returns those of the addresses that a name leads to at which a connection is tried: the first ones, as many as a
/// member may have addresses. Whoever says that it is at a name may have that name lead to any number of addresses.
fn to_try(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let found = found.into_iter().filter(|address| is_of_one_machine(address.ip()));
    found.take(Addresses::MOST).collect()
}

async fn look_up(address: &str) -> io::Result<Vec<SocketAddr>> {
    let unknown = |why: io::Error| {
        let why = why.to_string();
        let why = why.trim_start_matches("failed to lookup address information: ");
        io::Error::new(io::ErrorKind::NotFound, format!("its name cannot be looked up ({why})"))
    };
    Ok(tokio::net::lookup_host(address).await.map_err(unknown)?.collect())
}

/// The most connections that the kernel keeps until they are accepted. Where more come at once it lets them try again
/// a second later, and again: many clients have given up by then.
const BACKLOG: u32 = 4096;

async fn bind(address: &str) -> io::Result<tokio::net::TcpListener> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in tokio::net::lookup_host(address).await? {
        let listen = || {
            let socket = match address {
                SocketAddr::V4(_) => TcpSocket::new_v4()?,
                SocketAddr::V6(_) => TcpSocket::new_v6()?,
            };
            // The port can be taken though connections of the daemon that had it before are still closing.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(BACKLOG)
        };
        match listen() {
            Ok(listener) => return Ok(listener),
            Err(why) => failed = why,
        }
    }
    Err(failed)
}

fn no_ipv6(why: &io::Error) -> bool {
    let codes = [libc::EAFNOSUPPORT, libc::EADDRNOTAVAIL];
    why.raw_os_error().is_some_and(|code| codes.contains(&code))
}

impl Listener for tokio::net::TcpListener {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        tokio::net::TcpListener::local_addr(self)
    }

    fn capacity(&self) -> usize {
        open_files::connections()
    }

    fn accept(&mut self) -> BoxFuture<'_, io::Result<(BoxStream, SocketAddr)>> {
        Box::pin(async move {
            let (stream, peer) = tokio::net::TcpListener::accept(self).await?;
            stream.set_nodelay(true)?;
            Ok((Box::new(stream) as BoxStream, peer))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn dns_answers_are_bounded_and_refused_when_too_many() {
        let many = ["0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "ff02::1"];
        let many = many.map(|ip| SocketAddr::new(ip.parse().expect("an address"), 25));
        let one = |n: u8| SocketAddr::from(([10, 0, n, 1], 25));
        let found = many.into_iter().chain((0..=255).map(one)).collect();
        let expected: Vec<_> = (0..Addresses::MOST as u8).map(one).collect();
        assert_eq!(to_try(found), expected);
        let loopback = vec![SocketAddr::from(([127, 0, 0, 1], 7701))];
        assert_eq!(to_try(loopback.clone()), loopback, "a pool may be on one machine");
    }

    #[tokio::test]
    async fn a_reader_sleeps_until_enough_is_there() {
        let mut listener = SystemNet.listen("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let mut ours = SystemNet.connect(&address).await.expect("connected");
        let (mut theirs, _) = listener.accept().await.expect("accepted");
        let mut kernel = ours.kernel_side();
        let (mut out, soon) = ([0; 2000], Duration::from_millis(50));
        kernel.wake_at(1000);
        theirs.write_all(&[0; 999]).await.expect("sent");
        assert!(tokio::time::timeout(soon, ours.read(&mut out)).await.is_err(), "one is missing");
        theirs.write_all(&[0]).await.expect("sent");
        assert_eq!(ours.read(&mut out).await.expect("bytes"), 1000);

        theirs.write_all(&[0]).await.expect("sent");
        assert!(tokio::time::timeout(soon, ours.read(&mut out)).await.is_err());
        kernel.wake_at(1);
        assert_eq!(ours.read(&mut out).await.expect("bytes"), 1);
        assert_eq!(kernel.untaken(), 0);

        // A directory stands for a file whose file system cannot send it.
        let files = kernel.file_sender().expect("a socket");
        let dir = File::open(std::env::temp_dir()).expect("a directory");
        let sent = files.send(&dir, &mut 0, 10);
        assert_eq!(sent.expect_err("no file").kind(), io::ErrorKind::WouldBlock);
    }
}
