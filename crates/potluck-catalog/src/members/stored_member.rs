//! A member as the catalog keeps it.

use potluck_core::chunk::Digest;
use potluck_core::ids::MemberId;
use potluck_wire::token::Role;
use serde::{Deserialize, Serialize};

/// A member of the pool: somebody with a certificate of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredMember {
    /// The number of the member.
    pub id: MemberId,
    /// The role of the member.
    pub role: Role,
    /// The name that people call them by.
    pub name: String,
    /// The fingerprint of the member's certificate.
    pub fingerprint: Digest,
    /// Whether the member's rights ended.
    pub revoked: bool,
    /// When the member joined, in milliseconds of wall time.
    pub joined_wall_ms: i64,
    /// The member that made the invitation; `None` for an admin that was made with the pool or at a restore.
    pub invited_by: Option<MemberId>,
    /// When the last call of the member came, in wall time, as far as that was saved.
    pub seen_wall_ms: Option<i64>,
}
