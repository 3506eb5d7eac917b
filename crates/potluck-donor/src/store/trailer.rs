//! The trailer of a chunk file: who these bytes are, for a reader that has nothing but the file.

use potluck_core::chunk::{ChunkName, MAX_STORED};
use potluck_core::ids::SessionId;

/// Bytes of the trailer.
pub const TRAILER: usize = 64;

const MAGIC: [u8; 8] = *b"POTCHUNK";
const VERSION: u8 = 1;
const KIND_DATA: u8 = 0;
/// How much of the name is repeated: enough that no two chunks of a pool share it.
const NAME_PART: usize = 16;
const SUM_AT: usize = 56;

/// What a chunk file says of itself after its bytes. All integers are little-endian.
///
/// ```text
///  0  "POTCHUNK"                 8  version (1)      9  kind (0 = data)   10  zero (2 bytes)
/// 12  stored length (u32)       16  write session (16 bytes)
/// 32  first 16 bytes of the name                    48  zero (8 bytes)
/// 56  first 8 bytes of BLAKE3 over the 56 bytes before
/// ```
/// It is no proof of the bytes before it, only of what was meant: their own hash is the proof. It
/// comes last so that a file that was cut, or whose end never reached the disk, has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// The session that first stored the chunk.
    pub session: SessionId,
    /// Stored bytes before the trailer.
    pub len: u32,
    name: [u8; NAME_PART],
}

impl Trailer {
    /// The trailer of `len` stored bytes called `name`.
    pub fn new(session: SessionId, name: &ChunkName, len: u32) -> Self {
        let mut part = [0; NAME_PART];
        part.copy_from_slice(&name.0[..NAME_PART]);
        Self { session, len, name: part }
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; TRAILER] {
        let mut out = [0; TRAILER];
        out[..8].copy_from_slice(&MAGIC);
        (out[8], out[9]) = (VERSION, KIND_DATA);
        out[12..16].copy_from_slice(&self.len.to_le_bytes());
        out[16..32].copy_from_slice(&self.session.0);
        out[32..48].copy_from_slice(&self.name);
        let sum = blake3::hash(&out[..SUM_AT]);
        out[SUM_AT..].copy_from_slice(&sum.as_bytes()[..TRAILER - SUM_AT]);
        out
    }

    /// Reads a trailer; `None` where there is none, or one of a version we don't know.
    pub fn decode(bytes: &[u8; TRAILER]) -> Option<Self> {
        let sum = blake3::hash(&bytes[..SUM_AT]);
        let ours = bytes[..8] == MAGIC && (bytes[8], bytes[9]) == (VERSION, KIND_DATA);
        if !ours || bytes[SUM_AT..] != sum.as_bytes()[..TRAILER - SUM_AT] {
            return None;
        }
        Some(Self {
            len: u32::from_le_bytes(bytes[12..16].try_into().ok()?),
            session: SessionId(bytes[16..32].try_into().ok()?),
            name: bytes[32..48].try_into().ok()?,
        })
    }

    /// Whether it belongs to `len` stored bytes called `name`.
    pub fn is_of(&self, name: &ChunkName, len: u32) -> bool {
        self.len == len && self.name == name.0[..NAME_PART]
    }
}

/// Stored bytes of a chunk file of `file` bytes; `None` when no chunk makes such a file.
pub fn stored_len(file: u64) -> Option<u32> {
    let stored = u32::try_from(file.checked_sub(TRAILER as u64)?).ok()?;
    (1..=MAX_STORED).contains(&stored).then_some(stored)
}

/// Bytes of the chunk file of `stored` bytes.
pub fn file_len(stored: u32) -> u64 {
    u64::from(stored) + TRAILER as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_version_1() {
        let trailer = Trailer::new(SessionId([0x5e; 16]), &ChunkName([0xab; 32]), 0x0102_0304);
        let bytes = trailer.encode();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let before_sum = "504f544348554e4b".to_owned()
            + "0100000004030201"
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
    fn no_changed_trailer_is_read() {
        let bytes = Trailer::new(SessionId([1; 16]), &ChunkName([2; 32]), 9).encode();
        for bit in 0..8 * TRAILER {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Trailer::decode(&changed), None, "bit {bit}");
        }
    }

    #[test]
    fn only_possible_chunks_have_a_length() {
        assert_eq!(stored_len(TRAILER as u64), None);
        assert_eq!(stored_len(TRAILER as u64 + 1), Some(1));
        assert_eq!(stored_len(file_len(MAX_STORED)), Some(MAX_STORED));
        assert_eq!(stored_len(file_len(MAX_STORED) + 1), None);
        assert_eq!(stored_len(0), None);
    }
}
