//! The calls about quotas.

use super::{Call, Callers, Done, call};
use potluck_core::quota::{Quota, QuotaChange, QuotaOf};
use serde::{Deserialize, Serialize};

/// Sets a quota, or takes it away (admins).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QuotaSet {
    /// The space or the user, as a person wrote it: `pot://SPACE`, or a user's name or number.
    pub of: String,
    /// The change of the quota's limits. Files that are stored already stay.
    pub change: QuotaChange,
}
call!(QuotaSet => Done, "quota-set", Admins, "`potluck quota set`");

/// Lists quotas: admins see all, others their own and those of the spaces that they may list.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QuotaList {}
call!(QuotaList => Quotas, "quotas", Users, "`potluck quota ls`");

/// Quotas, each with what is used of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Quotas {
    /// All quotas, those of spaces first.
    pub quotas: Vec<QuotaUse>,
}

/// A quota and what is used of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaUse {
    /// The space or the member that the quota is of.
    pub of: QuotaOf,
    /// The name that people call the member by, where the quota is a member's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The limits of the quota.
    pub quota: Quota,
    /// True if nobody set the limit of files, which is that of every user.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files_by_default: bool,
    /// The number of files, links, directories and snapshots that count against the quota.
    pub files: u64,
    /// The bytes of the files together that are in no hole.
    pub bytes: u64,
}
