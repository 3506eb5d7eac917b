//! The content that the clients store: bytes that follow from a number.

use potluck_core::chunk::{Digest, MIN_CHUNK};
use std::fmt;

/// Bytes per chunk in every space of a scenario.
pub const CHUNK: u32 = MIN_CHUNK;

/// The content of one file. Contents with one number begin alike, so that chunks repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// The number that the bytes follow from.
    pub number: u64,
    /// The number of bytes.
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

    /// The digest that the pool will know the file by.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.bytes())
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}[{}]", self.number, self.len)
    }
}
