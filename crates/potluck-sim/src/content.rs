//! What the clients store: bytes that follow from a number.

use potluck_core::chunk::{Digest, FileDigest, INLINE_MAX, MIN_CHUNK};
use potluck_core::erasure::Ec;
use std::fmt;

/// Bytes per chunk in every space of a scenario.
pub const CHUNK: u32 = MIN_CHUNK;

/// The content of one file. Contents with one number begin alike, so that chunks repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// Which bytes.
    pub number: u64,
    /// How many.
    pub len: u64,
    /// The erasure code of the space it is written to, if any: it decides where the file is cut.
    pub ec: Option<Ec>,
}

impl Content {
    /// The bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        let mut hasher = blake3::Hasher::new_derive_key("potluck 2026-11 simulated content");
        hasher.update(&self.number.to_le_bytes());
        hasher.finalize_xof().fill(&mut bytes);
        bytes
    }

    /// The digest that the pool will know the file by.
    pub fn digest(&self) -> Digest {
        digest(&self.bytes(), self.ec)
    }
}

/// The digest that the pool knows a file of these bytes by.
pub fn digest(mut bytes: &[u8], ec: Option<Ec>) -> Digest {
    let mut file = FileDigest::default();
    let coded = ec.filter(|_| bytes.len() as u64 > INLINE_MAX);
    while !bytes.is_empty() {
        let group = coded.map_or(1, Ec::data);
        let len = coded.map_or(CHUNK, |ec| ec.shard_len(bytes.len() as u64, CHUNK)) as usize;
        let (cut, rest) = bytes.split_at(bytes.len().min(group * len));
        cut.chunks(len).for_each(|chunk| file.push(Digest::of(chunk)));
        bytes = rest;
    }
    file.finish()
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}[{}]", self.number, self.len)
    }
}
