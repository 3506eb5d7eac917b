//! Sealing: what leaves a client of a sealed space is unreadable to donors and to the network.
//!
//! AES-256-GCM with a key of its own for every plaintext, derived from the space key and the
//! plaintext's digest (DESIGN §4). Equal plaintext in one space therefore seals to equal bytes,
//! and dedups; across spaces nothing can be compared. A key seals exactly one plaintext, so the
//! nonce may be constant.

use crate::chunk::{Digest, SEAL_OVERHEAD};
use crate::entropy::Entropy;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};

/// What bytes are sealed as; authenticated with them, so that one cannot be passed off as the
/// other (PROMISES I3).
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

/// Sealed bytes that do not open: not ours, damaged, or passed off as something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sealed bytes do not open with this space's key")]
pub struct NotSealedHere;

impl SpaceKey {
    /// A new secret.
    pub fn generate(entropy: &dyn Entropy) -> Self {
        Self(entropy.bytes())
    }

    /// The key stored as these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes to store.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn key_for(&self, digest: &Digest) -> LessSafeKey {
        let derived = blake3::keyed_hash(&self.0, &digest.0);
        let key = UnboundKey::new(&AES_256_GCM, derived.as_bytes()).expect("32 bytes");
        LessSafeKey::new(key)
    }

    /// Seals `plain`, whose digest is `digest`, in place; grows it by [`SEAL_OVERHEAD`].
    pub fn seal(&self, meaning: Meaning, digest: &Digest, plain: &mut Vec<u8>) {
        debug_assert_eq!(AES_256_GCM.tag_len(), SEAL_OVERHEAD as usize);
        self.key_for(digest)
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key([0; 12]),
                Aad::from(meaning.label()),
                plain,
            )
            .expect("a chunk is far below the 64 GiB that GCM can seal");
    }

    /// Opens `sealed` in place and truncates it to the plaintext.
    ///
    /// The tag proves that a holder of the space key sealed exactly these bytes for this digest
    /// and meaning.
    pub fn open(
        &self,
        meaning: Meaning,
        digest: &Digest,
        sealed: &mut Vec<u8>,
    ) -> Result<(), NotSealedHere> {
        let len = self
            .key_for(digest)
            .open_in_place(
                Nonce::assume_unique_for_key([0; 12]),
                Aad::from(meaning.label()),
                sealed,
            )
            .map_err(|_| NotSealedHere)?
            .len();
        sealed.truncate(len);
        Ok(())
    }
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
}
