//! Checksums that publishers state beside their files.

use md5::Md5;
use sha2::{Digest as _, Sha256};

/// A checksum that a file is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checksum {
    /// The SHA-256 of the content.
    Sha256([u8; 32]),
    /// The MD5 of the content. It shows accidents, and no intent.
    Md5([u8; 16]),
    /// The BLAKE3 hash of the content, as `b3sum` prints it.
    Blake3([u8; 32]),
}

impl Checksum {
    /// Reads the hexadecimal digits of a SHA-256.
    pub fn sha256(hex: &str) -> Result<Self, String> {
        bytes(hex).map(Self::Sha256)
    }

    /// Reads the hexadecimal digits of an MD5.
    pub fn md5(hex: &str) -> Result<Self, String> {
        bytes(hex).map(Self::Md5)
    }

    /// Reads the hexadecimal digits of a BLAKE3 hash.
    pub fn blake3(hex: &str) -> Result<Self, String> {
        bytes(hex).map(Self::Blake3)
    }

    /// Begins to compute such a checksum.
    pub fn begin(&self) -> Summing {
        match self {
            Self::Sha256(_) => Summing::Sha256(Sha256::new()),
            Self::Md5(_) => Summing::Md5(Md5::new()),
            Self::Blake3(_) => Summing::Blake3(Box::default()),
        }
    }
}

/// A checksum that is being computed.
pub enum Summing {
    /// That of SHA-256.
    Sha256(Sha256),
    /// That of MD5.
    Md5(Md5),
    /// That of BLAKE3.
    Blake3(Box<blake3::Hasher>),
}

impl Summing {
    /// Adds bytes at the end of those that were added before.
    pub fn add(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(sum) => sum.update(bytes),
            Self::Md5(sum) => sum.update(bytes),
            Self::Blake3(sum) => drop(sum.update(bytes)),
        }
    }

    /// Returns the checksum of all bytes that were added.
    pub fn finish(self) -> Checksum {
        match self {
            Self::Sha256(sum) => Checksum::Sha256(sum.finalize().into()),
            Self::Md5(sum) => Checksum::Md5(sum.finalize().into()),
            Self::Blake3(sum) => Checksum::Blake3(sum.finalize().into()),
        }
    }
}

fn bytes<const N: usize>(hex: &str) -> Result<[u8; N], String> {
    let wrong = || format!("“{hex}” is no checksum of {} hexadecimal digits", 2 * N);
    if hex.len() != 2 * N || !hex.bytes().all(|c| c.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_that_publishers_state() {
        let stated = [
            Checksum::md5("900150983cd24fb0d6963f7d28e17f72"),
            Checksum::sha256("BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD"),
            Checksum::blake3("6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"),
        ];
        for stated in stated {
            let stated = stated.expect("a checksum");
            let mut sum = stated.begin();
            sum.add(b"a");
            sum.add(b"bc");
            assert_eq!(sum.finish(), stated);
        }
        for bad in ["", "90015", "g00150983cd24fb0d6963f7d28e17f72", "９００１"] {
            assert!(Checksum::md5(bad).is_err(), "{bad}");
        }
    }
}
