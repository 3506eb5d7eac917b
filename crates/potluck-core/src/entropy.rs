//! Randomness as an argument, so that a simulation can replay a seed.

use std::sync::{Arc, Mutex};

/// A source of unpredictable bytes.
pub trait Entropy: Send + Sync + 'static {
    /// Fills `out` with random bytes.
    fn fill(&self, out: &mut [u8]);
}

/// A source shared by the tasks of one role.
pub type SharedEntropy = Arc<dyn Entropy>;

impl dyn Entropy {
    /// Draws `N` random bytes.
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut out = [0; N];
        self.fill(&mut out);
        out
    }

    /// Draws a random integer of 64 bits.
    pub fn u64(&self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}

/// The operating system's random source.
#[derive(Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, out: &mut [u8]) {
        #[allow(clippy::disallowed_methods)] // the one place that may ask the system
        aws_lc_rs::rand::fill(out).expect("the system's random source failed");
    }
}

/// A source whose bytes follow from a seed, for simulations and tests only.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<blake3::OutputReader>);

impl SeededEntropy {
    /// Makes the stream of a seed; equal seeds give equal streams.
    pub fn new(seed: u64) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("potluck 2026-11 seeded entropy");
        hasher.update(&seed.to_le_bytes());
        Self(Mutex::new(hasher.finalize_xof()))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, out: &mut [u8]) {
        self.0.lock().expect("no holder panics").fill(out);
    }
}
