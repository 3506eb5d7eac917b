//! Sealing: what leaves a client of a sealed space is unreadable to donors and to the network. The key of a space is a
//! [`SpaceKey`].
//!
//! AES-256-GCM with a key of its own for every plaintext, derived from the space key and the plaintext's digest. Equal
//! plaintext in one space therefore seals to equal bytes, and dedups; across spaces nothing can be compared. Each
//! segment of 64 KiB is sealed by itself, so that it opens alone. A key seals exactly one plaintext, so the nonce may
//! follow from the meaning, from the segment's number and from whether it is the last, which authenticates all three:
//! segments cannot change places, and a chunk cannot be cut (the STREAM construction: Hoang, Reyhanitabar, Rogaway,
//! Vizár 2015, section 6). No nonce is used twice under one key, not even for the same plaintext with other associated
//! data, which would give the key of GCM's authentication away.

use crate::chunk::{Digest, SEAL_OVERHEAD};
use crate::entropy::Entropy;
use crate::ids::KeyNumber;
use crate::merkle::SEGMENT;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// The meaning under which bytes are sealed. It is authenticated with them, so that a chunk cannot be passed off as
/// inline content, or the other way round (promise I3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// A chunk of a file.
    Chunk,
    /// The whole content of a small file that lives in the catalog.
    Inline,
}

impl Meaning {
    fn label(self) -> &'static [u8] {
        match self {
            Self::Chunk => b"potluck 1 chunk",
            Self::Inline => b"potluck 1 inline",
        }
    }

    /// Returns the nonce of segment `number` of `count`: the meaning, zeros, the number (big-endian), and 1 for the
    /// last.
    fn nonce(self, number: u32, count: u32) -> Nonce {
        let mut nonce = [0; 12];
        nonce[0] = match self {
            Self::Chunk => 0,
            Self::Inline => 1,
        };
        nonce[7..11].copy_from_slice(&number.to_be_bytes());
        nonce[11] = u8::from(number + 1 == count);
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

/// The error of sealed bytes that do not open: not ours, damaged, or passed off as something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sealed bytes do not open with this space's key")]
pub struct NotSealedHere;

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

    fn key_for(&self, digest: &Digest) -> LessSafeKey {
        let derived = blake3::keyed_hash(&self.0, &digest.0);
        let key = UnboundKey::new(&AES_256_GCM, derived.as_bytes()).expect("32 bytes");
        LessSafeKey::new(key)
    }

    /// Seals `plain`, whose digest is `digest`, in place; every segment grows by [`SEAL_OVERHEAD`].
    pub fn seal(&self, meaning: Meaning, digest: &Digest, plain: &mut Vec<u8>) {
        let count = plain.len().div_ceil(SEGMENT_LEN) as u32;
        self.seal_part(meaning, digest, &(0..count), count, plain);
    }

    /// Seals segments `part` of the `count` of a plaintext in place.
    pub fn seal_part(
        &self,
        meaning: Meaning,
        digest: &Digest,
        part: &Range<u32>,
        count: u32,
        bytes: &mut Vec<u8>,
    ) {
        let key = self.key_for(digest);
        let mut end = bytes.len();
        bytes.resize(end + part.len() * TAG, 0);
        // The segments are moved from the last to the first, since each makes room for the tags of those before it.
        for (at, number) in part.clone().enumerate().rev() {
            let (plain, sealed) = (at * SEGMENT_LEN, at * SEALED_SEGMENT);
            let len = end - plain;
            bytes.copy_within(plain..end, sealed);
            let (body, after) = bytes[sealed..].split_at_mut(len);
            let tag = key
                .seal_in_place_separate_tag(
                    meaning.nonce(number, count),
                    Aad::from(meaning.label()),
                    body,
                )
                .expect("a segment is far below the 64 GiB that GCM can seal");
            after[..TAG].copy_from_slice(tag.as_ref());
            end = plain;
        }
    }

    /// Opens `sealed` in place and truncates it to the plaintext.
    ///
    /// The tags prove that a holder of the space key sealed exactly these bytes for this digest
    /// and meaning.
    pub fn open(
        &self,
        meaning: Meaning,
        digest: &Digest,
        sealed: &mut Vec<u8>,
    ) -> Result<(), NotSealedHere> {
        let count = sealed.len().div_ceil(SEALED_SEGMENT) as u32;
        self.open_part(meaning, digest, &(0..count), count, sealed)
    }

    /// Opens segments `part` of the `count` of a plaintext in place; proves as much of them as
    /// [`SpaceKey::open`] of the whole.
    pub fn open_part(
        &self,
        meaning: Meaning,
        digest: &Digest,
        part: &Range<u32>,
        count: u32,
        bytes: &mut Vec<u8>,
    ) -> Result<(), NotSealedHere> {
        let key = self.key_for(digest);
        if bytes.len().div_ceil(SEALED_SEGMENT) != part.len() {
            return Err(NotSealedHere);
        }
        let mut opened = 0;
        for (at, number) in part.clone().enumerate() {
            let sealed = at * SEALED_SEGMENT..bytes.len().min((at + 1) * SEALED_SEGMENT);
            let len = key
                .open_in_place(
                    meaning.nonce(number, count),
                    Aad::from(meaning.label()),
                    &mut bytes[sealed.clone()],
                )
                .map_err(|_| NotSealedHere)?
                .len();
            bytes.copy_within(sealed.start..sealed.start + len, opened);
            opened += len;
        }
        bytes.truncate(opened);
        Ok(())
    }

    /// Opens `sealed`, segments from `first` on of the `count` of a plaintext, into the start of `plain`, which
    /// has room for them; proves as much of them as [`SpaceKey::open`] of the whole. Returns how many bytes of
    /// `plain` they are. It costs less than to open in place, where every segment moves over the tags before it.
    pub fn open_into(
        &self,
        meaning: Meaning,
        digest: &Digest,
        (first, count): (u32, u32),
        sealed: &[u8],
        plain: &mut [u8],
    ) -> Result<usize, NotSealedHere> {
        let key = self.key_for(digest);
        if sealed.len().div_ceil(SEALED_SEGMENT) > count.saturating_sub(first) as usize {
            return Err(NotSealedHere);
        }
        let mut opened = 0;
        for (number, sealed) in (first..count).zip(sealed.chunks(SEALED_SEGMENT)) {
            let (body, tag) = sealed.split_last_chunk::<TAG>().ok_or(NotSealedHere)?;
            let plain = &mut plain[opened..opened + body.len()];
            let nonce = meaning.nonce(number, count);
            key.open_separate_gather(nonce, Aad::from(meaning.label()), body, tag, plain)
                .map_err(|_| NotSealedHere)?;
            opened += body.len();
        }
        Ok(opened)
    }
}

const SEGMENT_LEN: usize = SEGMENT as usize;
const TAG: usize = SEAL_OVERHEAD as usize;
/// The number of bytes of a sealed segment; the last may have fewer.
pub const SEALED_SEGMENT: usize = SEGMENT_LEN + TAG;

/// Returns the segments whose sealed bytes are the bytes `stored` of a chunk.
pub fn sealed_segments(stored: &Range<u32>) -> Range<u32> {
    let sealed = SEALED_SEGMENT as u32;
    stored.start / sealed..stored.end.div_ceil(sealed)
}

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

    #[test]
    fn sealed_bytes_open_only_as_what_they_were_sealed() {
        let entropy: &dyn Entropy = &SeededEntropy::new(1);
        let (key, other) = (SpaceKey::generate(entropy), SpaceKey::generate(entropy));
        let plain = b"results of run 7".repeat(10);
        let digest = Digest::of(&plain);
        let mut sealed = plain.clone();
        key.seal(Meaning::Chunk, &digest, &mut sealed);
        assert!(!sealed.windows(16).any(|window| plain.windows(16).any(|p| p == window)));

        let opened = |key: &SpaceKey, meaning, digest: &Digest| {
            let mut bytes = sealed.clone();
            key.open(meaning, digest, &mut bytes).map(|()| bytes)
        };
        assert_eq!(opened(&key, Meaning::Chunk, &digest), Ok(plain.clone()));
        assert!(opened(&other, Meaning::Chunk, &digest).is_err());
        assert!(opened(&key, Meaning::Inline, &digest).is_err());
        assert!(opened(&key, Meaning::Chunk, &Digest::of(b"other")).is_err());

        let mut again = plain.clone();
        key.seal(Meaning::Chunk, &digest, &mut again);
        assert_eq!(again, sealed, "equal plaintext dedups");
    }

    #[test]
    fn segments_open_beside_their_sealed_bytes_as_in_place() {
        let key = SpaceKey::from_bytes([7; 32]);
        for len in [1, SEGMENT_LEN, SEGMENT_LEN + 1, 3 * SEGMENT_LEN + 5] {
            let plain: Vec<u8> = (0..len).map(|at| (at / 7) as u8).collect();
            let digest = Digest::of(&plain);
            let mut sealed = plain.clone();
            key.seal(Meaning::Chunk, &digest, &mut sealed);
            let count = sealed.len().div_ceil(SEALED_SEGMENT) as u32;
            let open = |place, sealed: &[u8]| {
                let mut opened = vec![0; len];
                let n = key.open_into(Meaning::Chunk, &digest, place, sealed, &mut opened)?;
                Ok(opened[..n].to_vec())
            };
            assert_eq!(open((0, count), &sealed), Ok(plain.clone()));
            let (first, rest) = sealed.split_at(SEALED_SEGMENT.min(sealed.len()));
            let parts = [open((0, count), first), open((1, count), rest)].map(Result::unwrap);
            assert_eq!(parts.concat(), plain);
            assert_eq!(open((1, count + 1), &sealed), Err(NotSealedHere));
            assert_eq!(open((0, count - 1), &sealed), Err(NotSealedHere));
            assert_eq!(open((0, count), &sealed[..sealed.len() - 1]), Err(NotSealedHere));
        }
    }

    #[test]
    fn what_is_sealed_as_another_thing_has_another_nonce() {
        let nonce = |meaning: Meaning, number, count| *meaning.nonce(number, count).as_ref();
        assert_ne!(nonce(Meaning::Chunk, 0, 1), nonce(Meaning::Inline, 0, 1));
        let key = SpaceKey::from_bytes([7; 32]);
        let sealed = |meaning| {
            let mut bytes = b"results of run 7".to_vec();
            key.seal(meaning, &Digest::of(b"results of run 7"), &mut bytes);
            bytes
        };
        let (chunk, inline) = (sealed(Meaning::Chunk), sealed(Meaning::Inline));
        assert_ne!(chunk[..16], inline[..16], "another key stream");
    }

    /// Checks the test vectors of docs/format/chunk.md.
    #[test]
    fn test_vectors_of_the_format() {
        let mut space_key = [0; 32];
        (0..).zip(&mut space_key).for_each(|(at, byte)| *byte = at);
        let key = SpaceKey::from_bytes(space_key);
        let root = |(meaning, len): (Meaning, u32)| {
            let mut bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let digest = Digest::of(&bytes);
            key.seal(meaning, &digest, &mut bytes);
            Digest::of(&bytes).to_string()
        };
        let sealed = [
            (Meaning::Chunk, 1),
            (Meaning::Chunk, 65_536),
            (Meaning::Chunk, 65_537),
            (Meaning::Inline, 1),
            (Meaning::Inline, 4096),
        ];
        assert_eq!(
            sealed.map(root),
            [
                "7227df7eb2498b8fcfa7920a336d7cd3e31ec0bc5f9f0b891c0bbb4b79d1902f",
                "90251b35a47ea88a9cadfcf93ccde37d341e67967727bf0037b73376b1974967",
                "2aa23d821559f9f42518a9adbf35da89a8743ad0bb742179fc8a6efd34b77071",
                "b45e6660dfc36a5718f69632c7aff4252695a3d112fe4cba0e50fd4bfb2c6a2b",
                "0685a18380a267042aada93190a871ff21070bd75915b3d2896d7d139f6473b6"
            ]
        );
    }

    #[test]
    fn sealed_segments_open_alone_and_only_in_their_place() {
        let key = SpaceKey::generate(&SeededEntropy::new(3));
        let plain: Vec<u8> = (0..200_000u32).map(|at| (at >> 3) as u8).collect();
        let digest = Digest::of(&plain);
        let mut sealed = plain.clone();
        key.seal(Meaning::Chunk, &digest, &mut sealed);
        assert_eq!(sealed.len() as u32, crate::chunk::sealed_len(200_000));
        let open = |part: Range<u32>, count, mut bytes: Vec<u8>| {
            key.open_part(Meaning::Chunk, &digest, &part, count, &mut bytes).map(|()| bytes)
        };
        for (first, last) in [(0, 0), (1, 2), (0, 3), (3, 3)] {
            let bytes = |segment: usize, of: &[u8]| {
                of.chunks(segment).skip(first).take(last - first + 1).collect::<Vec<_>>().concat()
            };
            let part = first as u32..last as u32 + 1;
            let stored = bytes(SEALED_SEGMENT, &sealed);
            assert_eq!(open(part.clone(), 4, stored.clone()), Ok(bytes(SEGMENT_LEN, &plain)));
            let mut again = bytes(SEGMENT_LEN, &plain);
            key.seal_part(Meaning::Chunk, &digest, &part, 4, &mut again);
            assert!(again == stored);
            assert!(open(part.start + 1..part.end + 1, 5, stored.clone()).is_err(), "moved");
            let count = if last == 3 { 5 } else { part.end };
            assert!(open(part, count, stored).is_err(), "another one is said to be the last");
        }
        let mut cut = sealed[..2 * SEALED_SEGMENT].to_vec();
        assert!(key.open(Meaning::Chunk, &digest, &mut cut).is_err(), "cut between segments");
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
