//! *floor-ec*: what any store must do to keep a file as 4+2: read, BLAKE3, encode, BLAKE3 of the parity, six
//! sockets ‖ six times socket, BLAKE3, write.
//!
//! The pieces of a group's four chunks that lie side by side are read, hashed, encoded and sent together, so that
//! all six are still in the cache. The codec is the product's.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rusty_erasure::coder;
use rusty_erasure::compat::reed_solomon_erasure_matrix;

use crate::floors::{CHUNK, Digests, connect, open};

pub const DATA: usize = 4;
pub const PARITY: usize = 2;

/// The size of a read of each chunk, in bytes: six of them fit a core's second cache.
const PIECE: usize = 256 << 10;

/// Encodes `file` and sends a chunk of each group to every one of the six sinks; returns when all have confirmed
/// their digests.
pub fn put_source(file: &Path, sinks: &[SocketAddr]) -> Result<()> {
    ensure!(sinks.len() == DATA + PARITY, "4+2 takes six sinks");
    let file = open(file)?;
    let length = file.metadata()?.len();
    let mut sinks = sinks.iter().map(connect).collect::<Result<Vec<_>>>()?;
    let coder = coder(reed_solomon_erasure_matrix(DATA, PARITY)?)?;
    let mut digests: Vec<Digests> = sinks.iter().map(|_| Digests::new()).collect();
    let mut pieces = vec![vec![0; PIECE]; DATA + PARITY];
    let mut group = 0;
    while group < length {
        // The last group is cut so that it still spans all sinks.
        let chunk = (length - group).div_ceil(DATA as u64).min(CHUNK as u64);
        let mut at = 0;
        while at < chunk {
            let take = PIECE.min((chunk - at) as usize);
            for (number, piece) in pieces[..DATA].iter_mut().enumerate() {
                read_or_zeros(&file, &mut piece[..take], group + number as u64 * chunk + at)?;
            }
            let (data, parity) = pieces.split_at_mut(DATA);
            let data: Vec<&[u8]> = data.iter().map(|piece| &piece[..take]).collect();
            let mut parity: Vec<&mut [u8]> =
                parity.iter_mut().map(|piece| &mut piece[..take]).collect();
            coder.encode(&data, &mut parity)?;
            for ((piece, digests), sink) in pieces.iter().zip(&mut digests).zip(&mut sinks) {
                digests.update(&piece[..take]);
                sink.write_all(&piece[..take])?;
            }
            at += take as u64;
        }
        group += DATA as u64 * chunk;
    }
    for (sink, sent) in sinks.iter_mut().zip(digests) {
        sink.shutdown(Shutdown::Write)?;
        let mut stored = [0; 32];
        sink.read_exact(&mut stored).context("a floor sink hung up before it confirmed")?;
        ensure!(stored == sent.finish(), "a floor sink hashed other bytes than were sent");
    }
    Ok(())
}

/// Fills `out` from `offset`, with zeros behind the end of the file.
fn read_or_zeros(file: &File, out: &mut [u8], offset: u64) -> Result<()> {
    let mut filled = 0;
    while filled < out.len() {
        match file.read_at(&mut out[filled..], offset + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    out[filled..].fill(0);
    Ok(())
}
