//! Calls about the pool's authority, which certifies its members.

use super::{Call, Callers, MemberAbout, call};
use potluck_core::chunk::Digest;
use serde::{Deserialize, Serialize};

/// Replaces the pool's authority and its recovery key while the pool runs, or tells how far that is (admins).
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct AuthorityReplace {
    /// The step that the caller asks for.
    pub step: AuthorityStep,
}
call!(AuthorityReplace => AuthorityState, "replace-authority", Admins, "`potluck manager rotate-authority`");

/// A step of replacing the pool's authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthorityStep {
    /// Another authority takes the place of this one, given by its fingerprint. If it did already, that goes on.
    Begin(Digest),
    /// The state is told, and nothing changes.
    Look,
    /// The earlier authority is thrown away, whoever does not follow yet.
    End,
}

/// How far the pool's authority is replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorityState {
    /// The present authority, by its fingerprint.
    pub authority: Digest,
    /// The authority before it, while members change over; `None` when no change is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Digest>,
    /// True if members are told of the present authority: the metadata log is sealed under the new recovery key.
    pub is_told: bool,
    /// The number of members, those behind included.
    pub members: u64,
    /// The members who do not follow yet, or did not when the last change ended.
    pub behind: Vec<MemberAbout>,
    /// The path of the recovery kit on the manager's machine.
    pub kit: String,
}
