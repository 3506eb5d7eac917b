//! The pool that a catalog belongs to: a backup is restored with the recovery kit of its own pool only.

use crate::Error;
use crate::pool_records::{meta, notes};
use crate::sql::Tx;
use potluck_core::chunk::Digest;
use std::fmt;

/// The number of characters of a fingerprint that are shown to people.
const SHOWN: usize = 12;

/// The identity of a pool: its name, and the authority that certifies its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// The name of the pool.
    pub pool: String,
    /// The fingerprint of the pool's authority; `None` in a catalog in which it was not noted yet.
    fingerprint: Option<String>,
}

impl Authority {
    /// Makes the identity of the pool called `pool` whose authority has the fingerprint `authority`.
    pub fn new(pool: &str, authority: &Digest) -> Self {
        Self { pool: pool.into(), fingerprint: Some(authority.to_string()) }
    }

    /// Returns whether both can be the same pool. If the authority of one is not known, the name decides.
    pub fn may_be(&self, other: &Self) -> bool {
        match (&self.fingerprint, &other.fingerprint) {
            (Some(mine), Some(theirs)) => mine == theirs,
            _ => self.pool == other.pool,
        }
    }

    /// Returns whether the authority with this fingerprint can be the one that certifies members of this pool.
    pub fn may_be_vouched_for_by(&self, authority: &Digest) -> bool {
        self.fingerprint.as_ref().is_none_or(|mine| *mine == authority.to_string())
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the pool {}", self.pool)?;
        match self.fingerprint.as_deref().and_then(|whole| whole.get(..SHOWN)) {
            Some(shown) => write!(f, " (authority {shown})"),
            None => Ok(()),
        }
    }
}

/// Notes in a catalog the fingerprint of the authority of its pool.
pub(crate) fn note(db: &Tx, authority: &Digest) -> Result<(), Error> {
    notes::set(db, notes::AUTHORITY, &authority.to_string())
}

/// Reads the name and the authority of the pool that a catalog belongs to.
pub(crate) fn of(db: &Tx) -> Result<Authority, Error> {
    let fingerprint = notes::get(db, notes::AUTHORITY)?;
    Ok(Authority { pool: meta::pool_name(db)?, fingerprint })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_of_one_name_are_told_apart_by_authority() {
        let known = |name, authority: &[u8]| Authority::new(name, &Digest::of(authority));
        let unknown = |name: &str| Authority { pool: name.into(), fingerprint: None };
        assert!(known("lab", b"one").may_be(&known("lab", b"one")));
        assert!(!known("lab", b"one").may_be(&known("lab", b"other")));
        assert!(unknown("lab").may_be(&known("lab", b"one")));
        assert!(!unknown("lab").may_be(&known("field", b"one")));
    }
}
