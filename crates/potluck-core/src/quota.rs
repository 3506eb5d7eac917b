//! Quotas: how much may be stored in a space, or in all spaces that a member made.

use crate::ids::MemberId;
use serde::{Deserialize, Serialize};

/// Limits of what may be stored, sizes of files without copies and dedup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Quota {
    /// The most bytes; `None`: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The most files; `None`: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
}

impl Quota {
    /// A quota without limits.
    pub const NONE: Self = Self { bytes: None, files: None };
}

/// Whatever has a quota.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaOf {
    /// The files of one space.
    Space(String),
    /// All spaces that a member made, whoever writes there.
    Member(MemberId),
}
