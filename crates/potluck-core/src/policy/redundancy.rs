//! The redundancy that keeps a file through the death of donors, and the part of it that a write may go without while
//! donors are away: none where the policy is strict.

use super::Policy;
use crate::erasure::Ec;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The redundancy that keeps a file through the death of donors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Redundancy {
    /// Every chunk has this many copies.
    Copies(u32),
    /// Every group of chunks is kept by an erasure code.
    Ec(Ec),
}

impl Redundancy {
    /// Returns the number of donors that may die for ever before anything is lost.
    pub fn tolerates(self) -> u32 {
        match self {
            Self::Copies(copies) => copies.saturating_sub(1),
            Self::Ec(ec) => ec.parity() as u32,
        }
    }

    /// Returns the number of donors that one chunk's copies or one group need.
    pub fn donors(self) -> u32 {
        match self {
            Self::Copies(copies) => copies,
            Self::Ec(ec) => ec.width() as u32,
        }
    }

    /// Returns the number of donors that a write is content with while others are away: so many that one more may die
    /// for ever, if the redundancy lets any die at all.
    pub fn least_donors(self) -> u32 {
        self.donors() - self.tolerates().saturating_sub(1)
    }
}

impl fmt::Display for Redundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copies(1) => f.write_str("1 copy"),
            Self::Copies(copies) => write!(f, "{copies} copies"),
            Self::Ec(ec) => write!(f, "{ec}"),
        }
    }
}

impl Policy {
    /// Returns the least number of donors with which a write may be acknowledged.
    pub fn least_donors(&self) -> u32 {
        let redundancy = self.redundancy();
        if self.strict { redundancy.donors() } else { redundancy.least_donors() }
    }
}
