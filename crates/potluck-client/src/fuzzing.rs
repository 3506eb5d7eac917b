//! Decoders of formats that no other crate reads, made public for the fuzzer.

pub use crate::contribution::{Composition, FOOTER, Index};

use crate::chunk_cache::SegmentRun;
use crate::chunk_cache::directory::CacheDir;
use potluck_core::chunk::ChunkName;
use potluck_core::merkle::SEGMENT;
use std::fs;
use std::io;
use std::path::Path;

/// A cache directory with a place for the whole of one chunk.
pub struct CachedChunk {
    cache: CacheDir,
    run: SegmentRun,
}

impl CachedChunk {
    /// Makes the place for a chunk of `chunk_len` bytes in the directory `dir`.
    pub fn new(dir: &Path, chunk_len: u32) -> io::Result<Self> {
        let segments = 0..chunk_len.div_ceil(SEGMENT);
        let run = SegmentRun { chunk: ChunkName([9; 32]), chunk_len, segments };
        Ok(Self { cache: CacheDir::open(dir, 1 << 30)?, run })
    }

    /// Reads the chunk from a cache file with these bytes.
    pub fn read(&self, file: &[u8]) -> io::Result<Option<Vec<u8>>> {
        fs::write(self.cache.path(&self.run), file)?;
        Ok(self.cache.read(&self.run))
    }

    /// Returns the bytes of the cache file of a chunk with this content.
    pub fn file(&self, content: &[u8]) -> io::Result<Vec<u8>> {
        let path = self.cache.path(&self.run);
        let _ = fs::remove_file(&path); // a file that is there is not written again
        self.cache.write(&self.run, content)?;
        fs::read(path)
    }
}
