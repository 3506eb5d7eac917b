//! The digest of a file, which depends on its bytes alone, however it is cut into chunks, coded and sealed.

use crate::chunk::Digest;
use crate::merkle::{Hash, SEGMENT, SegmentCutter, SegmentHashes, Tree};

/// A builder of a file's digest while the file is cut: from the hashes of chunks that were hashed anyway, and from
/// bytes where a cut is no boundary of segments.
#[derive(Debug, Default)]
pub struct FileDigest {
    tree: Tree,
    cutter: SegmentCutter,
}

impl FileDigest {
    /// Adds the next bytes.
    pub fn update(&mut self, piece: &[u8]) {
        self.cutter.update(piece, |segment| self.tree.push(segment));
    }

    /// Adds the next whole segments, or the last ones, by their hashes. Everything before them must have been whole
    /// segments, too.
    pub fn push(&mut self, segments: &SegmentHashes) {
        segments.iter().for_each(|segment| self.tree.push(*segment));
    }

    /// Adds the next whole chunk of `segments` segments, a power of two, by its digest. A multiple of that number of
    /// segments must come before it.
    pub fn push_chunk(&mut self, chunk: &Digest, segments: u64) {
        self.tree.push_subtree(chunk.0, segments);
    }

    /// Adds `len` zeros, in a time that does not grow with their number.
    pub fn push_zeros(&mut self, len: u64) {
        let segment = u64::from(SEGMENT);
        let zeros = [0; SEGMENT as usize];
        let to_boundary = len.min((segment - self.cutter.filled() as u64) % segment);
        self.update(&zeros[..to_boundary as usize]);
        let rest = len - to_boundary;
        self.tree.push_zero_segments(rest / segment);
        self.update(&zeros[..(rest % segment) as usize]);
    }

    /// Returns the digest of the file.
    pub fn finish(mut self) -> Digest {
        self.cutter.finish().into_iter().for_each(|segment: Hash| self.tree.push(segment));
        Digest(self.tree.root())
    }
}

/// Returns the digest of `len` zeros.
pub fn digest_of_zeros(len: u64) -> Digest {
    let mut digest = FileDigest::default();
    digest.push_zeros(len);
    digest.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_count_as_if_they_were_read() {
        let segment = SEGMENT as usize;
        for before in [0, 1, segment, 3 * segment - 1, 5 * segment + 7] {
            for zeros in [0, 1, segment - 1, segment, 2 * segment + 3, 9 * segment] {
                for after in [0, 1, 2 * segment] {
                    let bytes = [vec![1; before], vec![0; zeros], vec![2; after]];
                    let mut digest = FileDigest::default();
                    digest.update(&bytes[0]);
                    digest.push_zeros(zeros as u64);
                    digest.update(&bytes[2]);
                    let lens = (before, zeros, after);
                    assert_eq!(digest.finish(), Digest::of(&bytes.concat()), "{lens:?}");
                }
            }
        }
        assert_ne!(digest_of_zeros(1 << 60), digest_of_zeros((1 << 60) - 1));
    }

    #[test]
    fn a_file_has_one_digest_however_it_is_cut() {
        let bytes: Vec<u8> = (0..700_000u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
        for chunk in [64 << 10, 128 << 10, 320 << 10, 1 << 20] {
            let mut digest = FileDigest::default();
            bytes.chunks(chunk).for_each(|chunk| digest.push(&SegmentHashes::of(chunk)));
            assert_eq!(digest.finish(), Digest::of(&bytes), "{chunk}");
        }
        let chunk = 128 << 10;
        let (kept, rest) = bytes.split_at(3 * chunk);
        let mut digest = FileDigest::default();
        kept.chunks(chunk).for_each(|chunk| digest.push_chunk(&Digest::of(chunk), 2));
        rest.chunks(chunk).for_each(|chunk| digest.push(&SegmentHashes::of(chunk)));
        assert_eq!(digest.finish(), Digest::of(&bytes), "of chunks that are not read again");

        let mut digest = FileDigest::default();
        let (front, tail) = bytes.split_at(256 << 10);
        digest.push(&SegmentHashes::of(front));
        tail.chunks(999).for_each(|piece| digest.update(piece));
        assert_eq!(digest.finish(), Digest::of(&bytes));
        assert_eq!(FileDigest::default().finish(), Digest::of(b""));
    }
}
