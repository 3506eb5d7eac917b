//! Quotas: how much may be stored in a space, or in all spaces that a member made.

use crate::ids::MemberId;
use serde::{Deserialize, Serialize};

/// The limits of what may be stored: bytes of files that are in no hole, without copies and dedup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Quota {
    /// The most bytes; `None` where any number may be stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The most entries that are counted as files (files, links, directories and snapshots); `None` where any number
    /// may be stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
}

impl Quota {
    /// A quota without limits.
    pub const NONE: Self = Self { bytes: None, files: None };
}

/// The change of one limit of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitChange {
    /// The limit stays as it is.
    #[default]
    Keep,
    /// The limit is removed.
    Remove,
    /// The limit has this value from now on.
    Most(u64),
}

impl LimitChange {
    fn of(self, now: Option<u64>) -> Option<u64> {
        match self {
            Self::Keep => now,
            Self::Remove => None,
            Self::Most(most) => Some(most),
        }
    }
}

impl From<Option<u64>> for LimitChange {
    fn from(limit: Option<u64>) -> Self {
        limit.map_or(Self::Remove, Self::Most)
    }
}

/// The change of a quota. To set one limit keeps the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QuotaChange {
    /// The change of the limit of bytes.
    #[serde(default)]
    pub bytes: LimitChange,
    /// The change of the limit of files.
    #[serde(default)]
    pub files: LimitChange,
}

impl QuotaChange {
    /// Returns the quota that this change makes of `now`.
    pub fn of(self, now: Quota) -> Quota {
        Quota { bytes: self.bytes.of(now.bytes), files: self.files.of(now.files) }
    }
}

impl From<Quota> for QuotaChange {
    /// Sets both limits.
    fn from(quota: Quota) -> Self {
        Self { bytes: quota.bytes.into(), files: quota.files.into() }
    }
}

/// The space or member that has a quota.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaOf {
    /// The quota is for the files of one space.
    Space(String),
    /// The quota is for all spaces that one member made, whichever members write there.
    Member(MemberId),
}
