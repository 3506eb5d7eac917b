//! Chunks: immutable bytes named by what they are.
//!
//! Bytes that come from outside become trusted by one door only: a [`Verifier`] that was told
//! the name they must have.

use crate::ids::hex_id;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The smallest chunk size a policy may ask for.
pub const MIN_CHUNK: u32 = 64 << 10;
/// The largest chunk size a policy may ask for.
pub const MAX_CHUNK: u32 = 64 << 20;
/// The default: large enough that per-chunk work vanishes, small enough that a slow donor holds
/// up little.
pub const DEFAULT_CHUNK: u32 = 4 << 20;
/// What sealing may add to a chunk's length.
pub const SEAL_OVERHEAD: u32 = 16;
/// The most bytes a donor ever stores under one name.
pub const MAX_STORED: u32 = MAX_CHUNK + SEAL_OVERHEAD;
/// Files up to this size live in the catalog and never reach a donor.
pub const INLINE_MAX: u64 = 4096;
/// Names are cut into so many parts when only some of a donor's chunks are to leave it.
pub const PARTS: u32 = 1 << 16;

hex_id!(
    /// BLAKE3 of a chunk's bytes as a donor stores them.
    ChunkName,
    32
);
hex_id!(
    /// BLAKE3 of plaintext: of one chunk, or the root over all chunks of a file ([`FileDigest`]).
    Digest,
    32
);

/// What a chunk is to the pool; part of its trailer, so that a catalog can be found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChunkKind {
    /// Bytes of files, or their parity.
    #[default]
    Data,
    /// A part of the pool's journal: recipes and names, for rebuilding the catalog.
    Journal,
    /// The head of a checkpoint of the catalog.
    Checkpoint,
}

impl ChunkKind {
    /// The byte that stands for it in frames and trailers.
    pub fn byte(self) -> u8 {
        match self {
            Self::Data => 0,
            Self::Journal => 1,
            Self::Checkpoint => 2,
        }
    }

    /// The kind that a byte stands for.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Data,
            1 => Self::Journal,
            2 => Self::Checkpoint,
            _ => return None,
        })
    }
}

impl ChunkName {
    /// The name of these stored bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// The part of all names that this one is in, below [`PARTS`]. Names are random, so that
    /// parts are alike.
    pub fn part(&self) -> u32 {
        u32::from(self.0[0]) << 8 | u32::from(self.0[1])
    }
}

impl Digest {
    /// The digest of these plaintext bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Its first eight hex digits: enough for a person to tell a few of them apart.
    pub fn short(&self) -> String {
        self.0[..4].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Hashes a chunk piece by piece, while its bytes are warm in the cache.
#[derive(Debug, Clone, Default)]
pub struct ChunkHasher(blake3::Hasher);

impl ChunkHasher {
    /// Adds the next bytes.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The 32 bytes that name what was added; starts over.
    pub fn finish(&mut self) -> [u8; 32] {
        let out = *self.0.finalize().as_bytes();
        self.0.reset();
        out
    }
}

/// The door through which foreign bytes become a chunk's bytes.
#[derive(Debug)]
pub struct Verifier {
    expected: [u8; 32],
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
        Self { expected: name.0, hasher: ChunkHasher::default() }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, piece: &[u8]) {
        self.hasher.update(piece);
    }

    /// Whether all bytes added are the chunk.
    pub fn finish(mut self) -> Result<(), WrongBytes> {
        let actual = self.hasher.finish();
        if actual == self.expected {
            return Ok(());
        }
        Err(WrongBytes { expected: ChunkName(self.expected), actual: ChunkName(actual) })
    }
}

/// Builds a file's digest from its chunks' plaintext digests, in order: the digest of the chunk
/// itself when there is only one, otherwise the root over them; of an empty file, BLAKE3 of
/// nothing.
#[derive(Debug, Default)]
pub struct FileDigest {
    chunks: u64,
    first: Option<Digest>,
    rest: Option<Box<blake3::Hasher>>,
}

impl FileDigest {
    const CONTEXT: &'static str = "potluck 2026-11 file digest";

    /// Adds the next chunk's plaintext digest.
    pub fn push(&mut self, chunk: Digest) {
        self.chunks += 1;
        let Some(first) = self.first else {
            self.first = Some(chunk);
            return;
        };
        let root = self.rest.get_or_insert_with(|| {
            let mut root = blake3::Hasher::new_derive_key(Self::CONTEXT);
            root.update(&first.0);
            Box::new(root)
        });
        root.update(&chunk.0);
    }

    /// The digest of the file whose chunks were pushed.
    pub fn finish(&self) -> Digest {
        match (&self.rest, self.first) {
            (Some(root), _) => Digest(*root.finalize().as_bytes()),
            (None, Some(only)) => only,
            (None, None) => Digest::of(b""),
        }
    }
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
    fn file_digest_of_one_chunk_is_the_contents_blake3() {
        let mut one = FileDigest::default();
        assert_eq!(one.finish(), Digest::of(b""));
        one.push(Digest::of(b"hello"));
        assert_eq!(one.finish(), Digest::of(b"hello"));
        one.push(Digest::of(b"world"));
        assert_ne!(one.finish(), Digest::of(b"hello"));
    }

    #[test]
    fn names_read_back_from_hex() {
        let name = ChunkName::of(b"x");
        assert_eq!(name.to_string().parse(), Ok(name));
        assert!("zz".parse::<ChunkName>().is_err());
    }
}
