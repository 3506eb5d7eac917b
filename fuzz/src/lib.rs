//! Has every decoder of what comes over a socket or from a disk, and seeds for each, for the tests of this package
//! and for libFuzzer (`cargo xtask fuzz`).
//!
//! A decoder must read or refuse any bytes, without a panic and without more memory than its input deserves; what it
//! reads must be written and read again as the same. Where bytes are authenticated before they are read, the
//! proof is made here, so that the decoder behind it is reached.

mod control;
mod decoder;
mod fabrication;
mod files;
mod formats;
mod frames;
mod json;
mod texts;
mod upgrade;

pub use decoder::Decoder;

use std::collections::BTreeSet;

/// The length of the longest word that counts as a name, in bytes.
const LONGEST_WORD: usize = 32;

/// Returns all decoders.
pub fn decoders() -> impl Iterator<Item = &'static Decoder> {
    let all: [&[Decoder]; 6] = [
        &frames::DECODERS,
        &upgrade::DECODERS,
        &texts::DECODERS,
        &control::DECODERS,
        &formats::DECODERS,
        &files::DECODERS,
    ];
    all.into_iter().flatten()
}

/// Returns the words of texts in JSON among the seeds: names of fields and variants, which chance would not find.
pub fn words(seeds: &[Vec<u8>]) -> BTreeSet<&[u8]> {
    let words = seeds.iter().flat_map(|seed| seed.split(|byte| *byte == b'"').skip(1).step_by(2));
    words.filter(|word| (1..=LONGEST_WORD).contains(&word.len())).collect()
}

#[cfg(test)]
mod tests;
