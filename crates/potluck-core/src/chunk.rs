//! Chunks: immutable bytes named by what they are. A file of at most [`INLINE_MAX`] bytes has none.
//!
//! Bytes that come from outside become trusted in one way only: by a [`Verifier`] that was told
//! the name they must have.

use crate::ids::hex_id;
use crate::merkle::{SEGMENT, SegmentCutter, SegmentHashes, proven_root, segment_count};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// The smallest chunk size a policy may ask for.
pub const MIN_CHUNK: u32 = 64 << 10;
/// The largest chunk size a policy may ask for.
pub const MAX_CHUNK: u32 = 64 << 20;
/// The default chunk size: large enough that per-chunk work vanishes, small enough that a slow donor holds up little.
pub const DEFAULT_CHUNK: u32 = 4 << 20;
/// Bytes that sealing adds to every segment.
pub const SEAL_OVERHEAD: u32 = 16;
/// The most bytes a donor ever stores under one name.
pub const MAX_STORED: u32 = sealed_len(MAX_CHUNK);
/// Files up to this size live in the catalog and never reach a donor.
pub const INLINE_MAX: u64 = 4096;
/// The number of parts that names are divided into when only some of a donor's chunks are to leave it.
pub const PARTS: u32 = 1 << 16;

/// Bytes that `plain` bytes of a chunk have when they are sealed, segment by segment.
pub const fn sealed_len(plain: u32) -> u32 {
    plain + plain.div_ceil(SEGMENT) * SEAL_OVERHEAD
}

hex_id!(
    /// The root over the segments of a chunk's bytes as a donor stores them ([`crate::merkle`]).
    ChunkName,
    32
);
hex_id!(
    /// The root over the segments of plaintext: of a chunk, or of a whole file, however that is cut and
    /// stored.
    Digest,
    32
);

/// The kind of a chunk, which says what it is to the pool; part of its trailer, so that a catalog can be
/// found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChunkKind {
    /// Bytes of files, or their parity.
    #[default]
    Data,
    /// A block of the metadata log, of which a lost catalog is made again.
    Log,
}

impl ChunkKind {
    /// The byte that stands for it in frames and trailers.
    pub fn byte(self) -> u8 {
        match self {
            Self::Data => 0,
            Self::Log => 1,
        }
    }

    /// The kind that a byte stands for.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Data,
            1 => Self::Log,
            _ => return None,
        })
    }
}

impl ChunkName {
    /// The name of these stored bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(SegmentHashes::of(bytes).root())
    }

    /// The part of all names that this name is in, below [`PARTS`]. Names are random, so that parts are alike in
    /// size.
    pub fn part(&self) -> u32 {
        u32::from(self.0[0]) << 8 | u32::from(self.0[1])
    }
}

impl Digest {
    /// The digest of these plaintext bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(SegmentHashes::of(bytes).root())
    }

    /// Returns the first eight hex digits: enough for a person to tell a few of them apart.
    pub fn short(&self) -> String {
        self.0[..4].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Hashes a chunk piece by piece, while its bytes are warm in the cache.
#[derive(Debug, Clone, Default)]
pub struct ChunkHasher {
    cutter: SegmentCutter,
    hashes: SegmentHashes,
}

impl ChunkHasher {
    /// Adds the next bytes.
    pub fn update(&mut self, piece: &[u8]) {
        self.cutter.update(piece, |segment| self.hashes.push(segment));
    }

    /// The hashes of all segments that were added, whose root names the chunk; starts over.
    pub fn finish(&mut self) -> SegmentHashes {
        self.cutter.finish().into_iter().for_each(|segment| self.hashes.push(segment));
        std::mem::take(&mut self.hashes)
    }
}

/// The only way by which foreign bytes become a chunk's bytes.
#[derive(Debug)]
pub struct Verifier {
    expected: ChunkName,
    hasher: ChunkHasher,
}

/// The bytes are not what their name says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not chunk {expected}: they hash to {actual}")]
pub struct WrongBytes {
    /// The name asked for.
    pub expected: ChunkName,
    /// The name the bytes have.
    pub actual: ChunkName,
}

impl Verifier {
    /// Expects the bytes called `name`.
    pub fn new(name: ChunkName) -> Self {
        Self { expected: name, hasher: ChunkHasher::default() }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, piece: &[u8]) {
        self.hasher.update(piece);
    }

    /// The hashes of the chunk's segments, if all bytes added are the chunk.
    pub fn finish(mut self) -> Result<SegmentHashes, WrongBytes> {
        let hashes = self.hasher.finish();
        let (expected, actual) = (self.expected, ChunkName(hashes.root()));
        if actual == expected { Ok(hashes) } else { Err(WrongBytes { expected, actual }) }
    }
}

/// Whether `bytes` are the segments `range` of the chunk `name`, which has `len` stored bytes; `proof` is what
/// [`TreeParts::proof`](crate::merkle::TreeParts::proof) gave for them.
pub fn verify_segments(
    name: &ChunkName,
    len: u32,
    range: &Range<usize>,
    bytes: &[u8],
    proof: &[u8],
) -> bool {
    let count = segment_count(len.into()) as usize;
    let (segments, proof) = (SegmentHashes::of(bytes), SegmentHashes::from_bytes(proof));
    proven_root(count, range, &segments, &proof) == Some(name.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_is_not_the_chunk() {
        let bytes = vec![7; 100_000];
        let name = ChunkName::of(&bytes);
        let mut good = Verifier::new(name);
        bytes.chunks(999).for_each(|piece| good.update(piece));
        good.finish().expect("the same bytes");

        let mut flipped = bytes;
        flipped[50_000] ^= 1;
        let mut bad = Verifier::new(name);
        bad.update(&flipped);
        assert_eq!(bad.finish().expect_err("a flipped bit").expected, name);
    }

    #[test]
    fn a_digest_of_one_segment_is_its_blake3() {
        for len in [0, 1, 65_536] {
            let bytes = vec![7; len];
            assert_eq!(Digest::of(&bytes).0, *blake3::hash(&bytes).as_bytes());
        }
    }

    #[test]
    fn names_read_back_from_hex() {
        let name = ChunkName::of(b"x");
        assert_eq!(name.to_string().parse(), Ok(name));
        assert!("zz".parse::<ChunkName>().is_err());
    }
}
