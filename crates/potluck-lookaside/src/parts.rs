//! The digests of the parts of a file that may be chunks of it.
//!
//! A file that is cut at multiples of a chunk size, a power of two of segments, has chunks that are subtrees of the tree
//! over its segments, and a last one that is the tree over the rest. So one pass over the file gives the digests of its
//! chunks for every chunk size: twice as many as it has segments.

use potluck_core::chunk::Digest;
use potluck_core::merkle::{Hash, SEGMENT, join};
use std::io::{self, Read};

/// The number of segments of the largest part, as a power of two: 64 MiB, the largest chunk size.
const LARGEST: u32 = 10;
/// The number of bytes that are read at a time.
const PIECE: usize = 1 << 20;

/// A part of a file that may be a chunk of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePart {
    /// The digest of the part.
    pub digest: Digest,
    /// The offset of the part in the file, in bytes.
    pub offset: u64,
    /// The number of bytes of the part.
    pub len: u32,
}

/// A subtree of which the file so far consists: the largest first.
struct Subtree {
    root: Hash,
    /// The number of segments as a power of two; `None` for a last segment that is not whole.
    level: Option<u32>,
    offset: u64,
    len: u64,
}

/// The parts of a file as it is read.
pub struct PartHasher {
    subtrees: Vec<Subtree>,
    /// The roots over 1, 2, 4, … segments of zeros, which nobody looks up.
    zeros: Vec<Hash>,
    len: u64,
}

impl Default for PartHasher {
    fn default() -> Self {
        let mut zeros = vec![*blake3::hash(&[0; SEGMENT as usize]).as_bytes()];
        for level in 0..LARGEST as usize {
            zeros.push(join(&zeros[level], &zeros[level]));
        }
        Self { subtrees: Vec::new(), zeros, len: 0 }
    }
}

impl PartHasher {
    /// Hashes a file to its end; `each` takes its parts. Returns the digest and the length in bytes of the file.
    pub fn hash(
        mut self,
        file: &mut impl Read,
        mut each: impl FnMut(FilePart),
    ) -> io::Result<(Digest, u64)> {
        let mut piece = vec![0; PIECE];
        loop {
            let filled = fill(file, &mut piece)?;
            for segment in piece[..filled].chunks(SEGMENT as usize) {
                self.push(segment, &mut each);
            }
            if filled < PIECE {
                return Ok(self.finish(each));
            }
        }
    }

    fn push(&mut self, segment: &[u8], each: &mut impl FnMut(FilePart)) {
        let is_whole = segment.len() == SEGMENT as usize;
        let mut newest = Subtree {
            root: *blake3::hash(segment).as_bytes(),
            level: is_whole.then_some(0),
            offset: self.len,
            len: segment.len() as u64,
        };
        self.len += newest.len;
        loop {
            if newest.level.is_none_or(|level| level <= LARGEST && !self.is_zeros(&newest, level)) {
                let (digest, len) = (Digest(newest.root), newest.len as u32);
                each(FilePart { digest, offset: newest.offset, len });
            }
            let before =
                self.subtrees.pop_if(|it| newest.level.is_some() && it.level == newest.level);
            let Some(before) = before else { break };
            newest = Subtree {
                root: join(&before.root, &newest.root),
                level: before.level.map(|level| level + 1),
                offset: before.offset,
                len: before.len + newest.len,
            };
        }
        self.subtrees.push(newest);
    }

    fn is_zeros(&self, subtree: &Subtree, level: u32) -> bool {
        self.zeros.get(level as usize) == Some(&subtree.root)
    }

    /// Passes on the parts that are the rest of the file for some chunk size, and returns the digest of the file.
    fn finish(mut self, mut each: impl FnMut(FilePart)) -> (Digest, u64) {
        let Some(mut rest) = self.subtrees.pop() else {
            return (Digest(*blake3::hash(b"").as_bytes()), 0);
        };
        while let Some(before) = self.subtrees.pop() {
            rest = Subtree {
                root: join(&before.root, &rest.root),
                level: None,
                offset: before.offset,
                len: before.len + rest.len,
            };
            if before.level.is_some_and(|level| level < LARGEST) {
                let (digest, len) = (Digest(rest.root), rest.len as u32);
                each(FilePart { digest, offset: rest.offset, len });
            }
        }
        (Digest(rest.root), self.len)
    }
}

/// Reads until the buffer is full or the file ends; returns how much was read.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::file_digest::FileDigest;
    use std::collections::BTreeSet;

    /// Bytes that are no two segments the same.
    fn bytes(len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        bytes
    }

    #[test]
    fn every_chunk_of_every_chunk_size_is_a_part() {
        let segment = SEGMENT as usize;
        for len in
            [1, segment - 1, segment, segment + 1, 7 * segment, 37 * segment + 5, 64 * segment]
        {
            let content = bytes(len);
            let mut parts = BTreeSet::new();
            let hashed = PartHasher::default().hash(&mut &content[..], |part| {
                parts.insert((part.digest, part.offset, part.len));
            });
            let mut whole = FileDigest::default();
            whole.update(&content);
            assert_eq!(hashed.expect("read"), (whole.finish(), len as u64));
            for level in 0..=LARGEST {
                let size = segment << level;
                for (number, chunk) in content.chunks(size).enumerate() {
                    let offset = (number * size) as u64;
                    let part = (Digest::of(chunk), offset, chunk.len() as u32);
                    assert!(parts.contains(&part), "{len}: {} at {offset}", chunk.len());
                }
            }
            assert!(parts.len() <= 2 * len.div_ceil(segment) + LARGEST as usize);
        }
    }

    #[test]
    fn zeros_are_no_parts_of_a_file() {
        let mut content = vec![0; 40 * SEGMENT as usize];
        content.extend([1; 10]);
        let mut parts = Vec::new();
        PartHasher::default().hash(&mut &content[..], |part| parts.push(part)).expect("read");
        let of_zeros =
            |part: &FilePart| part.offset + u64::from(part.len) <= 40 * u64::from(SEGMENT);
        assert!(!parts.iter().any(of_zeros), "{parts:?}");
        assert!(!parts.is_empty());
    }
}
