//! Which files, chunks and copies a made-up pool has: all is computed from numbers, so that 1000 donors which know
//! what they hold take no memory for it.

use potluck_core::chunk::ChunkName;
use potluck_core::ids::DonorId;

/// Chunks of a file.
pub const EACH: u64 = 500;
/// Bytes of a chunk, none of which exist.
pub const LEN: u32 = 4 << 20;
/// Files of one directory.
const IN_DIRECTORY: u64 = 1000;

/// A pool of files with `EACH` chunks, each chunk in two copies. The chunks are numbered through all files; a file is
/// spread over many donors, and the copies of a donor's chunks over all others.
#[derive(Clone)]
pub struct Layout {
    /// The donors there are, by the place that they have here.
    pub donors: Vec<DonorId>,
    pub files: u64,
}

impl Layout {
    pub fn chunks(&self) -> u64 {
        self.files * EACH
    }

    pub fn path(&self, file: u64) -> String {
        format!("pot://scale/{:05}/{:03}", file / IN_DIRECTORY, file % IN_DIRECTORY)
    }

    /// The name of a chunk. The names are spread evenly, and those of one file are far from each other, as digests
    /// are; names of neighbouring files are next to each other, so that a catalog is filled from its cache.
    pub fn name(&self, chunk: u64) -> ChunkName {
        let place = chunk % EACH * self.files + chunk / EACH;
        let mut name = [0; 32];
        let (start, rest) = name.split_at_mut(8);
        start.copy_from_slice(&(place * (u64::MAX / self.chunks())).to_be_bytes());
        rest[..8].copy_from_slice(&chunk.to_le_bytes());
        ChunkName(name)
    }

    /// The places of the donors that hold a chunk.
    pub fn holders(&self, chunk: u64) -> [usize; 2] {
        let all = self.donors.len() as u64;
        let first = chunk % all;
        let second = (first + self.apart(chunk / all)) % all;
        [first as usize, second as usize]
    }

    /// The chunks that the donor at a place holds.
    pub fn held_by(&self, place: usize) -> impl Iterator<Item = u64> + '_ {
        let (all, place) = (self.donors.len() as u64, place as u64);
        let rounds = 0..self.chunks().div_ceil(all);
        let of_round = move |round| {
            let other = (place + all - self.apart(round)) % all;
            [round * all + place, round * all + other]
        };
        rounds.flat_map(of_round).filter(|chunk| *chunk < self.chunks())
    }

    /// How far apart the two donors of a round of chunks are.
    fn apart(&self, round: u64) -> u64 {
        1 + round % (self.donors.len() as u64 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn donors_hold_what_chunks_say_that_they_do() {
        let layout = Layout { donors: (1..=7).map(DonorId).collect(), files: 3 };
        let mut copies = 0;
        for place in 0..7 {
            for chunk in layout.held_by(place) {
                assert!(layout.holders(chunk).contains(&place), "{chunk} at {place}");
                copies += 1;
            }
        }
        assert_eq!(copies, 2 * layout.chunks());
    }
}
