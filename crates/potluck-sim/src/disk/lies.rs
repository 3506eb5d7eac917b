//! The wrong bytes that a bad disk, or a donor that lies, returns for a chunk.

use super::{Inode, Node, Tree, lock};
use potluck_core::chunk_file::TRAILER;
use potluck_core::merkle::{SEGMENT, SegmentHashes};
use potluck_donor::disk::OldFile;
use potluck_wire::bulk::ReadAt;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Mutex;

/// A way to lie about chunk files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// One bit of the chunk is flipped.
    BitFlip,
    /// The file tells its true length, but its bytes end early.
    CutBody,
    /// The file is shorter than it should be.
    Shorter,
    /// The file is longer than it should be.
    Longer,
    /// The file consists of zeros, trailer included.
    Zeros,
    /// The file consists of zeros from the middle to the trailer.
    HalfZeros,
    /// The file of another chunk, valid under its own name.
    AnotherChunk,
    /// The file of another chunk of the same length, such as an older version's; without one, no bytes.
    OlderVersion,
    /// The bytes of another chunk of the same length, with the chunk's own trailer.
    AnotherBytes,
    /// Other bytes with the hashes of their segments: what a reader of a sealed space who lends a disk can do, since
    /// the key that they have seals any bytes under a digest (I4).
    Forged,
    /// The file consists of random bytes.
    Garbage,
    /// The file has no bytes.
    Empty,
    /// The file cannot be opened: it is said not to be there.
    Missing,
    /// The file cannot be opened: the disk fails.
    Refused,
    /// The disk fails to read the second half.
    RefusedHalfway,
    /// The bytes are right, and come a few at a time.
    Drip,
    /// The bytes are right, the trailer is not.
    TrailerOnly,
}

impl Lie {
    /// The lies of all kinds.
    pub const ALL: [Self; 17] = [
        Self::BitFlip,
        Self::CutBody,
        Self::Shorter,
        Self::Longer,
        Self::Zeros,
        Self::HalfZeros,
        Self::AnotherChunk,
        Self::OlderVersion,
        Self::AnotherBytes,
        Self::Forged,
        Self::Garbage,
        Self::Empty,
        Self::Missing,
        Self::Refused,
        Self::RefusedHalfway,
        Self::Drip,
        Self::TrailerOnly,
    ];

    /// Returns whether readers get anything but the right chunk.
    pub fn harms(self) -> bool {
        !matches!(self, Self::Drip | Self::TrailerOnly)
    }
}

/// Returns whether lies are told about the file at `path`, which is so for chunks, also quarantined ones.
pub fn concerns(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "chunks" || part.as_os_str() == "quarantine")
}

/// An open file whose bytes are a lie.
pub struct Liar {
    bytes: Vec<u8>,
    len: u64,
    /// The number of bytes, from the start, that can be read; further ones are an error.
    most: usize,
    /// The most bytes that one read returns.
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
            Lie::Forged => {
                let (segment, hash) = (SEGMENT as usize, 32);
                let count = body.div_ceil(segment + hash);
                let (chunk, hashes) = bytes[..body].split_at_mut(body - count * hash);
                chunk.iter_mut().for_each(|byte| *byte ^= 1);
                hashes.copy_from_slice(SegmentHashes::of(chunk).as_bytes());
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

/// Returns the bytes of another chunk's file, one of `len` bytes if a length is given.
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
