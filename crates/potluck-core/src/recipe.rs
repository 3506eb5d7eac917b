//! Recipes: the ordered chunks that make one version of a file.
//!
//! A recipe is packed in pages of up to [`PAGE_ENTRIES`] entries that are written once and never
//! rewritten. Layout of a page, little-endian:
//!
//! ```text
//! "PLR1"  u8 flags (1: entries carry a plaintext digest)  u8 0  u16 entries
//! entry:  name 32 B   u32 plaintext length   [plaintext digest 32 B]
//! ```
//! In a plain space the stored bytes are the plaintext, so the name is the digest.

use crate::chunk::{ChunkName, Digest, MAX_CHUNK, SEAL_OVERHEAD};

/// Entries in a full page: large enough to amortise a row, small enough to read one alone.
pub const PAGE_ENTRIES: usize = 1024;

const MAGIC: &[u8; 4] = b"PLR1";
const HEADER: usize = 8;
const WITH_DIGEST: u8 = 1;

/// One chunk of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The chunk as stored.
    pub name: ChunkName,
    /// The chunk as written.
    pub digest: Digest,
    /// Plaintext bytes.
    pub len: u32,
    /// Whether the stored bytes are sealed.
    pub sealed: bool,
}

impl Entry {
    /// Bytes a donor stores for this chunk.
    pub fn stored_len(&self) -> u32 {
        self.len + if self.sealed { SEAL_OVERHEAD } else { 0 }
    }
}

/// A page that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("damaged recipe page: {0}")]
pub struct BadPage(&'static str);

/// Packs up to [`PAGE_ENTRIES`] entries of one file; all sealed or none.
pub fn pack(entries: &[Entry]) -> Vec<u8> {
    assert!(entries.len() <= PAGE_ENTRIES, "a page holds at most {PAGE_ENTRIES} entries");
    let sealed = entries.first().is_some_and(|entry| entry.sealed);
    let size = if sealed { 68 } else { 36 };
    let mut page = Vec::with_capacity(HEADER + size * entries.len());
    page.extend_from_slice(MAGIC);
    page.push(if sealed { WITH_DIGEST } else { 0 });
    page.push(0);
    page.extend_from_slice(&(entries.len() as u16).to_le_bytes());
    for entry in entries {
        assert_eq!(entry.sealed, sealed, "one file is sealed whole or not at all");
        page.extend_from_slice(&entry.name.0);
        page.extend_from_slice(&entry.len.to_le_bytes());
        if sealed {
            page.extend_from_slice(&entry.digest.0);
        }
    }
    page
}

/// Reads a page; any byte string gives entries or an error.
pub fn unpack(page: &[u8]) -> Result<Vec<Entry>, BadPage> {
    let (header, body) = page.split_at_checked(HEADER).ok_or(BadPage("too short"))?;
    if &header[..4] != MAGIC {
        return Err(BadPage("unknown format"));
    }
    let sealed = match header[4] {
        0 => false,
        WITH_DIGEST => true,
        _ => return Err(BadPage("unknown flags")),
    };
    let count = u16::from_le_bytes([header[6], header[7]]) as usize;
    let size = if sealed { 68 } else { 36 };
    if count > PAGE_ENTRIES || body.len() != count * size {
        return Err(BadPage("wrong length"));
    }
    let array = |bytes: &[u8]| <[u8; 32]>::try_from(bytes).expect("32 bytes");
    body.chunks_exact(size)
        .map(|bytes| {
            let name = array(&bytes[..32]);
            let len = u32::from_le_bytes(bytes[32..36].try_into().expect("4 bytes"));
            if len == 0 || len > MAX_CHUNK {
                return Err(BadPage("impossible chunk length"));
            }
            let digest = if sealed { array(&bytes[36..68]) } else { name };
            Ok(Entry { name: ChunkName(name), digest: Digest(digest), len, sealed })
        })
        .collect()
}
