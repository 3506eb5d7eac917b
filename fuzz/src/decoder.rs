//! The interface of a decoder to tests and to libFuzzer.

/// A decoder that can be fed with any bytes.
pub struct Decoder {
    pub name: &'static str,
    /// Reads bytes. Returns whether they got as far as seeds must: they were decoded, or found to be forged.
    pub read: fn(&[u8]) -> bool,
    /// Makes the bytes that mutation begins with, most of them by encoders.
    pub seeds: fn() -> Vec<Vec<u8>>,
}
