//! Erasure codes: m data chunks and k parity chunks of which any m give back all.
//!
//! GF(2^8), polynomial 0x11D, the systematic Vandermonde matrix that klauspost/reedsolomon and its many ports default
//! to (docs/format/erasure.md has test vectors). The code works on *stored* bytes, so that rebuilding a chunk needs no
//! key, and the result is checked by its name.
//!
//! A file's chunks form groups of m in file order; the last group may have fewer. Chunks shorter
//! than their group's longest, and those a short group lacks, count as continued with zeros,
//! which are never stored.

use crate::merkle::SEGMENT;
use rusty_erasure::compat::reed_solomon_erasure_matrix;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// The most data chunks of a group.
pub const MAX_DATA: u8 = 16;
/// The most parity chunks of a group.
pub const MAX_PARITY: u8 = 8;
/// The least length, in bytes, that the last group of a file is cut by: with shorter chunks, each would cost more than
/// it spreads.
pub const MIN_SHARD: u32 = 4096;
/// The bytes per chunk from which the chunks of a short group are whole segments. That costs little, and the hashes of
/// the chunks are then those of the file's segments, which are hashed once.
const WHOLE_SEGMENTS: u64 = 16 * SEGMENT as u64;
/// The number of bytes that are coded at a time, so that all pieces of a group stay in the cache.
const PIECE: usize = 32 << 10;

/// An erasure code, written `4+2`: 4 data chunks, 2 parity chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ec {
    data: u8,
    parity: u8,
}

/// Text that is no erasure code, or one out of range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "“{0}” is not an erasure code: write DATA+PARITY from 2+1 to {MAX_DATA}+{MAX_PARITY}, such as 4+2"
)]
pub struct BadEc(String);

impl Ec {
    /// Makes the code `data` + `parity`, if such codes are supported.
    pub fn new(data: u8, parity: u8) -> Result<Self, BadEc> {
        if (2..=MAX_DATA).contains(&data) && (1..=MAX_PARITY).contains(&parity) {
            return Ok(Self { data, parity });
        }
        Err(BadEc(format!("{data}+{parity}")))
    }

    /// Returns the number of data chunks of a full group (m).
    pub fn data(self) -> usize {
        self.data.into()
    }

    /// Returns the number of parity chunks of every group (k), which is the number of donors that may die.
    pub fn parity(self) -> usize {
        self.parity.into()
    }

    /// Returns the number of chunks of a full group, each on its own donor.
    pub fn width(self) -> usize {
        self.data() + self.parity()
    }

    /// Returns the length, in bytes, that `left` plaintext bytes are cut by: `chunk` while they fill a group, and for
    /// the last group a length that spreads them over its chunks, but at least [`MIN_SHARD`].
    pub fn shard_len(self, left: u64, chunk: u32) -> u32 {
        if left >= u64::from(chunk) * self.data() as u64 {
            return chunk;
        }
        let even = left.div_ceil(self.data() as u64);
        let unit = if even >= WHOLE_SEGMENTS { SEGMENT.into() } else { 64 };
        (even.next_multiple_of(unit) as u32).max(MIN_SHARD).min(chunk)
    }

    /// Returns the groups of a file of `chunks` data chunks, as ranges of these chunks.
    pub fn groups(self, chunks: usize) -> impl Iterator<Item = Range<usize>> {
        (0..chunks).step_by(self.data()).map(move |at| at..(at + self.data()).min(chunks))
    }

    /// Returns the data chunks of group `number` of a file of `chunks` data chunks; `None` past the last group.
    pub fn group(self, chunks: usize, number: usize) -> Option<Range<usize>> {
        let at = number.checked_mul(self.data()).filter(|at| *at < chunks)?;
        Some(at..(at + self.data()).min(chunks))
    }

    /// Returns the number of groups that `chunks` data chunks form.
    pub fn group_count(self, chunks: usize) -> usize {
        chunks.div_ceil(self.data())
    }
}

impl fmt::Display for Ec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.data, self.parity)
    }
}

impl FromStr for Ec {
    type Err = BadEc;
    fn from_str(text: &str) -> Result<Self, BadEc> {
        let bad = || BadEc(text.into());
        let (data, parity) = text.trim().split_once('+').ok_or_else(bad)?;
        let number = |text: &str| text.trim().parse::<u8>().map_err(|_| bad());
        Self::new(number(data)?, number(parity)?).map_err(|_| bad())
    }
}

impl TryFrom<String> for Ec {
    type Error = BadEc;
    fn try_from(text: String) -> Result<Self, BadEc> {
        text.parse()
    }
}

impl From<Ec> for String {
    fn from(ec: Ec) -> Self {
        ec.to_string()
    }
}

/// A codec that computes parity and rebuilds chunks. To make one costs microseconds, and it can be shared.
pub struct Codec {
    ec: Ec,
    coder: rusty_erasure::Coder,
}

/// The error of a group of which fewer than m chunks are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{have} chunks of a group are there, and {need} are needed to rebuild the others")]
pub struct TooFew {
    /// The number of chunks that are there, those of zeros included.
    pub have: usize,
    /// The number of chunks that must be there.
    pub need: usize,
}

impl Codec {
    /// Makes the codec of `ec`.
    pub fn new(ec: Ec) -> Self {
        let matrix = reed_solomon_erasure_matrix(ec.data(), ec.parity()).expect("small dimensions");
        Self { ec, coder: rusty_erasure::coder(matrix).expect("a systematic matrix") }
    }

    /// Returns the code that this codec computes.
    pub fn ec(&self) -> Ec {
        self.ec
    }

    /// Computes the parity of `data`, up to m chunks. The `parity` buffers are of one length, which no data chunk
    /// exceeds.
    ///
    /// # Panics
    /// If there are more data chunks than m, or another number of parity buffers than k, or if the lengths are not as
    /// said: bytes of a longer chunk would not be coded, and could not be rebuilt.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        assert!(data.len() <= self.ec.data() && parity.len() == self.ec.parity());
        let len = parity[0].len();
        assert!(data.iter().all(|chunk| chunk.len() <= len));
        assert!(parity.iter().all(|chunk| chunk.len() == len));
        let mut padding = Padding::default();
        for at in (0..len).step_by(PIECE) {
            let piece = at..(at + PIECE).min(len);
            let pieces = padding.pieces(data, &piece, self.ec.data());
            let mut out: Vec<&mut [u8]> =
                parity.iter_mut().map(|parity| &mut parity[piece.clone()]).collect();
            self.coder.encode(&pieces, &mut out).expect("equal lengths");
        }
    }

    /// Rebuilds the chunks at positions `wanted` (data from 0, parity from m) into `out`, whose
    /// buffers have the group's longest length; a shorter chunk is the beginning of its buffer.
    ///
    /// `shards` is the whole group by position; positions that a short group lacks are
    /// `Some(&[])`. The result is as good as what went in: check it by its name.
    pub fn rebuild(
        &self,
        shards: &[Option<&[u8]>],
        wanted: &[usize],
        out: &mut [&mut [u8]],
    ) -> Result<(), TooFew> {
        assert!(shards.len() == self.ec.width() && wanted.len() == out.len());
        let present: Vec<bool> = shards.iter().map(Option::is_some).collect();
        let have = present.iter().filter(|present| **present).count();
        if have < self.ec.data() {
            return Err(TooFew { have, need: self.ec.data() });
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let plan = self.coder.decode_plan(&present, wanted).expect("enough chunks are there");
        let there: Vec<&[u8]> = shards.iter().map(|shard| shard.unwrap_or_default()).collect();
        let len = out[0].len();
        let mut padding = Padding::default();
        for at in (0..len).step_by(PIECE) {
            let piece = at..(at + PIECE).min(len);
            let pieces = padding.pieces(&there, &piece, shards.len());
            let pieces: Vec<Option<&[u8]>> = pieces
                .into_iter()
                .zip(&present)
                .map(|(piece, present)| present.then_some(piece))
                .collect();
            let mut out: Vec<&mut [u8]> =
                out.iter_mut().map(|out| &mut out[piece.clone()]).collect();
            self.coder.recover_with(&plan, &pieces, &mut out).expect("equal lengths");
        }
        Ok(())
    }
}

/// The buffers for the pieces that end in zeros.
#[derive(Default)]
struct Padding(Vec<Vec<u8>>);

impl Padding {
    /// Returns one piece of every chunk, all of one length, `count` of them.
    fn pieces<'a>(
        &'a mut self,
        chunks: &[&'a [u8]],
        piece: &Range<usize>,
        count: usize,
    ) -> Vec<&'a [u8]> {
        self.0.resize_with(count, Vec::new);
        let chunk = |at: usize| chunks.get(at).copied().unwrap_or_default();
        self.0
            .iter_mut()
            .enumerate()
            .map(|(at, padded)| {
                let chunk = chunk(at);
                if chunk.len() >= piece.end {
                    return &chunk[piece.clone()];
                }
                padded.clear();
                padded.extend_from_slice(chunk.get(piece.start..).unwrap_or_default());
                padded.resize(piece.len(), 0);
                padded.as_slice()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_written_as_people_write_them() {
        assert_eq!("4+2".parse::<Ec>().map(|ec| ec.to_string()), Ok("4+2".into()));
        assert_eq!("16+8".parse::<Ec>().map(Ec::width), Ok(24));
        for bad in ["4", "4+", "1+1", "17+2", "4+9", "4+0", "a+b", "-4+2", "4+2+1"] {
            assert!(bad.parse::<Ec>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_last_group_spreads_over_all_its_chunks() {
        let ec = Ec::new(4, 2).expect("a code");
        assert_eq!(ec.shard_len(16 << 20, 4 << 20), 4 << 20);
        assert_eq!(ec.shard_len((16 << 20) - 1, 4 << 20), 4 << 20);
        assert_eq!(ec.shard_len(5 << 20, 4 << 20), 5 << 18);
        assert_eq!(ec.shard_len(1, 4 << 20), MIN_SHARD);
        assert_eq!(ec.groups(9).collect::<Vec<_>>(), [0..4, 4..8, 8..9]);
        let one_by_one = (0..4).map(|number| ec.group(9, number));
        assert_eq!(one_by_one.collect::<Vec<_>>(), [Some(0..4), Some(4..8), Some(8..9), None]);
        assert_eq!((ec.group_count(0), ec.group_count(8), ec.group_count(9)), (0, 2, 3));
    }

    #[test]
    #[should_panic(expected = "chunk.len() <= len")]
    fn a_chunk_is_never_coded_in_part() {
        let codec = Codec::new(Ec::new(4, 2).expect("a code"));
        codec.encode(&[&[1, 2], &[3, 4, 5]], &mut [&mut [0; 2], &mut [0; 2]]);
    }

    /// Checks the test vectors of docs/format/erasure.md.
    #[test]
    fn test_vectors_of_the_format() {
        let codec = Codec::new(Ec::new(4, 2).expect("a code"));
        let data: [&[u8]; 4] = [&[0, 1, 2, 3], &[4, 5, 6, 7], &[8, 9, 10, 11], &[12, 13, 14]];
        let (mut p, mut q) = ([0; 4], [0; 4]);
        codec.encode(&data, &mut [&mut p, &mut q]);
        let whole: [&[u8]; 4] = [&[0, 1, 2, 3], &[4, 5, 6, 7], &[8, 9, 10, 11], &[12, 13, 14, 0]];
        let (mut p2, mut q2) = ([0; 4], [0; 4]);
        codec.encode(&whole, &mut [&mut p2, &mut q2]);
        assert_eq!((p, q), (p2, q2), "a short chunk counts as continued with zeros");
        assert_eq!(p, [0x10, 0x11, 0x12, 0xdf]);
        assert_eq!(q, [0x14, 0x15, 0x16, 0xf9]);
    }
}
