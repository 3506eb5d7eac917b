//! A decoder, as tests and libFuzzer know it.

/// A decoder that is fed.
pub struct Decoder {
    pub name: &'static str,
    /// Reads bytes; whether they got as far as their seeds must: they were read, or found out.
    pub read: fn(&[u8]) -> bool,
    /// What encoders make: the bytes that mutation begins with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}
