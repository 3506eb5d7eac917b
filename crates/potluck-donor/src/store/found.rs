//! A chunk that is open to be sent.

use crate::disk::{OldFile, read_exact_at};
use potluck_core::chunk::ChunkName;
use potluck_core::chunk_file::{TRAILER, tail_len};
use potluck_core::merkle::{SegmentHashes, TreeParts};
use std::sync::OnceLock;

/// A stored chunk, ready to be sent.
pub(crate) struct FoundChunk {
    /// The file; its first `len` bytes are the chunk.
    pub file: Box<dyn OldFile>,
    /// The number of stored bytes.
    pub len: u32,
    /// The tree of the chunk's stored segment hashes, once it was asked for; `None` if they cannot be read or do not
    /// belong to the chunk's name.
    tree: OnceLock<Option<TreeParts>>,
}

impl FoundChunk {
    /// Makes a chunk of `len` stored bytes, whose hashes are not read yet.
    pub fn new(file: Box<dyn OldFile>, len: u32) -> Self {
        Self { file, len, tree: OnceLock::new() }
    }

    /// Returns the tree that proves parts of this chunk, which is called `name`; `None` if the stored hashes are bad.
    pub fn tree(&self, name: &ChunkName) -> Option<&TreeParts> {
        let read = || {
            let mut table = vec![0; tail_len(self.len) - TRAILER];
            read_exact_at(&*self.file, &mut table, self.len.into()).ok()?;
            let tree = SegmentHashes::from_bytes(&table).parts();
            (tree.root() == Some(&name.0)).then_some(tree)
        };
        self.tree.get_or_init(read).as_ref()
    }
}
