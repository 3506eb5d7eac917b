//! Chunks: immutable bytes named by what they are. A file of at most [`INLINE_MAX`] bytes has none.
//!
//! Bytes that come from outside become trusted by verification alone: a whole chunk by a [`Verifier`] that was told its
//! name, and a part of a chunk by [`verify_segments`].

use crate::ids::hex_id;
use crate::merkle::{SegmentCutter, SegmentHashes, proven_root, segment_count};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// The smallest chunk size a policy may ask for.
pub const MIN_CHUNK: u32 = 64 << 10;
/// The largest chunk size a policy may ask for, and the most bytes that a donor ever stores under one name.
pub const MAX_CHUNK: u32 = 64 << 20;
/// The default chunk size: large enough that per-chunk work vanishes, small enough that a slow donor holds up little.
pub const DEFAULT_CHUNK: u32 = 4 << 20;
/// The size of the largest file whose content lives in the catalog. Such a file has no chunks of its own; donors hold
/// its content only in the log of the catalog.
pub const INLINE_MAX: u64 = 4096;
/// The number of parts that names are divided into when only some of a donor's chunks are to leave it.
pub const PARTS: u32 = 1 << 16;

hex_id!(
    /// The name of a chunk: the root over the segments of its bytes as a donor stores them ([`crate::merkle`]).
    ChunkName,
    32
);
hex_id!(
    /// The digest of plaintext: the root over its segments. The plaintext is a chunk or a whole file, however the file
    /// is cut and stored.
    Digest,
    32
);

/// The kind of a chunk. It is a part of the chunk's trailer, so that the log of a lost catalog can be found on donors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChunkKind {
    /// The chunk has bytes of files, or their parity.
    #[default]
    Data,
    /// A block of the metadata log, from which a lost catalog is made again.
    Log,
}

impl ChunkKind {
    /// Returns the byte that stands for the kind in frames and trailers.
    pub fn byte(self) -> u8 {
        match self {
            Self::Data => 0,
            Self::Log => 1,
        }
    }

    /// Returns the kind that a byte stands for.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Data,
            1 => Self::Log,
            _ => return None,
        })
    }
}

impl ChunkName {
    /// Returns the name of these stored bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(SegmentHashes::of(bytes).root())
    }

    /// Returns the number of the part of all names that this name is in, below [`PARTS`]. Names are hashes, so that
    /// parts are alike in size.
    pub fn part(&self) -> u32 {
        u32::from(self.0[0]) << 8 | u32::from(self.0[1])
    }
}

impl Digest {
    /// Returns the digest of these plaintext bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(SegmentHashes::of(bytes).root())
    }

    /// Returns the first eight hex digits: enough for a person to tell a few of them apart.
    pub fn short(&self) -> String {
        self.0[..4].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A hasher that takes a chunk piece by piece, while its bytes are warm in the cache.
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

    /// Returns the hashes of all segments that were added, whose root names the chunk, and starts over.
    pub fn finish(&mut self) -> SegmentHashes {
        self.cutter.finish().into_iter().for_each(|segment| self.hashes.push(segment));
        std::mem::take(&mut self.hashes)
    }
}

/// A check that bytes from outside are the chunk that has a given name.
#[derive(Debug)]
pub struct Verifier {
    expected: ChunkName,
    hasher: ChunkHasher,
}

/// The error of bytes that are not what their name says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not chunk {expected}: they hash to {actual}")]
pub struct WrongBytes {
    /// The name asked for.
    pub expected: ChunkName,
    /// The name the bytes have.
    pub actual: ChunkName,
}

impl Verifier {
    /// Makes a verifier of the bytes called `name`.
    pub fn new(name: ChunkName) -> Self {
        Self { expected: name, hasher: ChunkHasher::default() }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, piece: &[u8]) {
        self.hasher.update(piece);
    }

    /// Returns the hashes of the chunk's segments if all bytes added together are the chunk.
    pub fn finish(mut self) -> Result<SegmentHashes, WrongBytes> {
        let hashes = self.hasher.finish();
        let (expected, actual) = (self.expected, ChunkName(hashes.root()));
        if actual == expected { Ok(hashes) } else { Err(WrongBytes { expected, actual }) }
    }
}

/// Returns whether `bytes` are the segments `range` of the chunk `name`, which has `len` stored bytes; `proof` is what
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
