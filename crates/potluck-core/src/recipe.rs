//! Recipes: the ordered chunks that make one version of a file, and the holes between them.
//!
//! A recipe is packed in pages of up to [`PAGE_ENTRIES`] entries that are written once and never
//! rewritten. Layout of a page, little-endian:
//!
//! ```text
//! "PLR3"  u8 flags (1: entries carry a plaintext digest)  u8 0  u16 entries
//! entry:  name 32 B   u32 plaintext length   [plaintext digest 32 B]
//! check:  16 B
//! ```
//! An entry of the length 0 is a hole: its name is 24 zeros and a u64, the number of zero bytes that the file has there,
//! and its digest is zeros.
//!
//! In a plain space the stored bytes are the plaintext, so the name is the digest. The check is BLAKE3
//! in key-derivation mode over the file's digest, the page's number and everything before it, so that no
//! page is taken for one of another file, or for another one of its own (promise D4).

use crate::chunk::{ChunkName, Digest, MAX_CHUNK};
use crate::file_digest::{FileDigest, digest_of_zeros};
use crate::merkle::{SEGMENT, Tree};
use std::ops::Range;

/// The number of entries of a full page: large enough to amortise a row, small enough to read one alone.
pub const PAGE_ENTRIES: usize = 1024;

/// The most chunks of a file that are committed, kept and read as one part, which is one page; a file of more chunks is
/// a row of parts. Each part but the last has exactly this many where chunks are of one size and it has no holes, and
/// [`part_bytes`] bytes in any case, so that its digest is a whole subtree of the file's. A part that is one hole is not
/// stored.
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

/// Returns the digest of a file of `size` bytes in parts of `row` bytes each but the last, of which these are stored, by
/// number and digest in order; all others are holes. `None` where the file has no such parts.
pub fn digest_of_parts(
    size: u64,
    row: u64,
    stored: impl IntoIterator<Item = (u32, Digest)>,
) -> Option<Digest> {
    let (mut tree, hole, mut next) = (Tree::default(), digest_of_zeros(row), 0);
    let last = size.div_ceil(row).checked_sub(1)?;
    for (number, digest) in stored {
        let number = u64::from(number);
        if number < next || number > last {
            return None;
        }
        tree.push_repeated(hole.0, 1, number - next);
        tree.push(digest.0);
        next = number + 1;
    }
    if next <= last {
        tree.push_repeated(hole.0, 1, last - next);
        tree.push(digest_of_zeros(size - last * row).0);
    }
    Some(Digest(tree.root()))
}

/// The divisor of the largest chunk that gives the least one when a file is cut by content; only the last chunk of a
/// part may be shorter.
pub const CUT_BY_CONTENT_LEAST: u64 = 4;

const MAGIC: &[u8; 4] = b"PLR3";
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

/// A hole: zeros that no chunk has. It takes no room at donors, however long it is.
///
/// Where a file is cut by size, holes begin and end where chunks do, or groups of an erasure code, so that the chunks
/// beside them are those that the file would have without holes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// The number of chunks before the hole.
    pub after: usize,
    /// The number of zeros.
    pub len: u64,
}

/// What a recipe says: the chunks of a file in order, and the holes between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// The chunks of the file in order.
    pub chunks: Vec<Entry>,
    /// The holes in order, of which no two follow one another.
    pub holes: Vec<Hole>,
}

/// A chunk or a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span<'a> {
    /// A chunk of the recipe.
    Chunk(&'a Entry),
    /// This many zeros, without a chunk.
    Hole(u64),
}

impl Span<'_> {
    /// Returns the number of bytes of the file that this is.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Chunk(entry) => entry.len.into(),
            Self::Hole(len) => *len,
        }
    }
}

impl From<&[Entry]> for Content {
    fn from(chunks: &[Entry]) -> Self {
        Self { chunks: chunks.to_vec(), holes: Vec::new() }
    }
}

impl Content {
    /// Adds a chunk at the end.
    pub fn push(&mut self, chunk: Entry) {
        self.chunks.push(chunk);
    }

    /// Adds zeros at the end.
    pub fn push_hole(&mut self, len: u64) {
        let after = self.chunks.len();
        match self.holes.last_mut() {
            Some(last) if last.after == after => last.len += len,
            _ if len > 0 => self.holes.push(Hole { after, len }),
            _ => {}
        }
    }

    /// Returns the chunks and holes in order.
    pub fn spans(&self) -> impl Iterator<Item = Span<'_>> {
        let mut holes = self.holes.iter().peekable();
        (0..=self.chunks.len()).flat_map(move |at| {
            let hole = holes.next_if(|hole| hole.after == at).map(|hole| Span::Hole(hole.len));
            hole.into_iter().chain(self.chunks.get(at).map(Span::Chunk))
        })
    }

    /// Returns the number of zeros in holes.
    pub fn hole_bytes(&self) -> u64 {
        self.holes.iter().map(|hole| hole.len).sum()
    }

    /// Returns the number of bytes in chunks.
    pub fn data_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| u64::from(chunk.len)).sum()
    }

    /// Returns the size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.hole_bytes() + self.data_bytes()
    }

    /// Returns the digest of a file with this content; `None` where the lengths of the chunks do not tell it, because
    /// all but the last have to be whole subtrees.
    pub fn digest(&self) -> Option<Digest> {
        let mut tree = FileDigest::default();
        let mut spans = self.spans().peekable();
        let (mut at, segment) = (0, u64::from(SEGMENT));
        while let Some(span) = spans.next() {
            let segments = match span {
                Span::Hole(_) => 1,
                Span::Chunk(entry) => u64::from(entry.segments()).next_power_of_two(),
            };
            let is_subtree = span.bytes() == segments * segment || spans.peek().is_none();
            match span {
                _ if !u64::is_multiple_of(at, segments * segment) => return None,
                Span::Hole(len) => tree.push_zeros(len),
                Span::Chunk(entry) if is_subtree => tree.push_chunk(&entry.digest, segments),
                Span::Chunk(_) => return None,
            }
            at += span.bytes();
        }
        Some(tree.finish())
    }
}

/// The error of a page that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("damaged recipe page: {0}")]
pub struct BadPage(&'static str);

/// Packs the recipe of the file with this digest into pages; all chunks are sealed, or none.
pub fn pack(digest: &Digest, content: &Content) -> Vec<Vec<u8>> {
    let sealed = content.chunks.first().is_some_and(|entry| entry.sealed);
    let spans: Vec<Span<'_>> = content.spans().collect();
    let pages = spans.chunks(PAGE_ENTRIES).enumerate();
    pages.map(|(number, spans)| pack_page(digest, number, spans, sealed)).collect()
}

fn pack_page(digest: &Digest, number: usize, spans: &[Span<'_>], sealed: bool) -> Vec<u8> {
    let size = if sealed { 68 } else { 36 };
    let mut page = Vec::with_capacity(HEADER + size * spans.len() + CHECK);
    page.extend_from_slice(MAGIC);
    page.push(if sealed { WITH_DIGEST } else { 0 });
    page.push(0);
    page.extend_from_slice(&(spans.len() as u16).to_le_bytes());
    for span in spans {
        let (name, len, digest) = match span {
            Span::Chunk(entry) => {
                assert_eq!(entry.sealed, sealed, "one file is sealed whole or not at all");
                (entry.name.0, entry.len, entry.digest.0)
            }
            Span::Hole(len) => (hole_name(*len), 0, [0; 32]),
        };
        page.extend_from_slice(&name);
        page.extend_from_slice(&len.to_le_bytes());
        if sealed {
            page.extend_from_slice(&digest);
        }
    }
    let check = check(digest, number, &page);
    page.extend_from_slice(&check);
    page
}

fn hole_name(len: u64) -> [u8; 32] {
    let mut name = [0; 32];
    name[24..].copy_from_slice(&len.to_le_bytes());
    name
}

fn check(digest: &Digest, number: usize, page: &[u8]) -> [u8; CHECK] {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    hasher.update(&digest.0).update(&(number as u64).to_le_bytes()).update(page);
    let mut check = [0; CHECK];
    hasher.finalize_xof().fill(&mut check);
    check
}

/// Reads the recipe of the file with this digest; any byte strings give its content or an error. Whether pages are
/// missing at the end is to be judged by the file's size.
pub fn unpack<'a>(
    digest: &Digest,
    pages: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Content, BadPage> {
    let mut content = Content::default();
    for (number, page) in pages.into_iter().enumerate() {
        let page = unpack_one(digest, number, page)?;
        for span in page.spans() {
            match span {
                Span::Chunk(entry) => content.push(*entry),
                Span::Hole(len) => content.push_hole(len),
            }
        }
        if content.hole_bytes() > LARGEST_FILE {
            return Err(BadPage("impossible holes"));
        }
    }
    Ok(content)
}

/// Reads page `number` of the recipe of the file with this digest; the chunks before its holes are counted from its own
/// begin.
pub fn unpack_one(digest: &Digest, number: usize, page: &[u8]) -> Result<Content, BadPage> {
    let content = unpack_page(page)?;
    if page.last_chunk() != Some(&check(digest, number, &page[..page.len() - CHECK])) {
        return Err(BadPage("it is not this page of this file"));
    }
    Ok(content)
}

/// Reads a page without knowing its file; any byte string gives its content or an error.
pub fn unpack_page(page: &[u8]) -> Result<Content, BadPage> {
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
    let mut content = Content::default();
    for bytes in body[..count * size].chunks_exact(size) {
        let name = array(&bytes[..32]);
        let len = u32::from_le_bytes(bytes[32..36].try_into().expect("4 bytes"));
        let digest = if sealed { array(&bytes[36..68]) } else { name };
        if len == 0 {
            let zeros = u64::from_le_bytes(name[24..].try_into().expect("8 bytes"));
            let is_named = name == hole_name(zeros) && (!sealed || digest == [0; 32]);
            let follows_one =
                content.holes.last().is_some_and(|it| it.after == content.chunks.len());
            let most = LARGEST_FILE - content.hole_bytes();
            if !is_named || follows_one || !(1..=most).contains(&zeros) {
                return Err(BadPage("impossible hole"));
            }
            content.push_hole(zeros);
        } else if len > MAX_CHUNK {
            return Err(BadPage("impossible chunk length"));
        } else {
            content.push(Entry { name: ChunkName(name), digest: Digest(digest), len, sealed });
        }
    }
    Ok(content)
}
