//! How much of its machine's time an owner lends now, beside how much of the disk.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How much a donor does now, as its owner wants it. A later mode does less.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum LendMode {
    /// The donor does all that the pool asks.
    #[default]
    Full,
    /// The donor reads and writes for clients within a bandwidth, and repair puts nothing on it.
    Polite,
    /// The donor is read from within that bandwidth, and takes nothing.
    Reads,
    /// The donor does nothing: it neither sends nor takes a byte of data, and leaves its disk alone.
    Off,
}

/// The error of a text that names no mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("“{0}” is not a mode: write full, polite, reads or off")]
pub struct BadLendMode(String);

impl LendMode {
    /// Returns the word for the mode.
    pub fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Polite => "polite",
            Self::Reads => "reads",
            Self::Off => "off",
        }
    }

    /// Returns whether clients may store chunks.
    pub fn takes_writes(self) -> bool {
        self <= Self::Polite
    }

    /// Returns whether repair may have chunks made there.
    pub fn takes_repair(self) -> bool {
        self == Self::Full
    }

    /// Returns whether nothing at all is done.
    pub fn is_off(self) -> bool {
        self == Self::Off
    }
}

impl FromStr for LendMode {
    type Err = BadLendMode;

    fn from_str(text: &str) -> Result<Self, BadLendMode> {
        let all = [Self::Full, Self::Polite, Self::Reads, Self::Off];
        let named = all.into_iter().find(|mode| mode.word() == text.trim());
        named.ok_or_else(|| BadLendMode(text.into()))
    }
}

impl fmt::Display for LendMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
