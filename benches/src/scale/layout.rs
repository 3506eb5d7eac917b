//! The files, chunks and copies of a made-up pool. All is computed from numbers, so that 1000 donors which know
//! what they hold take no memory for it.

use potluck_core::chunk::ChunkName;
use potluck_core::ids::DonorId;

/// The number of chunks of a file.
pub const EACH: u64 = 500;
/// The size of a chunk in bytes, none of which exist.
pub const LEN: u32 = 4 << 20;
/// The number of files of one directory.
const IN_DIRECTORY: u64 = 1000;

/// The number of donors that have chunks of one file, which is the stripe width if nobody asks for another.
const WIDTH: u64 = 16;

/// A pool of files with `EACH` chunks, each chunk in two copies. The chunks are numbered through all files. Each
/// file is on `WIDTH` donors, and any two of these have some of its chunks in common.
#[derive(Clone)]
pub struct Layout {
    /// The donors, each by its place here.
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

    /// Returns the name of a chunk. The names are spread evenly, and those of one file are far from each other, as
    /// digests are. Names of neighbouring files are next to each other, so that a catalog is filled from its cache.
    pub fn name(&self, chunk: u64) -> ChunkName {
        let place = chunk % EACH * self.files + chunk / EACH;
        let mut name = [0; 32];
        let (start, rest) = name.split_at_mut(8);
        start.copy_from_slice(&(place * (u64::MAX / self.chunks())).to_be_bytes());
        rest[..8].copy_from_slice(&chunk.to_le_bytes());
        ChunkName(name)
    }

    /// Returns the places of the donors that hold a chunk.
    pub fn holders(&self, chunk: u64) -> [usize; 2] {
        let (file, number) = (chunk / EACH, chunk % EACH);
        self.places_in_file(number).map(|at| ((self.start(file) + at) % self.all()) as usize)
    }

    /// Returns the chunks that the donor at a place holds.
    pub fn held_by(&self, place: usize) -> impl Iterator<Item = u64> + '_ {
        (0..self.files).flat_map(move |file| {
            let at = (place as u64 + self.all() - self.start(file)) % self.all();
            let numbers = if at < self.width() { 0..EACH } else { 0..0 };
            let here = numbers.filter(move |number| self.places_in_file(*number).contains(&at));
            here.map(move |number| file * EACH + number)
        })
    }

    fn all(&self) -> u64 {
        self.donors.len() as u64
    }

    fn width(&self) -> u64 {
        WIDTH.min(self.all())
    }

    /// Returns the place of the first donor of a file.
    fn start(&self, file: u64) -> u64 {
        file * self.width() % self.all()
    }

    /// Returns which of a file's donors hold its chunk of this number.
    fn places_in_file(&self, number: u64) -> [u64; 2] {
        let width = self.width();
        let first = number % width;
        let apart = 1 + number / width % (width - 1);
        [first, (first + apart) % width]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn donors_hold_what_chunks_say_that_they_do() {
        for all in [7, 40] {
            let layout = Layout { donors: (1..=all).map(DonorId).collect(), files: 3 };
            let mut copies = 0;
            for place in 0..all as usize {
                for chunk in layout.held_by(place) {
                    assert!(layout.holders(chunk).contains(&place), "{chunk} at {place}");
                    copies += 1;
                }
            }
            assert_eq!(copies, 2 * layout.chunks());
        }
    }
}
