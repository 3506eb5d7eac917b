//! The sizes of chunk files: what a donor's disk gives for a chunk, and how much of chunks fits into the room of a disk.
//!
//! Donors count by these sizes what they hold, and the manager what it can promise on them: if the two counted
//! differently, donors would refuse what was promised.

use crate::chunk::MAX_CHUNK;
use crate::merkle::{SEGMENT, segment_count};

/// The size in bytes of the trailer at the end of a chunk file.
pub const TRAILER: usize = 64;
/// The size in bytes of the hash of a segment. Those of all segments lie between the chunk and the trailer.
const HASH: u64 = 32;
/// The size in bytes of the blocks in which file systems give space. Because whole blocks are counted, an owner's cap
/// holds whether file sizes are added up or `du` is asked.
const BLOCK: u64 = 4096;

/// Returns the number of bytes that a file of `len` bytes takes on the disk.
pub fn disk_bytes(len: u64) -> u64 {
    len.div_ceil(BLOCK).saturating_mul(BLOCK)
}

/// Returns the number of bytes that a chunk file has after its `stored` bytes: the hashes and the trailer.
pub fn tail_len(stored: u32) -> usize {
    (segment_count(stored.into()) * HASH) as usize + TRAILER
}

/// Returns the size in bytes of the chunk file of `stored` bytes.
pub fn file_len(stored: u32) -> u64 {
    u64::from(stored) + tail_len(stored) as u64
}

/// Returns the number of stored bytes in a chunk file of `file` bytes; `None` if no chunk has a file of that size.
pub fn stored_len(file: u64) -> Option<u32> {
    let front = file.checked_sub(TRAILER as u64)?;
    let segments = front.div_ceil(u64::from(SEGMENT) + HASH);
    let stored = u32::try_from(front.checked_sub(segments * HASH)?).ok()?;
    ((1..=MAX_CHUNK).contains(&stored) && file_len(stored) == file).then_some(stored)
}

/// Returns the number of bytes that `stored` bytes take on the disk in chunks of `chunk_size`, the last of which may be
/// shorter.
pub fn disk_bytes_of_chunks(stored: u64, chunk_size: u32) -> u64 {
    let chunk = u64::from(chunk_size.max(1));
    let (chunks, rest) = (stored / chunk, (stored % chunk) as u32);
    let rest = if rest > 0 { disk_bytes(file_len(rest)) } else { 0 };
    chunks.saturating_mul(disk_bytes(file_len(chunk_size))).saturating_add(rest)
}

/// Returns the most bytes that can be stored in `room` bytes of a disk in chunks of `chunk_size`, the last of which may
/// be shorter. A chunk of at most so many bytes fits, and so do as many full chunks as they hold.
pub fn stored_bytes_within(room: u64, chunk_size: u32) -> u64 {
    let full = disk_bytes(file_len(chunk_size));
    let (chunks, rest) = (room / full, room % full);
    let front = (rest / BLOCK * BLOCK).saturating_sub(TRAILER as u64);
    let hashes = front.div_ceil(u64::from(SEGMENT) + HASH) * HASH;
    let last = front.saturating_sub(hashes).min(chunk_size.into());
    chunks.saturating_mul(chunk_size.into()).saturating_add(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_possible_chunks_have_a_length() {
        assert_eq!(stored_len(TRAILER as u64), None);
        assert_eq!(stored_len(TRAILER as u64 + 1), None);
        for len in [1, 65_535, 65_536, 65_537, 1 << 22, MAX_CHUNK] {
            assert_eq!(stored_len(file_len(len)), Some(len));
        }
        assert_eq!(file_len(65_537) - file_len(65_536), 1 + HASH);
        assert_eq!(stored_len(file_len(65_536) + 1), None, "half a hash");
        assert_eq!(stored_len(file_len(MAX_CHUNK) + 1), None);
        assert_eq!(stored_len(0), None);
    }

    #[test]
    fn largest_payload_that_fits_a_budget_is_exact_to_a_block() {
        for chunk_size in [64 << 10, 1 << 20, (4 << 20) + 16, MAX_CHUNK] {
            let full = disk_bytes_of_chunks(chunk_size.into(), chunk_size);
            for room in [0, 1, BLOCK, 5 * BLOCK + 1, full - 1, full, full + BLOCK, 3 * full - 1] {
                let fits = stored_bytes_within(room, chunk_size);
                let (takes, more) = (
                    disk_bytes_of_chunks(fits, chunk_size),
                    disk_bytes_of_chunks(fits + BLOCK, chunk_size),
                );
                assert!(takes <= room && room < more, "{fits} in {room} of {chunk_size}");
            }
            assert_eq!(stored_bytes_within(3 * full, chunk_size), 3 * u64::from(chunk_size));
        }
    }
}
