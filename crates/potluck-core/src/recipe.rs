//! Recipes: the ordered chunks that make one version of a file.
//!
//! A recipe is packed in pages of up to [`PAGE_ENTRIES`] entries that are written once and never
//! rewritten. Layout of a page, little-endian:
//!
//! ```text
//! "PLR2"  u8 flags (1: entries carry a plaintext digest)  u8 0  u16 entries
//! entry:  name 32 B   u32 plaintext length   [plaintext digest 32 B]
//! check:  16 B
//! ```
//! In a plain space the stored bytes are the plaintext, so the name is the digest. The check is BLAKE3
//! in key-derivation mode over the file's digest, the page's number and everything before it, so that no
//! page is taken for one of another file, or for another one of its own (promise D4).

use crate::chunk::{ChunkName, Digest, MAX_CHUNK};
use crate::merkle::{SEGMENT, Tree};
use std::ops::Range;

/// The number of entries of a full page: large enough to amortise a row, small enough to read one alone.
pub const PAGE_ENTRIES: usize = 1024;

/// The most chunks of a file that are committed, kept and read as one part, which is one page; a file of more chunks is
/// a row of parts. Each part but the last has exactly this many where chunks are of one size, and [`part_bytes`] bytes
/// in any case, so that its digest is a whole subtree of the file's.
pub const PART_CHUNKS: usize = PAGE_ENTRIES;
/// The size in bytes of the largest file: sums over a whole pool stay far from overflowing.
pub const LARGEST_FILE: u64 = 1 << 60;

/// Returns the bytes of each part but the last, in files that are cut into chunks of `chunk_size` bytes, or
/// `by_content` into chunks of at least a quarter of that. It is a power of two where `chunk_size` is one.
pub fn part_bytes(chunk_size: u32, by_content: bool) -> u64 {
    let bytes = PART_CHUNKS as u64 * u64::from(chunk_size);
    if by_content { bytes / CUT_BY_CONTENT_LEAST } else { bytes }
}

/// Returns the bytes of each part but the last of a file of `size` bytes in `parts` parts, which are more than one;
/// `None` where no way of cutting it makes so many.
pub fn part_bytes_of(size: u64, chunk_size: u32, parts: u64) -> Option<u64> {
    let ways = [false, true].map(|by_content| part_bytes(chunk_size, by_content));
    ways.into_iter().find(|bytes| *bytes > 0 && size.div_ceil(*bytes) == parts)
}

/// The divisor of the largest chunk that gives the least one when a file is cut by content; only the last chunk of a
/// part may be shorter.
pub const CUT_BY_CONTENT_LEAST: u64 = 4;

const MAGIC: &[u8; 4] = b"PLR2";
const HEADER: usize = 8;
const CHECK: usize = 16;
const CONTEXT: &str = "potluck 2026-11 recipe page";
const WITH_DIGEST: u8 = 1;

/// One chunk of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The name of the chunk as it is stored.
    pub name: ChunkName,
    /// The digest of the chunk's plaintext.
    pub digest: Digest,
    /// The size of the chunk in bytes, sealed or not.
    pub len: u32,
    /// True if the stored bytes are sealed.
    pub sealed: bool,
}

impl Entry {
    /// Returns the number of segments of the chunk.
    pub fn segments(&self) -> u32 {
        self.len.div_ceil(SEGMENT)
    }

    /// Returns the range of bytes that the given segments of the chunk take.
    pub fn bytes_of(&self, segments: &Range<u32>) -> Range<u32> {
        let at = |segment: u32| segment.saturating_mul(SEGMENT).min(self.len);
        at(segments.start)..at(segments.end)
    }
}

/// The error of a page that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("damaged recipe page: {0}")]
pub struct BadPage(&'static str);

/// Packs the recipe of the file with this digest into pages; all entries are sealed, or none.
pub fn pack(digest: &Digest, entries: &[Entry]) -> Vec<Vec<u8>> {
    let pages = entries.chunks(PAGE_ENTRIES).enumerate();
    pages.map(|(number, entries)| pack_page(digest, number, entries)).collect()
}

fn pack_page(digest: &Digest, number: usize, entries: &[Entry]) -> Vec<u8> {
    let sealed = entries.first().is_some_and(|entry| entry.sealed);
    let size = if sealed { 68 } else { 36 };
    let mut page = Vec::with_capacity(HEADER + size * entries.len() + CHECK);
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
    let check = check(digest, number, &page);
    page.extend_from_slice(&check);
    page
}

fn check(digest: &Digest, number: usize, page: &[u8]) -> [u8; CHECK] {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    hasher.update(&digest.0).update(&(number as u64).to_le_bytes()).update(page);
    let mut check = [0; CHECK];
    hasher.finalize_xof().fill(&mut check);
    check
}

/// Reads the recipe of the file with this digest; any byte strings give its entries or an error. Whether pages are
/// missing at the end is to be judged by the file's size.
pub fn unpack<'a>(
    digest: &Digest,
    pages: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<Entry>, BadPage> {
    let mut entries = Vec::new();
    for (number, page) in pages.into_iter().enumerate() {
        entries.extend(unpack_one(digest, number, page)?);
    }
    Ok(entries)
}

/// Reads page `number` of the recipe of the file with this digest.
pub fn unpack_one(digest: &Digest, number: usize, page: &[u8]) -> Result<Vec<Entry>, BadPage> {
    let entries = unpack_page(page)?;
    if page.last_chunk() != Some(&check(digest, number, &page[..page.len() - CHECK])) {
        return Err(BadPage("it is not this page of this file"));
    }
    Ok(entries)
}

/// Returns the digest of a file that has these chunks; `None` where their lengths do not tell it, because all but the
/// last have to be whole subtrees of one size.
pub fn digest_of(entries: &[Entry]) -> Option<Digest> {
    let mut tree = Tree::default();
    entries.iter().for_each(|entry| tree.push(entry.digest.0));
    let (last, others) = entries.split_last().unzip();
    let others = others.unwrap_or_default();
    let len = others.first().or(last).map_or(0, |entry| entry.len);
    let segments = len / SEGMENT;
    let whole = others.is_empty() || (len.is_multiple_of(SEGMENT) && segments.is_power_of_two());
    let same = others.iter().all(|entry| entry.len == len);
    let fits = last.is_none_or(|last| last.len <= len);
    (whole && same && fits).then(|| Digest(tree.root()))
}

/// Reads a page without knowing its file; any byte string gives entries or an error.
pub fn unpack_page(page: &[u8]) -> Result<Vec<Entry>, BadPage> {
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
    if count == 0 || count > PAGE_ENTRIES || body.len() != count * size + CHECK {
        return Err(BadPage("wrong length"));
    }
    let array = |bytes: &[u8]| <[u8; 32]>::try_from(bytes).expect("32 bytes");
    body[..count * size]
        .chunks_exact(size)
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
