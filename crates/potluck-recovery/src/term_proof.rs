//! Proofs of what managers say of their terms (promise D5).
//!
//! Donors tell each manager what they heard from the managers before it. So a manager that runs on an old catalog finds
//! that out. Whatever a manager says of its term comes with a code under a key that only managers of the pool have, so
//! that no donor can make up such a statement. The key is derived from the authority's, which a manager restored
//! elsewhere has from the recovery kit. A code is enough and no signature is needed: only a manager of the same pool
//! checks it. It is also cheap, and one is made for every reply to a heartbeat.

use potluck_core::chunk::Digest;
use potluck_core::ids::Epoch;

/// The context string with which the key is derived from the authority's, so that the key serves for nothing else.
const PURPOSE: &str = "potluck 2026-11-24 what a manager says of its term";

/// The key of a pool under which proofs of what managers say of their terms are made and checked.
pub struct TermProofs([u8; 32]);

impl TermProofs {
    /// Derives the key of the pool whose authority has this private key.
    pub(crate) fn of(authority_key: &[u8]) -> Self {
        Self(blake3::derive_key(PURPOSE, authority_key))
    }

    /// Returns the proof that the manager of this epoch and start said that its catalog has so many changes.
    pub fn prove(&self, epoch: Epoch, start: u64, changes: u64) -> Digest {
        Digest(*self.code(epoch, start, changes).as_bytes())
    }

    /// Returns whether `proof` proves that the manager of this epoch and start said that its catalog has so many
    /// changes.
    pub fn is_proven(&self, epoch: Epoch, start: u64, changes: u64, proof: Digest) -> bool {
        // Hashes are compared in constant time.
        self.code(epoch, start, changes) == blake3::Hash::from_bytes(proof.0)
    }

    fn code(&self, epoch: Epoch, start: u64, changes: u64) -> blake3::Hash {
        let said: Vec<u8> =
            [epoch.0, start, changes].into_iter().flat_map(u64::to_le_bytes).collect();
        blake3::keyed_hash(&self.0, &said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ca::Ca;

    #[test]
    fn term_proof_is_valid_for_every_manager_of_the_pool() {
        let (here, there) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
        let ours = Ca::create(here.path(), "lab").expect("made");
        let proof = ours.terms().prove(Epoch(3), 7, 11);
        let texts = Ca::texts(here.path()).expect("read");
        let again = Ca::load(here.path()).expect("read");
        let restored = Ca::restore(&there.path().join("ca"), &texts).expect("made");
        let reread = Ca::load(&there.path().join("ca")).expect("read");
        let other = Ca::create(&there.path().join("other"), "lab").expect("made");
        for ca in [&ours, &again, &restored, &reread] {
            assert!(ca.terms().is_proven(Epoch(3), 7, 11, proof));
            for (epoch, start, changes) in [(4, 7, 11), (3, 8, 11), (3, 7, 12)] {
                assert!(!ca.terms().is_proven(Epoch(epoch), start, changes, proof));
            }
        }
        assert!(!other.terms().is_proven(Epoch(3), 7, 11, proof));
    }
}
