//! The bytes that a bad disk, or a donor that lies, gives for a chunk.

use super::{Inode, Node, Tree, lock};
use potluck_donor::disk::OldFile;
use potluck_wire::bulk::ReadAt;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Mutex;

/// Bytes after a chunk in its file.
const TRAILER: usize = 64;

/// A way to lie about chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// One bit of the chunk is another.
    BitFlip,
    /// The chunk has its length, and ends early.
    CutBody,
    /// The chunk is shorter than it should be.
    Shorter,
    /// The chunk is longer than it should be.
    Longer,
    /// The chunk consists of zeros.
    Zeros,
    /// Zeros from the middle on.
    HalfZeros,
    /// Another chunk, valid under its own name.
    AnotherChunk,
    /// Another chunk of the same length if there is one: an older version's.
    OlderVersion,
    /// The chunk's own trailer behind another chunk's bytes.
    AnotherBytes,
    /// The chunk consists of random bytes.
    Garbage,
    /// The chunk has no bytes.
    Empty,
    /// The chunk is said not to be there.
    Missing,
    /// The disk cannot read it.
    Refused,
    /// The disk cannot read the second half.
    RefusedHalfway,
    /// The bytes come a few at a time, and are right.
    Drip,
    /// The bytes are right, the trailer is not.
    TrailerOnly,
}

impl Lie {
    /// The lies of all kinds.
    pub const ALL: [Self; 16] = [
        Self::BitFlip,
        Self::CutBody,
        Self::Shorter,
        Self::Longer,
        Self::Zeros,
        Self::HalfZeros,
        Self::AnotherChunk,
        Self::OlderVersion,
        Self::AnotherBytes,
        Self::Garbage,
        Self::Empty,
        Self::Missing,
        Self::Refused,
        Self::RefusedHalfway,
        Self::Drip,
        Self::TrailerOnly,
    ];

    /// Whether readers get something else than the chunk.
    pub fn harms(self) -> bool {
        !matches!(self, Self::Drip | Self::TrailerOnly)
    }
}

/// Whether lies are told of the file at `path`: of chunks, in quarantine too.
pub fn concerns(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "chunks" || part.as_os_str() == "quarantine")
}

/// A file as a liar shows it.
pub struct Liar {
    bytes: Vec<u8>,
    len: u64,
    /// Bytes that can be read.
    most: usize,
    /// Bytes that one read gives.
    step: usize,
}

impl Liar {
    pub(super) fn open(
        lie: Lie,
        path: &Path,
        inode: &Mutex<Inode>,
        tree: &Tree,
    ) -> io::Result<Self> {
        let mut bytes = lock(inode).bytes.clone();
        let body = bytes.len().saturating_sub(TRAILER);
        let (mut len, mut most, mut step) = (None, usize::MAX, usize::MAX);
        match lie {
            Lie::BitFlip => bytes[body / 2] ^= 0x10,
            Lie::CutBody => {
                len = Some(bytes.len());
                bytes.truncate(body / 2);
            }
            Lie::Shorter => drop(bytes.drain(..body.div_ceil(2))),
            Lie::Longer => drop(bytes.splice(body..body, [7; 1000])),
            Lie::Zeros => bytes.fill(0),
            Lie::HalfZeros => bytes[body / 2..body].fill(0),
            Lie::AnotherChunk => bytes = another(path, None, tree).unwrap_or_default(),
            Lie::OlderVersion => {
                bytes = another(path, Some(bytes.len()), tree).unwrap_or_default();
            }
            Lie::AnotherBytes => {
                let other = another(path, Some(bytes.len()), tree).unwrap_or_default();
                match other.get(..body) {
                    Some(other) => bytes[..body].copy_from_slice(other),
                    None => bytes[..body].fill(1),
                }
            }
            Lie::Garbage => {
                let mut hasher = blake3::Hasher::new();
                hasher.update(path.as_os_str().as_encoded_bytes());
                hasher.finalize_xof().fill(&mut bytes);
            }
            Lie::Empty => bytes.clear(),
            Lie::Missing => return Err(Errno::NOENT.into()),
            Lie::Refused => return Err(Errno::NODATA.into()),
            Lie::RefusedHalfway => most = body / 2,
            Lie::Drip => step = 1000,
            Lie::TrailerOnly => bytes[body..].fill(0xff),
        }
        let len = len.unwrap_or(bytes.len()) as u64;
        Ok(Self { bytes, len, most, step })
    }
}

/// The file of another chunk, of this length if one is given.
fn another(path: &Path, len: Option<usize>, tree: &Tree) -> Option<Vec<u8>> {
    let others = tree.iter().filter(|(other, _)| *other != path && concerns(other));
    let mut files = others.filter_map(|(_, node)| match node {
        Node::Dir => None,
        Node::File(inode) => Some(lock(inode).bytes.clone()),
    });
    files.find(|bytes| len.is_none_or(|len| bytes.len() == len))
}

impl ReadAt for Liar {
    fn as_file(&self) -> Option<&File> {
        None
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let offset = offset as usize;
        if offset >= self.most {
            return Err(Errno::IO.into());
        }
        let rest = self.bytes.get(offset..).unwrap_or_default();
        let n = rest.len().min(out.len()).min(self.step).min(self.most - offset);
        out[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

impl OldFile for Liar {
    fn len(&self) -> u64 {
        self.len
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
