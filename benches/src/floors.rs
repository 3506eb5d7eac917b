//! The floors: what any store must do with the same bytes, as lean as we know how to write it, in processes of
//! their own.
//!
//! - *floor-put*: read a file, BLAKE3, socket ‖ socket, BLAKE3, write one file. *floor-put2* does so to two sinks.
//! - *floor-get*: `sendfile`, socket ‖ socket, BLAKE3.
//! - *floor-ec*: see `floor_ec`.
//!
//! They keep no catalog, no frames, no chunk files and no tickets. Each piece is hashed while it is still in the
//! cache, buffers are reused, and the digest is finished once a chunk, as the product must. A sink answers with
//! what it hashed, so a floor that lost bytes fails instead of looking fast.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// The bytes after which a digest is finished: the product's default chunk size.
pub const CHUNK: usize = 4 << 20;

/// The bytes of each read, hash and write. Of 64 KiB to 2 MiB, 1 MiB cost least here, a quarter less than 256 KiB
/// on a put, for the page cache takes a long write in large folios. `potluck-bench floors --piece` compares.
pub const PIECE: usize = 1 << 20;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A digest per chunk, and one over those digests to compare both ends.
pub struct Digests {
    chunk: blake3::Hasher,
    filled: usize,
    all: blake3::Hasher,
}

impl Digests {
    pub fn new() -> Self {
        Self { chunk: blake3::Hasher::new(), filled: 0, all: blake3::Hasher::new() }
    }

    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (head, tail) = bytes.split_at(bytes.len().min(CHUNK - self.filled));
            self.chunk.update(head);
            self.filled += head.len();
            if self.filled == CHUNK {
                self.finish_chunk();
            }
            bytes = tail;
        }
    }

    fn finish_chunk(&mut self) {
        self.all.update(self.chunk.finalize().as_bytes());
        self.chunk.reset();
        self.filled = 0;
    }

    pub fn finish(mut self) -> [u8; 32] {
        if self.filled > 0 {
            self.finish_chunk();
        }
        *self.all.finalize().as_bytes()
    }
}

/// Sends `file` to every sink, hashing each piece once, and returns when all of them have confirmed the digest.
pub fn put_source(file: &Path, sinks: &[SocketAddr], piece: usize) -> Result<()> {
    let mut file = open(file)?;
    let mut sinks = sinks.iter().map(connect).collect::<Result<Vec<_>>>()?;
    let (mut digests, mut piece) = (Digests::new(), vec![0; piece]);
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            break;
        }
        digests.update(&piece[..read]);
        for sink in &mut sinks {
            sink.write_all(&piece[..read])?;
        }
    }
    let sent = digests.finish();
    for sink in &mut sinks {
        sink.shutdown(std::net::Shutdown::Write)?;
        let mut stored = [0; 32];
        sink.read_exact(&mut stored).context("a floor sink hung up before it confirmed")?;
        ensure!(stored == sent, "a floor sink hashed other bytes than were sent");
    }
    Ok(())
}

/// Prints the port it listens on, then stores what one connection sends in `out`.
pub fn put_sink(out: &Path, piece: usize) -> Result<()> {
    let mut socket = accept_announced(LOOPBACK)?;
    wake_once_per(piece, &socket)?;
    let mut out = File::create(out).with_context(|| format!("cannot create {}", out.display()))?;
    let (mut digests, mut piece) = (Digests::new(), vec![0; piece]);
    loop {
        let received = fill(&mut socket, &mut piece)?;
        digests.update(&piece[..received]);
        out.write_all(&piece[..received])?;
        if received < piece.len() {
            break;
        }
    }
    socket.write_all(&digests.finish())?;
    Ok(())
}

/// Prints the port it listens on, then sends `file` to one connection without touching its bytes.
pub fn get_source(file: &Path) -> Result<()> {
    let socket = accept_announced(LOOPBACK)?;
    let file = open(file)?;
    let length = file.metadata()?.len();
    let mut offset = 0;
    while offset < length {
        let sent = rustix::fs::sendfile(&socket, &file, Some(&mut offset), CHUNK)?;
        ensure!(sent > 0, "the file shrank while it was sent");
    }
    Ok(())
}

/// Receives and hashes `length` bytes from the source.
pub fn get_sink(source: &SocketAddr, length: u64, piece: usize) -> Result<()> {
    let mut socket = connect(source)?;
    wake_once_per(piece, &socket)?;
    let (mut digests, mut piece) = (Digests::new(), vec![0; piece]);
    let mut total = 0;
    loop {
        let received = fill(&mut socket, &mut piece)?;
        digests.update(&piece[..received]);
        total += received as u64;
        if received < piece.len() {
            break;
        }
    }
    std::hint::black_box(digests.finish());
    ensure!(total == length, "received {total} of {length} bytes");
    Ok(())
}

pub fn open(path: &Path) -> Result<File> {
    File::open(path).with_context(|| format!("cannot open {}", path.display()))
}

pub fn connect(address: &SocketAddr) -> Result<TcpStream> {
    TcpStream::connect(address)
        .with_context(|| format!("cannot reach the other half of the floor at {address}"))
}

/// Prints where it listens, and takes one connection.
pub fn accept_announced(at: IpAddr) -> Result<TcpStream> {
    let listener = TcpListener::bind((at, 0))?;
    println!("{}", listener.local_addr()?);
    io::stdout().flush()?;
    Ok(listener.accept()?.0)
}

/// Lets the reader sleep until a whole piece is there, or the peer has finished, instead of waking it for every
/// segment: 5 to 10 % of the CPU time here. Larger socket buffers on either side gained nothing beyond that.
fn wake_once_per(piece: usize, socket: &TcpStream) -> io::Result<()> {
    let piece = libc::c_int::try_from(piece).unwrap_or(libc::c_int::MAX);
    let length = size_of_val(&piece) as libc::socklen_t;
    // SAFETY: the option takes one int, which outlives the call.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const piece).cast(),
            length,
        )
    } != 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads until `buffer` is full or the peer has finished: BLAKE3 is at its best on whole pieces, and the file gets
/// whole pages.
fn fill(socket: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match socket.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
