//! The bytes of a chunk on its way to donors: in memory, or still in the local file that they come from.
//!
//! A chunk that is stored as its file has it was hashed as it was read, in pieces that stay in the processor's cache,
//! and goes from the system's file cache straight to the socket: two copies less of each byte. The file may change
//! between the two; donors find that by the chunk's name, and the file is not stored.

use crate::buffer::{Buffer, Claim};
use potluck_core::chunk::{ChunkHasher, ChunkName};
use potluck_wire::bulk::PIECE;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The stored bytes of a chunk.
#[derive(Debug)]
pub enum Body {
    /// Bytes in memory.
    Memory(Buffer),
    /// A part of a local file, which may change.
    File(FileRange),
}

/// A part of a local file.
#[derive(Debug)]
pub struct FileRange {
    /// The file, open for reading.
    pub file: Arc<File>,
    /// Bytes of the file before the part.
    pub offset: u64,
    /// Bytes of the part.
    pub len: u32,
    /// The share of the part in what may be on its way at once, as if it were in memory.
    _claim: Claim,
}

impl Body {
    /// How many bytes it has.
    pub fn len(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File(range) => range.len as usize,
        }
    }

    /// All bytes of it, as they are now.
    #[cfg(test)]
    pub fn to_vec(&self) -> Vec<u8> {
        match self {
            Self::Memory(bytes) => bytes.to_vec(),
            Self::File(range) => {
                let mut bytes = vec![0; range.len as usize];
                range.file.read_exact_at(&mut bytes, range.offset).expect("the bytes of a test");
                bytes
            }
        }
    }

    /// Whether its file has other bytes there by now than those called `name`. Blocks.
    pub fn has_changed(&self, name: &ChunkName) -> bool {
        match self {
            Self::Memory(_) => false,
            Self::File(range) => range.name_now() != Some(*name),
        }
    }
}

impl FileRange {
    /// The `len` bytes of `file` from `offset` on, which count as much as `claim`.
    pub fn new(file: Arc<File>, offset: u64, len: u32, claim: Claim) -> Self {
        Self { file, offset, len, _claim: claim }
    }

    /// The name of the bytes that are there now; `None` if they cannot be read, or are fewer.
    fn name_now(&self) -> Option<ChunkName> {
        let (mut hasher, mut piece) = (ChunkHasher::default(), vec![0; PIECE]);
        let end = self.offset + u64::from(self.len);
        for at in (self.offset..end).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min((end - at) as usize)];
            self.file.read_exact_at(piece, at).ok()?;
            hasher.update(piece);
        }
        Some(ChunkName(hasher.finish().root()))
    }
}
