//! The floor of transfers over links: plain TCP streams, one to each donor, that carry zeros and hash nothing.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::str::FromStr;

use anyhow::{Context, Result, ensure};

use crate::floors::{accept_announced, connect};

const PIECE: usize = 256 << 10;

/// A stream: the bytes that it carries, and its other end, written `BYTES@ADDRESS`.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    bytes: u64,
    address: SocketAddr,
}

impl FromStr for Part {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (bytes, address) = text.split_once('@').context("write BYTES@ADDRESS")?;
        Ok(Self { bytes: bytes.parse()?, address: address.parse()? })
    }
}

/// Sends to each sink, and returns when each has confirmed that it has all.
pub fn send(sinks: &[Part]) -> Result<()> {
    with_each(sinks, |mut stream, bytes| {
        write_zeros(&mut stream, bytes)?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let mut received = [0; 8];
        stream.read_exact(&mut received).context("a sink hung up before it confirmed")?;
        ensure!(u64::from_le_bytes(received) == bytes, "a sink received too little");
        Ok(())
    })
}

/// Receives from each source.
pub fn receive(sources: &[Part]) -> Result<()> {
    with_each(sources, |mut stream, bytes| {
        let received = read_all(&mut stream)?;
        ensure!(received == bytes, "received {received} of {bytes} bytes");
        Ok(())
    })
}

/// Prints where it listens, then takes what one connection sends.
pub fn sink(at: IpAddr) -> Result<()> {
    let mut stream = accept_announced(at)?;
    let received = read_all(&mut stream)?;
    stream.write_all(&received.to_le_bytes())?;
    Ok(())
}

/// Prints where it listens, then sends `bytes` to one connection.
pub fn source(at: IpAddr, bytes: u64) -> Result<()> {
    write_zeros(&mut accept_announced(at)?, bytes)
}

fn with_each(parts: &[Part], work: impl Fn(TcpStream, u64) -> Result<()> + Sync) -> Result<()> {
    let stream = |part: &Part| Ok((connect(&part.address)?, part.bytes));
    let streams = parts.iter().map(stream).collect::<Result<Vec<_>>>()?;
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = streams
            .into_iter()
            .map(|(stream, bytes)| scope.spawn(move || work(stream, bytes)))
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no stream panics"))
    })
}

fn write_zeros(stream: &mut TcpStream, mut bytes: u64) -> Result<()> {
    let piece = vec![0; PIECE];
    while bytes > 0 {
        let now = bytes.min(PIECE as u64);
        stream.write_all(&piece[..now as usize])?;
        bytes -= now;
    }
    Ok(())
}

fn read_all(stream: &mut TcpStream) -> Result<u64> {
    let (mut piece, mut total) = (vec![0; PIECE], 0);
    loop {
        match stream.read(&mut piece)? {
            0 => return Ok(total),
            read => total += read as u64,
        }
    }
}
