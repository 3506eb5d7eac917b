//! Sealing: what leaves a client of a sealed space is unreadable to donors and to the network. The key of a space is a
//! [`SpaceKey`].
//!
//! Sealing hides bytes and proves nothing: what a reader accepts is proved by the hashes in the recipe, because every
//! reader of a space has its key and could make any authentication code under it (docs/notes/0003). So sealed bytes
//! carry no code, and are exactly as long as the plaintext.
//!
//! The cipher is AES-256 in counter mode, with a key of its own for every plaintext, derived from the space key and the
//! plaintext's digest. Equal plaintext in one space therefore seals to equal bytes, and dedups; across spaces nothing
//! can be compared. A key seals exactly one plaintext, so the initial counter may follow from the meaning and from the
//! number of the segment, and every segment opens alone.

use crate::chunk::Digest;
use crate::entropy::Entropy;
use crate::ids::KeyNumber;
use crate::merkle::SEGMENT;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The meaning under which bytes are sealed. Each has a keystream of its own, so that a chunk passed off as inline
/// content, or the other way round, is noise (promise I3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// A chunk of a file.
    Chunk,
    /// The whole content of a small file that lives in the catalog.
    Inline,
}

impl Meaning {
    /// Returns the nonce of a segment: the meaning, six zeros, the segment's number (big-endian), and zero.
    fn nonce(self, segment: u32) -> Nonce {
        let mut nonce = [0; 12];
        nonce[0] = match self {
            Self::Chunk => 0,
            Self::Inline => 1,
        };
        nonce[7..11].copy_from_slice(&segment.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }
}

/// The secret of one sealed space. Clients and the manager hold it; donors never do.
#[derive(Clone, PartialEq, Eq)]
pub struct SpaceKey([u8; 32]);

impl std::fmt::Debug for SpaceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SpaceKey(secret)")
    }
}

impl Serialize for SpaceKey {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        Digest(self.0).serialize(s)
    }
}

impl<'de> Deserialize<'de> for SpaceKey {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Digest::deserialize(d).map(|bytes| Self(bytes.0))
    }
}

/// The keys of one sealed space by their numbers: the present one, and those under which content is still sealed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SpaceKeys(pub BTreeMap<KeyNumber, SpaceKey>);

impl SpaceKeys {
    /// Returns the key with a number, if it is among these.
    pub fn get(&self, number: KeyNumber) -> Option<&SpaceKey> {
        self.0.get(&number)
    }

    /// Returns whether there is no key, because the space is not sealed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl SpaceKey {
    /// Draws a new secret for a space.
    pub fn generate(entropy: &dyn Entropy) -> Self {
        Self(entropy.bytes())
    }

    /// Returns the key stored as these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes to store.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the cipher for the plaintext with this digest.
    pub fn cipher(&self, meaning: Meaning, digest: &Digest) -> Cipher {
        let derived = blake3::keyed_hash(&self.0, &digest.0);
        let key = UnboundKey::new(&AES_256_GCM, derived.as_bytes()).expect("32 bytes");
        Cipher { meaning, key: LessSafeKey::new(key) }
    }
}

/// The cipher of one plaintext: applied to the plaintext it seals, and applied to sealed bytes it opens.
pub struct Cipher {
    meaning: Meaning,
    key: LessSafeKey,
}

impl Cipher {
    /// Seals or opens, in place, the segments from number `first` on, of which all but the last are whole.
    pub fn apply(&self, first: u32, bytes: &mut [u8]) {
        for (segment, bytes) in (first..).zip(bytes.chunks_mut(SEGMENT as usize)) {
            // AES-GCM encrypts in counter mode. Its code is not kept, and yet this costs a quarter of what the crate's
            // counter mode does, which uses no vector instructions (5 and 20 GB/s here).
            let _code = self
                .key
                .seal_in_place_separate_tag(self.meaning.nonce(segment), Aad::empty(), bytes)
                .expect("a segment is far below the 64 GiB that GCM can seal");
        }
    }
}

/// The error of a sealed record that does not open: not ours, damaged, or passed off as something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sealed bytes do not open with this pool's key")]
pub struct NotSealedHere;

/// The secret under which a pool keeps its own metadata on its donors. It is in the recovery kit and
/// at the manager, and nowhere else.
#[derive(Clone, PartialEq, Eq)]
pub struct RecoveryKey([u8; 32]);

impl std::fmt::Debug for RecoveryKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RecoveryKey(secret)")
    }
}

/// The first bytes of every sealed record.
const RECORD_MAGIC: [u8; 8] = *b"POTREC1\0";
const RECORD_NONCE: usize = 12;
/// The length of a record's header: magic, eight zeros and sequence, of eight bytes each.
const RECORD_HEADER: usize = 8 + 8 + 8;

impl RecoveryKey {
    /// Draws a new secret for recovery.
    pub fn generate(entropy: &dyn Entropy) -> Self {
        Self(entropy.bytes())
    }

    /// Returns the key stored as these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes to store.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the name that the key is known by, which tells nothing of the key.
    pub fn name(&self) -> Digest {
        Digest(blake3::derive_key("potluck 2026-11-29 the name of a recovery key", &self.0))
    }

    fn record_key(&self) -> LessSafeKey {
        let derived = blake3::derive_key("potluck 2026-11 records", &self.0);
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &derived).expect("32 bytes"))
    }

    /// Seals a record of `pool` with its number. Anybody can read the number in the header, and a change of the header,
    /// the number or the pool does not go unnoticed.
    pub fn seal_record(
        &self,
        pool: &Digest,
        sequence: u64,
        mut plain: Vec<u8>,
        entropy: &dyn Entropy,
    ) -> Vec<u8> {
        let header = record_header(sequence);
        // Random nonces are safe for some 2^32 records under one key: a century of one a second.
        let nonce: [u8; RECORD_NONCE] = entropy.bytes();
        self.record_key()
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(record_meaning(&header, pool)),
                &mut plain,
            )
            .expect("a record is far below the 64 GiB that GCM can seal");
        [&header[..], &nonce, &plain].concat()
    }

    /// Opens a record that [`RecoveryKey::seal_record`] made for this pool; returns its number and content.
    pub fn open_record(
        &self,
        pool: &Digest,
        sealed: &[u8],
    ) -> Result<(u64, Vec<u8>), NotSealedHere> {
        let (header, rest) = sealed.split_at_checked(RECORD_HEADER).ok_or(NotSealedHere)?;
        let (nonce, body) = rest.split_first_chunk::<RECORD_NONCE>().ok_or(NotSealedHere)?;
        let (_, number) = header.split_last_chunk::<8>().ok_or(NotSealedHere)?;
        let sequence = u64::from_le_bytes(*number);
        if header != record_header(sequence) {
            return Err(NotSealedHere);
        }
        let mut body = body.to_vec();
        let len = self
            .record_key()
            .open_in_place(
                Nonce::assume_unique_for_key(*nonce),
                Aad::from(record_meaning(header, pool)),
                &mut body,
            )
            .map_err(|_| NotSealedHere)?
            .len();
        body.truncate(len);
        Ok((sequence, body))
    }
}

fn record_header(sequence: u64) -> [u8; RECORD_HEADER] {
    let mut header = [0; RECORD_HEADER];
    header[..8].copy_from_slice(&RECORD_MAGIC);
    header[16..].copy_from_slice(&sequence.to_le_bytes());
    header
}

fn record_meaning(header: &[u8], pool: &Digest) -> Vec<u8> {
    [header, &pool.0].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::SeededEntropy;

    fn sealed(key: &SpaceKey, meaning: Meaning, plain: &[u8]) -> Vec<u8> {
        let mut bytes = plain.to_vec();
        key.cipher(meaning, &Digest::of(plain)).apply(0, &mut bytes);
        bytes
    }

    #[test]
    fn sealing_is_deterministic_per_space_and_kind() {
        let entropy: &dyn Entropy = &SeededEntropy::new(1);
        let (key, other) = (SpaceKey::generate(entropy), SpaceKey::generate(entropy));
        let plain = b"results of run 7".repeat(10);
        let chunk = sealed(&key, Meaning::Chunk, &plain);
        assert_eq!(chunk, sealed(&key, Meaning::Chunk, &plain), "equal plaintext dedups");
        let mut opened = chunk.clone();
        key.cipher(Meaning::Chunk, &Digest::of(&plain)).apply(0, &mut opened);
        assert_eq!(opened, plain);
        let inline = sealed(&key, Meaning::Inline, &plain);
        let elsewhere = sealed(&other, Meaning::Chunk, &plain);
        let texts = [&plain, &chunk, &inline, &elsewhere];
        for (at, one) in texts.iter().enumerate() {
            for other in &texts[..at] {
                assert!(one.chunks(16).zip(other.chunks(16)).all(|(a, b)| a != b));
            }
        }
    }

    /// Checks the test vectors of docs/format/chunk.md.
    #[test]
    fn test_vectors_of_the_format() {
        let document = include_str!("../../../docs/format/chunk.md");
        let mut space_key = [0; 32];
        (0..).zip(&mut space_key).for_each(|(at, byte)| *byte = at);
        let key = SpaceKey::from_bytes(space_key);
        let row = |(word, meaning, len): (&str, Meaning, u32)| {
            let plain: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let name = Digest::of(&sealed(&key, meaning, &plain));
            format!("| {word} | {len} | `{name}` |\n")
        };
        let rows = [
            ("chunk", Meaning::Chunk, 1),
            ("chunk", Meaning::Chunk, 65_536),
            ("chunk", Meaning::Chunk, 65_537),
            ("inline", Meaning::Inline, 1),
            ("inline", Meaning::Inline, 4096),
        ];
        let rows: String = rows.map(row).concat();
        assert!(document.contains(&rows), "{rows}");
    }

    /// Any implementation of AES-256 in counter mode opens what was sealed, as docs/format/chunk.md says.
    #[test]
    fn the_cipher_is_aes_256_in_counter_mode() {
        use aws_lc_rs::cipher::{AES_256, DecryptingKey, DecryptionContext, UnboundCipherKey};
        let key = SpaceKey::from_bytes([7; 32]);
        let plain: Vec<u8> = (0..200_000_u32).map(|at| (at / 7) as u8).collect();
        let mut bytes = sealed(&key, Meaning::Chunk, &plain);
        let derived = blake3::keyed_hash(&key.0, &Digest::of(&plain).0);
        for (segment, bytes) in (0_u32..).zip(bytes.chunks_mut(SEGMENT as usize)) {
            let mut counter = [0; 16];
            counter[7..11].copy_from_slice(&segment.to_be_bytes());
            counter[15] = 2;
            let unbound = UnboundCipherKey::new(&AES_256, derived.as_bytes()).expect("32 bytes");
            let counter_mode = DecryptingKey::ctr(unbound).expect("a key");
            let context = DecryptionContext::Iv128(counter.into());
            counter_mode.decrypt(bytes, context).expect("opened");
        }
        assert_eq!(bytes, plain);
    }

    #[test]
    fn sealed_segments_open_alone() {
        let key = SpaceKey::generate(&SeededEntropy::new(3));
        let plain: Vec<u8> = (0..200_000u32).map(|at| (at >> 3) as u8).collect();
        let whole = sealed(&key, Meaning::Chunk, &plain);
        let cipher = key.cipher(Meaning::Chunk, &Digest::of(&plain));
        for (first, end) in [(0, 1), (1, 3), (0, 4), (3, 4)] {
            let bytes = |of: &[u8]| {
                let segment = SEGMENT as usize;
                of[first * segment..(end * segment).min(of.len())].to_vec()
            };
            let mut part = bytes(&whole);
            cipher.apply(first as u32, &mut part);
            assert_eq!(part, bytes(&plain));
        }
    }

    #[test]
    fn a_record_opens_only_as_what_it_is_i3() {
        let entropy: &dyn Entropy = &SeededEntropy::new(2);
        let (key, other) = (RecoveryKey::generate(entropy), RecoveryKey::generate(entropy));
        let (pool, elsewhere) = (Digest::of(b"pool"), Digest::of(b"another pool"));
        let plain = b"the catalog as of now".to_vec();
        let seal =
            |pool: &Digest, sequence| key.seal_record(pool, sequence, plain.clone(), entropy);
        let sealed = seal(&pool, 7);
        let open = |pool: &Digest, bytes: &[u8]| key.open_record(pool, bytes);
        assert_eq!(open(&pool, &sealed), Ok((7, plain.clone())));
        assert!(open(&elsewhere, &sealed).is_err(), "another pool");
        assert!(other.open_record(&pool, &sealed).is_err());

        for at in 0..sealed.len() {
            for bit in 0..8 {
                let mut flipped = sealed.clone();
                flipped[at] ^= 1 << bit;
                assert!(open(&pool, &flipped).is_err(), "{at}.{bit}");
            }
            assert!(open(&pool, &sealed[..at]).is_err(), "cut at {at}");
        }
        // Each is the header of one record before the body of another.
        for stranger in [seal(&pool, 8), seal(&elsewhere, 7)] {
            let swapped = [&sealed[..RECORD_HEADER], &stranger[RECORD_HEADER..]].concat();
            assert!(open(&pool, &swapped).is_err());
        }
        assert_ne!(seal(&pool, 7), sealed, "a nonce of its own");
    }
}
