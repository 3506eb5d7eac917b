//! Merkle trees over the segments of chunks and of files (docs/format/chunk.md).
//!
//! Bytes are a row of segments of [`SEGMENT`] bytes, of which the last may be shorter. The hash of a
//! segment is its BLAKE3. Segments form a binary tree whose left part is the largest power of two that
//! is smaller than their number; the hash of two parts is keyed BLAKE3 of one after the other. So a root
//! commits to every segment, its place and their number, and a range of segments is verified with the
//! roots of the parts beside it: two for each level at most ([`proven_root`], which [`crate::chunk`] compares with the
//! name of the chunk).

use std::ops::Range;

/// The number of bytes of a segment, the unit that is sealed, served and verified alone. BLAKE3 is as fast over pieces
/// of this size as over long inputs, and the hashes take a 2048th of the bytes.
pub const SEGMENT: u32 = 64 << 10;

const SEGMENT_LEN: usize = SEGMENT as usize;

/// The key that joins two parts, so that no segment hashes to what two parts do.
const JOIN_KEY: &[u8; 32] = b"potluck 1 parent of two subtrees";

/// The hash of a segment, or the root of a part of a tree.
pub type Hash = [u8; 32];

/// Returns the number of segments that `bytes` are divided into.
pub fn segment_count(bytes: u64) -> u64 {
    bytes.div_ceil(SEGMENT.into())
}

/// Returns the root over two parts that follow one another.
pub fn join(left: &Hash, right: &Hash) -> Hash {
    let mut both = [0; 64];
    both[..32].copy_from_slice(left);
    both[32..].copy_from_slice(right);
    *blake3::keyed_hash(JOIN_KEY, &both).as_bytes()
}

/// A tree that grows by one segment at a time; memory grows with its height only.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// The roots of the whole subtrees so far, the largest first: one for each bit of `segments` that is set.
    subtrees: Vec<Hash>,
    segments: u64,
}

impl Tree {
    /// Adds the hash of the next segment.
    pub fn push(&mut self, segment: Hash) {
        self.push_subtree(segment, 1);
    }

    /// Adds the root over the next `segments` segments. That is a power of two, and there is a multiple of it before
    /// them.
    pub fn push_subtree(&mut self, mut root: Hash, segments: u64) {
        for _ in 0..(self.segments / segments).trailing_ones() {
            let left = self.subtrees.pop().expect("one for each bit");
            root = join(&left, &root);
        }
        self.subtrees.push(root);
        self.segments += segments;
    }

    /// Adds `count` subtrees of `segments` segments each that all have this root. The time taken grows with the
    /// logarithm of `count`. `segments` is a power of two, and there is a multiple of it before them.
    pub fn push_repeated(&mut self, root: Hash, segments: u64, mut count: u64) {
        // The roots over 1, 2, 4, … of the subtrees.
        let mut roots = vec![root];
        while count > 0 {
            let whole = (self.segments / segments).trailing_zeros().min(count.ilog2()) as usize;
            while roots.len() <= whole {
                let half = &roots[roots.len() - 1];
                roots.push(join(half, half));
            }
            self.push_subtree(roots[whole], segments << whole);
            count -= 1 << whole;
        }
    }

    /// Adds `count` segments of zeros.
    pub fn push_zero_segments(&mut self, count: u64) {
        self.push_repeated(*blake3::hash(&[0; SEGMENT_LEN]).as_bytes(), 1, count);
    }

    /// Returns the number of segments so far.
    pub fn segments(&self) -> u64 {
        self.segments
    }

    /// Returns the root over all segments; without any segment, BLAKE3 of nothing.
    pub fn root(&self) -> Hash {
        joined(&self.subtrees)
    }
}

/// Returns the root over subtrees, the largest first.
fn joined(subtrees: &[Hash]) -> Hash {
    let parts = subtrees.iter().rev().copied();
    parts.reduce(|right, left| join(&left, &right)).unwrap_or(*blake3::hash(b"").as_bytes())
}

/// A cutter of bytes into segments, which hashes them while they are warm in the cache.
#[derive(Debug, Clone, Default)]
pub struct SegmentCutter {
    begun: blake3::Hasher,
    filled: usize,
}

impl SegmentCutter {
    /// Adds the next bytes; `each` takes the hashes of the segments that they complete.
    pub fn update(&mut self, mut piece: &[u8], mut each: impl FnMut(Hash)) {
        while !piece.is_empty() {
            let taken = piece.len().min(SEGMENT_LEN - self.filled);
            let (head, rest) = piece.split_at(taken);
            if taken == SEGMENT_LEN {
                each(*blake3::hash(head).as_bytes());
            } else {
                self.begun.update(head);
                self.filled += taken;
                if self.filled == SEGMENT_LEN {
                    self.finish().into_iter().for_each(&mut each);
                }
            }
            piece = rest;
        }
    }

    /// Returns the number of bytes of the segment that was begun and is not complete.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Returns the hash of the segment that was begun and is not complete, if there is one, and starts over.
    pub fn finish(&mut self) -> Option<Hash> {
        let begun = std::mem::take(&mut self.filled) > 0;
        let hash = begun.then(|| *self.begun.finalize().as_bytes());
        self.begun.reset();
        hash
    }
}

/// The hashes of the segments of a chunk, or of a row of its segments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SegmentHashes(Vec<Hash>);

impl SegmentHashes {
    /// Returns the hashes of the segments of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(bytes.chunks(SEGMENT_LEN).map(|segment| *blake3::hash(segment).as_bytes()).collect())
    }

    /// Reads the hashes from bytes in which they stand one after the other; a rest shorter than a hash is ignored.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.as_chunks::<32>().0.to_vec())
    }

    /// Adds the hash of the next segment.
    pub fn push(&mut self, segment: Hash) {
        self.0.push(segment);
    }

    /// Returns the hashes in order.
    pub fn iter(&self) -> impl Iterator<Item = &Hash> {
        self.0.iter()
    }

    /// Returns the bytes of the hashes, one after the other.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_flattened()
    }

    /// Returns the root over the hashes.
    pub fn root(&self) -> Hash {
        root(&self.0)
    }

    /// Returns the roots of all parts of the tree over the hashes, for a caller that proves many ranges of one chunk.
    pub fn parts(self) -> TreeParts {
        let mut levels = vec![self.0];
        while let Some(level) = levels.last().filter(|level| level.len() > 1) {
            let pairs = level.chunks(2).map(|pair| match pair {
                [left, right] => join(left, right),
                alone => alone[0],
            });
            levels.push(pairs.collect());
        }
        TreeParts(levels)
    }
}

/// The roots of all parts of a chunk's tree, by level: of 1, 2, 4, … segments each, and of fewer at the end.
#[derive(Debug)]
pub struct TreeParts(Vec<Vec<Hash>>);

impl TreeParts {
    /// Returns the root over all segments, if there are any.
    pub fn root(&self) -> Option<&Hash> {
        self.0.last()?.first()
    }

    /// Returns the proof of the segments `range` for a reader who knows the root: the roots of the parts
    /// beside it, from left to right.
    pub fn proof(&self, range: &Range<usize>) -> SegmentHashes {
        let mut proof = SegmentHashes::default();
        beside(0..self.0[0].len(), range, &mut |part| {
            // A part begins at a multiple of its length, or of the next power of two if it is the last.
            let level = part.len().next_power_of_two().ilog2();
            proof.push(self.0[level as usize][part.start >> level]);
        });
        proof
    }
}

fn root(segments: &[Hash]) -> Hash {
    let mut tree = Tree::default();
    segments.iter().for_each(|segment| tree.push(*segment));
    tree.root()
}

impl FromIterator<Hash> for SegmentHashes {
    fn from_iter<I: IntoIterator<Item = Hash>>(hashes: I) -> Self {
        Self(hashes.into_iter().collect())
    }
}

/// Returns the place at which a part of several segments is divided.
fn middle(part: &Range<usize>) -> usize {
    part.start + part.len().next_power_of_two() / 2
}

/// Passes the largest parts of `part` that have no segment of `range` to `each`, from left to right.
fn beside(part: Range<usize>, range: &Range<usize>, each: &mut impl FnMut(Range<usize>)) {
    if part.end <= range.start || range.end <= part.start {
        each(part);
    } else if part.start < range.start || range.end < part.end {
        let middle = middle(&part);
        beside(part.start..middle, range, each);
        beside(middle..part.end, range, each);
    }
}

/// Returns the segments that the bytes `range` of a chunk of `len` bytes make up; `None` where they are not whole
/// segments.
pub fn whole_segments(range: &Range<u32>, len: u32) -> Option<Range<usize>> {
    let ends = range.end == len || (range.end < len && range.end.is_multiple_of(SEGMENT));
    let whole = range.start < range.end && range.start.is_multiple_of(SEGMENT) && ends;
    whole.then(|| (range.start / SEGMENT) as usize..range.end.div_ceil(SEGMENT) as usize)
}

/// Returns the number of bytes of the proof of the segments `range` of `count`.
pub fn proof_len(count: usize, range: &Range<usize>) -> usize {
    let mut len = 0;
    beside(0..count, range, &mut |_| len += size_of::<Hash>());
    len
}

/// Returns the root of `count` segments of which those of `range` have the hashes `segments`, and the parts beside them
/// the roots in `proof`; `None` if these are too few or too many, or if `range` is empty or not within `count`.
pub fn proven_root(
    count: usize,
    range: &Range<usize>,
    segments: &SegmentHashes,
    proof: &SegmentHashes,
) -> Option<Hash> {
    if range.is_empty() || range.end > count || segments.0.len() != range.len() {
        return None;
    }
    let mut proof = proof.iter();
    let root = climb(0..count, range, segments, &mut proof)?;
    proof.next().is_none().then_some(root)
}

fn climb<'a>(
    part: Range<usize>,
    range: &Range<usize>,
    segments: &SegmentHashes,
    proof: &mut impl Iterator<Item = &'a Hash>,
) -> Option<Hash> {
    if part.end <= range.start || range.end <= part.start {
        return proof.next().copied();
    }
    if range.start <= part.start && part.end <= range.end {
        return Some(root(&segments.0[part.start - range.start..part.end - range.start]));
    }
    let middle = middle(&part);
    let left = climb(part.start..middle, range, segments, proof)?;
    let right = climb(middle..part.end, range, segments, proof)?;
    Some(join(&left, &right))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at % 251) as u8).collect()
    }

    fn hex(hash: Hash) -> String {
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Checks the test vectors of docs/format/chunk.md.
    #[test]
    fn test_vectors_of_the_format() {
        let document = include_str!("../../../docs/format/chunk.md");
        let lens = [0, 1, 4096, 65_536, 65_537, 131_072, 200_000, 4 << 20, (4 << 20) + 1];
        let row = |len| format!("| {len} | `{}` |\n", hex(SegmentHashes::of(&bytes(len)).root()));
        let rows: String = lens.map(row).concat();
        assert!(document.contains(&rows), "{rows}");
    }

    #[test]
    fn pieces_of_any_size_give_the_hashes_of_the_whole() {
        let bytes = bytes(300_000);
        for step in [1000, 65_535, 65_536, 65_537, 100_000, 300_000] {
            let (mut cutter, mut hashes) = (SegmentCutter::default(), SegmentHashes::default());
            for piece in bytes.chunks(step) {
                cutter.update(piece, |hash| hashes.push(hash));
            }
            cutter.finish().into_iter().for_each(|hash| hashes.push(hash));
            assert_eq!(hashes, SegmentHashes::of(&bytes), "{step}");
        }
    }

    #[test]
    fn rows_of_segments_give_the_root_of_all() {
        for count in 1..=40_usize {
            let hashes = SegmentHashes((0..count as u8).map(|n| [n; 32]).collect());
            let mut tree = Tree::default();
            hashes.iter().for_each(|hash| tree.push(*hash));
            let mut rows = Tree::default();
            hashes.0.chunks(8).for_each(|row| rows.push(root(row)));
            assert_eq!(rows.root(), tree.root(), "{count}");
        }
    }

    #[test]
    fn subtrees_that_are_alike_are_added_together() {
        for before in 0..10_u8 {
            for count in 0..40 {
                let mut one_by_one = Tree::default();
                (0..before).for_each(|n| one_by_one.push([n; 32]));
                let mut together = one_by_one.clone();
                (0..count).for_each(|_| one_by_one.push([99; 32]));
                together.push_repeated([99; 32], 1, count);
                one_by_one.push([7; 32]);
                together.push([7; 32]);
                assert_eq!(together.root(), one_by_one.root(), "{before} and {count}");
                assert_eq!(together.segments(), one_by_one.segments());
            }
        }
    }

    #[test]
    fn a_proof_proves_its_range_of_segments_and_nothing_else() {
        for count in 1..=20 {
            let hashes = SegmentHashes((0..count as u8).map(|n| [n; 32]).collect());
            assert_eq!(hashes.clone().parts().root(), Some(&hashes.root()));
            for start in 0..count {
                for end in start + 1..=count {
                    let range = start..end;
                    let proof = hashes.clone().parts().proof(&range);
                    assert_eq!(proof.as_bytes().len(), proof_len(count, &range));
                    assert!(proof.0.len() <= 2 * count.ilog2() as usize + 1);
                    let here = SegmentHashes(hashes.0[range.clone()].to_vec());
                    let proven = |count, range: &Range<usize>, here: &_, proof: &_| {
                        proven_root(count, range, here, proof) == Some(hashes.root())
                    };
                    assert!(proven(count, &range, &here, &proof));
                    let mut other = here.clone();
                    other.0[0] = [0xff; 32];
                    assert!(!proven(count, &range, &other, &proof));
                    let moved = start + 1..end + 1;
                    assert!(!proven(count, &moved, &here, &proof));
                    let mut longer = proof.clone();
                    longer.push([0; 32]);
                    assert!(!proven(count, &range, &here, &longer));
                }
            }
        }
    }
}
