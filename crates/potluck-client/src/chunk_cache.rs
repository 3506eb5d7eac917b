//! A cache of the segments that were read: in memory, and in a directory that all mounts of a user share.
//!
//! Bytes from the directory are verified segment by segment, against hashes that are kept with them and that cover the
//! name of the chunk and the number of the segment, so that a bit changed by the disk is a miss. Segments are
//! plaintext.

pub(crate) mod directory;
mod memory;

use crate::chunk_cache::directory::CacheDir;
use crate::chunk_cache::memory::RecentSegments;
use potluck_core::chunk::ChunkName;
use potluck_core::merkle::SEGMENT;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::task::spawn_blocking;

/// The longest run of segments that is kept in memory, in bytes. Longer runs are read in order, and hardly ever again
/// soon.
const MOST_IN_MEMORY: usize = 256 << 10;
/// The most bytes that may wait to be written to the directory; while so many wait, further segments are not kept
/// there.
const MOST_WAITING: usize = 16 << 20;

/// A cache of segments. Clones share it.
#[derive(Clone)]
pub struct ChunkCache {
    memory: Arc<RecentSegments>,
    dir: Option<Arc<CacheDir>>,
    waiting: Arc<Mutex<UnwrittenSegments>>,
    found: Arc<AtomicU64>,
}

/// The segments that wait to be written to the directory.
#[derive(Default)]
struct UnwrittenSegments {
    runs: VecDeque<(SegmentRun, Vec<u8>)>,
    bytes: usize,
    /// True while a task is writing them.
    is_written: bool,
}

/// A run of segments of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentRun {
    /// The name of the chunk, as stored.
    pub chunk: ChunkName,
    /// The number of plaintext bytes of the whole chunk.
    pub chunk_len: u32,
    /// The numbers of the segments in their chunk, from 0.
    pub segments: Range<u32>,
}

impl SegmentRun {
    /// Returns the number of plaintext bytes of a segment.
    fn len_of(&self, segment: u32) -> usize {
        (self.chunk_len.saturating_sub(segment * SEGMENT)).min(SEGMENT) as usize
    }

    /// Returns the number of plaintext bytes of all segments of the run.
    pub fn len(&self) -> usize {
        self.segments.clone().map(|segment| self.len_of(segment)).sum()
    }

    /// Returns whether the run has all segments of its chunk.
    pub fn is_whole(&self) -> bool {
        *self == self.of_whole()
    }

    /// Returns the run of all segments of the chunk.
    pub fn of_whole(&self) -> Self {
        Self { segments: 0..self.chunk_len.div_ceil(SEGMENT), ..self.clone() }
    }
}

impl ChunkCache {
    /// Makes a cache that keeps at most `memory` bytes in memory, and nothing in a directory.
    pub fn in_memory(memory: usize) -> Self {
        Self {
            memory: Arc::new(RecentSegments::new(memory)),
            dir: None,
            waiting: Arc::default(),
            found: Arc::default(),
        }
    }

    /// Returns this cache with a directory `dir` of at most `most` bytes besides, which other processes may use as
    /// well.
    ///
    /// Errors: the directory can neither be made nor used.
    pub fn and_in(self, dir: &Path, most: u64) -> io::Result<Self> {
        Ok(Self { dir: Some(Arc::new(CacheDir::open(dir, most)?)), ..self })
    }

    /// Returns how many bytes were found in the cache so far.
    pub fn found(&self) -> u64 {
        self.found.load(Ordering::Relaxed)
    }

    /// Copies a run to `bytes`, which are as long as the run; returns whether all of it was in the cache.
    pub(crate) async fn get(&self, run: &SegmentRun, bytes: &mut [u8]) -> bool {
        let is_here = self.memory.get(run, bytes) || self.get_from_dir(run, bytes).await;
        if is_here {
            self.found.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        is_here
    }

    async fn get_from_dir(&self, run: &SegmentRun, bytes: &mut [u8]) -> bool {
        let Some(dir) = self.dir.clone() else { return false };
        let asked = run.clone();
        let read = spawn_blocking(move || dir.read(&asked)).await.ok().flatten();
        let Some(read) = read else { return false };
        bytes.copy_from_slice(&read);
        self.remember(run, bytes);
        true
    }

    /// Keeps a run of segments that was read.
    pub(crate) fn put(&self, run: &SegmentRun, bytes: &[u8]) {
        self.remember(run, bytes);
        let Some(dir) = self.dir.clone() else { return };
        let mut waiting = self.waiting.lock().expect("no holder panics");
        // If the disk is too slow, segments are not kept, so that reads do not wait for it.
        if waiting.bytes + bytes.len() > MOST_WAITING {
            return;
        }
        waiting.bytes += bytes.len();
        waiting.runs.push_back((run.clone(), bytes.to_vec()));
        if !std::mem::replace(&mut waiting.is_written, true) {
            let waiting = Arc::clone(&self.waiting);
            spawn_blocking(move || write_all(&waiting, &dir));
        }
    }

    fn remember(&self, run: &SegmentRun, bytes: &[u8]) {
        if bytes.len() <= MOST_IN_MEMORY {
            self.memory.put(run, bytes);
        }
    }
}

/// Writes segments that wait to the directory, until none waits.
fn write_all(waiting: &Mutex<UnwrittenSegments>, dir: &CacheDir) {
    loop {
        let next = {
            let mut waiting = waiting.lock().expect("no holder panics");
            let next = waiting.runs.pop_front();
            waiting.bytes -= next.as_ref().map_or(0, |(_, bytes)| bytes.len());
            waiting.is_written = next.is_some();
            next
        };
        let Some((run, bytes)) = next else { return };
        if let Err(why) = dir.write(&run, &bytes) {
            tracing::debug!(%why, "a chunk is not kept in the cache");
        }
    }
}
