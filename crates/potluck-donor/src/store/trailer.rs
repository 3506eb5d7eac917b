//! The end of a chunk file: the hashes of the chunk's segments, of which proofs for ranges of segments are made, and a
//! trailer that identifies the bytes to a reader that has nothing but the file.

use potluck_core::chunk::{ChunkKind, ChunkName};
use potluck_core::chunk_file::TRAILER;
use potluck_core::ids::SessionId;

const MAGIC: [u8; 8] = *b"POTCHUNK";
/// The version of the trailer. Version 1 had no hashes of segments before it.
const VERSION: u8 = 2;
/// The number of bytes of the name that the trailer repeats: enough that no two chunks of a pool share them.
const NAME_PART: usize = 16;
const SUM_AT: usize = 56;

/// The session that a chunk came from, and the chunk's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkOrigin {
    /// The session that first stored the chunk here; all zeros if a task of the manager did.
    pub session: SessionId,
    /// The kind of the chunk.
    pub kind: ChunkKind,
}

impl ChunkOrigin {
    /// Returns the origin of a chunk that a task of the manager stored, which names no session.
    pub fn task(kind: ChunkKind) -> Self {
        Self { session: SessionId([0; 16]), kind }
    }

    /// Returns the session that the origin names, if any.
    pub fn session(&self) -> Option<SessionId> {
        (self.session != SessionId([0; 16])).then_some(self.session)
    }
}

/// The description that a chunk file gives of itself after its bytes. All integers are little-endian.
///
/// ```text
///  0  "POTCHUNK"                 8  version (2)      9  kind    10  zero (2 bytes)
/// 12  stored length (u32)       16  write session (16 bytes)
/// 32  first 16 bytes of the name                    48  zero (8 bytes)
/// 56  first 8 bytes of BLAKE3 over the 56 bytes before
/// ```
/// The kind is 0 for data, 1 for a block of the metadata log. The trailer is no proof of the bytes before it, only of
/// what was to be stored; the proof is the hash of the bytes. The trailer comes last, so that a file that was cut off,
/// or whose end never reached the disk, has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// The origin of the chunk.
    pub origin: ChunkOrigin,
    /// The number of stored bytes of the chunk, which the hashes and the trailer follow.
    pub len: u32,
    name: [u8; NAME_PART],
}

impl Trailer {
    /// Makes the trailer of the chunk called `name` of `len` stored bytes.
    pub fn new(origin: ChunkOrigin, name: &ChunkName, len: u32) -> Self {
        let mut part = [0; NAME_PART];
        part.copy_from_slice(&name.0[..NAME_PART]);
        Self { origin, len, name: part }
    }

    /// Encodes the trailer as its bytes in the file.
    pub fn encode(&self) -> [u8; TRAILER] {
        let mut out = [0; TRAILER];
        out[..8].copy_from_slice(&MAGIC);
        (out[8], out[9]) = (VERSION, self.origin.kind.byte());
        out[12..16].copy_from_slice(&self.len.to_le_bytes());
        out[16..32].copy_from_slice(&self.origin.session.0);
        out[32..48].copy_from_slice(&self.name);
        let sum = blake3::hash(&out[..SUM_AT]);
        out[SUM_AT..].copy_from_slice(&sum.as_bytes()[..TRAILER - SUM_AT]);
        out
    }

    /// Reads a trailer; returns `None` if it is missing or damaged, or of an unknown version or kind.
    pub fn decode(bytes: &[u8; TRAILER]) -> Option<Self> {
        let sum = blake3::hash(&bytes[..SUM_AT]);
        let ours = bytes[..8] == MAGIC && bytes[8] == VERSION;
        if !ours || bytes[SUM_AT..] != sum.as_bytes()[..TRAILER - SUM_AT] {
            return None;
        }
        Some(Self {
            len: u32::from_le_bytes(bytes[12..16].try_into().ok()?),
            origin: ChunkOrigin {
                session: SessionId(bytes[16..32].try_into().ok()?),
                kind: ChunkKind::from_byte(bytes[9])?,
            },
            name: bytes[32..48].try_into().ok()?,
        })
    }

    /// Returns whether the trailer belongs to `len` stored bytes called `name`.
    pub fn is_of(&self, name: &ChunkName, len: u32) -> bool {
        self.len == len && self.name == name.0[..NAME_PART]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_version_2() {
        let origin = ChunkOrigin { session: SessionId([0x5e; 16]), kind: ChunkKind::Data };
        let trailer = Trailer::new(origin, &ChunkName([0xab; 32]), 0x0102_0304);
        let bytes = trailer.encode();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let before_sum = "504f544348554e4b".to_owned()
            + "0200000004030201"
            + &"5e".repeat(16)
            + &"ab".repeat(16)
            + &"00".repeat(8);
        assert_eq!(&hex[..112], before_sum);
        assert_eq!(Trailer::decode(&bytes), Some(trailer));
        assert!(trailer.is_of(&ChunkName([0xab; 32]), 0x0102_0304));
        assert!(!trailer.is_of(&ChunkName([0xab; 32]), 1));
        assert!(!trailer.is_of(&ChunkName([0xac; 32]), 0x0102_0304));
    }

    #[test]
    fn the_kind_is_byte_9_and_an_unknown_one_is_not_read() {
        for (kind, byte) in [(ChunkKind::Data, 0), (ChunkKind::Log, 1)] {
            let trailer = Trailer::new(ChunkOrigin::task(kind), &ChunkName([0xab; 32]), 9);
            let mut bytes = trailer.encode();
            assert_eq!((bytes[9], &bytes[16..32]), (byte, &[0; 16][..]));
            assert_eq!(Trailer::decode(&bytes), Some(trailer));
            bytes[9] = 3;
            let sum = blake3::hash(&bytes[..SUM_AT]);
            bytes[SUM_AT..].copy_from_slice(&sum.as_bytes()[..TRAILER - SUM_AT]);
            assert_eq!(Trailer::decode(&bytes), None);
        }
    }

    #[test]
    fn no_changed_trailer_is_read() {
        let bytes =
            Trailer::new(ChunkOrigin::task(ChunkKind::Data), &ChunkName([2; 32]), 9).encode();
        for bit in 0..8 * TRAILER {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Trailer::decode(&changed), None, "bit {bit}");
        }
    }
}
