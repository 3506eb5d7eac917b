//! The content that clients store: bytes that are generated from a number.

use potluck_core::chunk::{Digest, MIN_CHUNK};
use std::fmt;

/// Bytes per chunk in the space of a scenario.
pub const CHUNK: u32 = MIN_CHUNK;

/// The content of one file. Contents with the same number begin alike, so that files share chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// The number from which the bytes are generated.
    pub number: u64,
    /// The length in bytes.
    pub len: u64,
}

impl Content {
    /// Returns the bytes of this content.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        let mut hasher = blake3::Hasher::new_derive_key("potluck 2026-11 simulated content");
        hasher.update(&self.number.to_le_bytes());
        hasher.finalize_xof().fill(&mut bytes);
        bytes
    }

    /// Returns the digest by which the pool knows a file with this content.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.bytes())
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}[{}]", self.number, self.len)
    }
}
