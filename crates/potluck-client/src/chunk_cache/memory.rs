//! Keeps segments in memory, and forgets those first that were not used for longest.

use super::SegmentRun;
use potluck_core::chunk::ChunkName;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

/// The segments that were used last, as many as fit into `most` bytes.
pub struct RecentSegments {
    most: usize,
    kept: Mutex<SegmentsByUse>,
}

#[derive(Default)]
struct SegmentsByUse {
    segments: HashMap<(ChunkName, u32), Segment>,
    /// The segments by when they were last used.
    by_use: BTreeMap<u64, (ChunkName, u32)>,
    uses: u64,
    bytes: usize,
}

struct Segment {
    bytes: Arc<[u8]>,
    last_use: u64,
}

impl RecentSegments {
    /// Makes an empty memory, for at most `most` bytes of segments.
    pub fn new(most: usize) -> Self {
        Self { most, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, SegmentsByUse> {
        self.kept.lock().expect("no holder panics")
    }

    /// Copies a run to `bytes` if all of it is in memory.
    pub fn get(&self, run: &SegmentRun, bytes: &mut [u8]) -> bool {
        let segments: Option<Vec<_>> = {
            let mut kept = self.kept();
            let mut segments = run.segments.clone();
            if !segments.all(|segment| kept.segments.contains_key(&(run.chunk, segment))) {
                return false;
            }
            run.segments.clone().map(|segment| kept.used(&(run.chunk, segment))).collect()
        };
        let Some(segments) = segments else { return false };
        let mut rest = bytes;
        for segment in segments {
            let Some((now, later)) = rest.split_at_mut_checked(segment.len()) else { return false };
            now.copy_from_slice(&segment);
            rest = later;
        }
        rest.is_empty()
    }

    /// Keeps the segments of a run.
    pub fn put(&self, run: &SegmentRun, bytes: &[u8]) {
        let mut rest = bytes;
        for segment in run.segments.clone() {
            let Some((now, later)) = rest.split_at_checked(run.len_of(segment)) else { return };
            self.kept().add((run.chunk, segment), now.into(), self.most);
            rest = later;
        }
    }
}

impl SegmentsByUse {
    fn used(&mut self, key: &(ChunkName, u32)) -> Option<Arc<[u8]>> {
        let segment = self.segments.get_mut(key)?;
        self.by_use.remove(&segment.last_use);
        self.uses += 1;
        segment.last_use = self.uses;
        self.by_use.insert(self.uses, *key);
        Some(Arc::clone(&segment.bytes))
    }

    fn add(&mut self, key: (ChunkName, u32), bytes: Arc<[u8]>, most: usize) {
        if self.used(&key).is_some() || bytes.len() > most {
            return;
        }
        self.bytes += bytes.len();
        while self.bytes > most
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            let forgotten = self.segments.remove(&oldest);
            self.bytes -= forgotten.map_or(0, |segment| segment.bytes.len());
        }
        self.uses += 1;
        self.by_use.insert(self.uses, key);
        self.segments.insert(key, Segment { bytes, last_use: self.uses });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_chunk_is_evicted_first() {
        let recent = RecentSegments::new(3 << 16);
        let run = |chunk: u8, segments| SegmentRun {
            chunk: ChunkName([chunk; 32]),
            chunk_len: (5 << 16) + 7,
            segments,
        };
        let is_here = |chunk: u8, segments| {
            let run = run(chunk, segments);
            let mut bytes = vec![0; run.len()];
            let is_here = recent.get(&run, &mut bytes);
            assert!(!is_here || bytes.iter().all(|byte| *byte == chunk), "other bytes came out");
            is_here
        };
        recent.put(&run(1, 0..2), &[1; 2 << 16]);
        recent.put(&run(2, 5..6), &[2; 7]);
        assert!(is_here(2, 5..6), "the last one is short");
        assert!(!is_here(1, 0..3), "one is not there");
        assert!(is_here(1, 0..1));
        recent.put(&run(3, 0..1), &[3; 1 << 16]);
        assert!(!is_here(1, 1..2), "the oldest");
        assert!(is_here(1, 0..1) && is_here(2, 5..6) && is_here(3, 0..1), "used since");
        recent.put(&run(4, 0..5), &[4; 5 << 16]);
        let kept = recent.kept();
        assert!(kept.bytes <= 3 << 16);
        assert_eq!(kept.segments.len(), kept.by_use.len());
    }
}
