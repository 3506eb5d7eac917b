//! The floor of random reads: the source answers an offset with the 64 KiB that begin there, by `pread` and
//! `write`, over a plain TCP connection for each thread. Nothing is hashed, sealed or looked up.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};

use crate::floors::{connect, open};
use crate::rate;

const SEGMENT: u64 = 64 << 10;

/// Prints where it listens, and answers until it is killed.
pub fn source(at: IpAddr, file: &Path) -> Result<()> {
    let file = Arc::new(open(file)?);
    let listener = TcpListener::bind((at, 0))?;
    println!("{}", listener.local_addr()?);
    io::stdout().flush()?;
    loop {
        let (stream, file) = (listener.accept()?.0, Arc::clone(&file));
        stream.set_nodelay(true)?;
        // The thread ends with its connection.
        std::thread::spawn(move || answer(stream, &file));
    }
}

fn answer(mut stream: TcpStream, file: &File) -> Result<()> {
    let mut segment = vec![0; SEGMENT as usize];
    loop {
        let mut offset = [0; 8];
        stream.read_exact(&mut offset)?;
        file.read_exact_at(&mut segment, u64::from_le_bytes(offset))?;
        stream.write_all(&segment)?;
    }
}

/// Reads random segments of a file of `length` bytes, and prints the rate.
pub fn reads(source: &SocketAddr, length: u64, threads: usize) -> Result<()> {
    let segments = length / SEGMENT;
    ensure!(segments > 0, "the file is shorter than a segment");
    let rate = rate::measure(threads, || {
        let mut stream = connect(source)?;
        stream.set_nodelay(true)?;
        let mut segment = vec![0; SEGMENT as usize];
        Ok(move |number: u64| {
            stream.write_all(&(number % segments * SEGMENT).to_le_bytes())?;
            stream.read_exact(&mut segment)?;
            Ok(())
        })
    })?;
    rate.print()
}
