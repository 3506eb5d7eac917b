//! Random decisions that follow from a seed.

use potluck_core::chunk::Digest;
use potluck_core::entropy::{SeededEntropy, SharedEntropy};
use std::sync::Arc;

/// One stream of random decisions.
#[derive(Clone)]
pub struct Draw(SharedEntropy);

impl Draw {
    /// Makes the stream of `seed` for one purpose. Draws from one stream change no other.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let name = Digest::of(format!("{seed} {purpose}").as_bytes());
        let number = u64::from_le_bytes(name.0[..8].try_into().expect("8 bytes"));
        Self(Arc::new(SeededEntropy::new(number)))
    }

    /// Returns the stream as the product's source of randomness.
    pub fn entropy(&self) -> SharedEntropy {
        Arc::clone(&self.0)
    }

    /// Draws a number below `end`, which must not be 0.
    pub fn below(&self, end: u64) -> u64 {
        let mut bytes = [0; 16];
        self.0.fill(&mut bytes);
        (u128::from_le_bytes(bytes) % u128::from(end)) as u64
    }

    /// Draws a number from `first` to `last`, both included.
    pub fn between(&self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// Draws `true` with a probability of `percent` percent.
    pub fn chance(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Draws one of the values in `of`, which must not be empty.
    pub fn pick<T: Copy>(&self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}
