//! The audit log: what was refused to whom, and who changed what others may do.

use super::{Call, Callers, call};
use crate::token::Role;
use potluck_core::ids::MemberId;
use serde::{Deserialize, Serialize};

/// Reads the audit log (admins).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AuditRead {
    /// The wall time, in milliseconds, from which on entries are asked for.
    #[serde(default)]
    pub since_wall_ms: Option<i64>,
    /// The page continues after this [`AuditPage::next`].
    #[serde(default)]
    pub after: Option<u64>,
}
call!(AuditRead => AuditPage, "audit", Admins, "`potluck audit`");

/// A part of the audit log.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AuditPage {
    /// The entries of this part, the oldest first.
    pub entries: Vec<AuditEntry>,
    /// The place after which the next part begins; set when there is more.
    #[serde(default)]
    pub next: Option<u64>,
}

/// The kind of an entry of the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditKind {
    /// A call was refused.
    Refused,
    /// The rights of a member, or of others, were changed.
    Changed,
    /// A kind that only a newer manager knows.
    #[serde(other)]
    Unknown,
}

/// One line of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The number of the entry among all entries that were written to the manager's directory.
    pub number: u64,
    /// The wall time at which it happened, in milliseconds.
    pub at_wall_ms: i64,
    /// The kind of the entry.
    pub kind: AuditKind,
    /// The member that made the call; `None` where that was no member, or is none any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberId>,
    /// The name that people call the member by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The member's role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The gateway that made the call on behalf of the member, and its access key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// The address that the call came from.
    pub from: String,
    /// The call that was made.
    pub call: String,
    /// The refusal or the change in words.
    pub what: String,
    /// The code of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The number of times that it happened: repetitions of a refusal within a minute are counted in one more entry.
    pub times: u64,
}
