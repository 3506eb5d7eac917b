//! The bytes of a chunk on its way to donors: in memory, or still in the local file that they come from, or in the
//! pool.
//!
//! A chunk that is stored as its file has it is hashed while it is read, in pieces that stay in the processor's cache,
//! and goes from the system's file cache straight to the socket, which saves two copies of each byte. If the file
//! changes between hashing and sending, donors find that by the chunk's name, and the file is not stored.

use crate::buffer::{Buffer, Claim};
use potluck_core::chunk::{ChunkHasher, ChunkName};
use potluck_wire::bulk::PIECE;
use potluck_wire::error::Failure;
use potluck_wire::net::BoxFuture;
use std::fmt;
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
    /// A chunk that the pool has.
    Kept(KeptChunk),
}

/// A chunk that the pool has. It is read only if the pool lacks copies of it.
pub struct KeptChunk {
    /// The reader of the row of chunks that this chunk is stored with.
    pub row: Arc<dyn ReadRow>,
    /// The position of the chunk in its row, parity after the data.
    pub position: usize,
    /// The number of stored bytes of the chunk.
    pub len: u32,
    /// The number of plaintext bytes of the chunk; 0 for parity.
    pub plain: u32,
}

/// Reads chunks that are stored together.
pub trait ReadRow: Send + Sync {
    /// Reads the stored bytes of the chunk at a position into memory.
    fn read(&self, position: usize) -> BoxFuture<'_, Result<Arc<Body>, Failure>>;
}

impl fmt::Debug for KeptChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk {} of a kept row", self.position)
    }
}

/// A part of a local file.
#[derive(Debug)]
pub struct FileRange {
    /// The file, open for reading.
    pub file: Arc<File>,
    /// The offset of the part in the file, in bytes.
    pub offset: u64,
    /// The number of bytes of the part.
    pub len: u32,
    /// The share of the part in the budget for bytes on their way, as if it were in memory.
    _claim: Claim,
}

impl Body {
    /// Returns the number of stored bytes of the chunk.
    pub fn len(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File(range) => range.len as usize,
            Self::Kept(chunk) => chunk.len as usize,
        }
    }

    /// Returns the bytes in memory or in a local file, from which they can be sent: a chunk that the pool has is read.
    pub async fn in_hand(self: Arc<Self>) -> Result<Arc<Self>, Failure> {
        match &*self {
            Self::Kept(KeptChunk { row, position, .. }) => row.read(*position).await,
            Self::Memory(_) | Self::File(_) => Ok(self),
        }
    }

    /// Reads all bytes of the chunk, as they are now.
    #[cfg(test)]
    pub fn to_vec(&self) -> Vec<u8> {
        match self {
            Self::Memory(bytes) => bytes.to_vec(),
            Self::File(range) => {
                let mut bytes = vec![0; range.len as usize];
                range.file.read_exact_at(&mut bytes, range.offset).expect("the bytes of a test");
                bytes
            }
            Self::Kept(_) => panic!("a test has none"),
        }
    }

    /// Returns whether the local file of this body has other bytes by now than those of the chunk `name`, or cannot be
    /// read. It blocks.
    pub fn has_changed(&self, name: &ChunkName) -> bool {
        match self {
            Self::Memory(_) | Self::Kept(_) => false,
            Self::File(range) => range.name_now() != Some(*name),
        }
    }
}

impl FileRange {
    /// Makes a part of `file`: its `len` bytes from `offset` on, with their share `claim` of the memory budget.
    pub fn new(file: Arc<File>, offset: u64, len: u32, claim: Claim) -> Self {
        Self { file, offset, len, _claim: claim }
    }

    /// Computes the name of the bytes that are in the file now; `None` if they cannot be read, or are fewer.
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
