//! The source of everything that a seed decides.

/// A stream of random decisions by SplitMix64, which needs no crate and will give the same numbers in ten years.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// Returns the stream of `seed` for one purpose. Draws from one stream do not change what another gives.
    pub fn new(seed: u64, purpose: &str) -> Self {
        // FNV-1a is enough: purposes differ, and nobody attacks them.
        let name = purpose.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut chance = Self(seed ^ name);
        chance.next();
        chance
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Draws a number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The bias of the remainder is far below what a test could see.
        self.next() % end
    }

    /// Draws a number from `first` to `last`, both possible.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// Draws true in `percent` of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Draws an index into something of this length, which is not 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Draws one of the values in `of`.
    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())].clone()
    }

    /// Fills all of `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for piece in out.chunks_mut(8) {
            piece.copy_from_slice(&self.next().to_le_bytes()[..piece.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        let mut chance = Chance(0);
        // These are the reference implementation's first outputs for this state.
        assert_eq!([chance.next(), chance.next()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }

    #[test]
    fn purposes_have_streams_of_their_own() {
        let draw = |purpose: &str| Chance::new(7, purpose).between(0, u64::MAX - 1);
        assert_eq!(draw("faults"), draw("faults"));
        assert_ne!(draw("faults"), draw("files"));
    }
}
