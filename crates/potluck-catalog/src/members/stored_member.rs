//! A member as the catalog keeps it.

use potluck_core::chunk::Digest;
use potluck_core::ids::MemberId;
use potluck_wire::token::Role;
use serde::{Deserialize, Serialize};

/// A member of the pool: a user, an admin or a donor with a certificate of the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredMember {
    /// The number of the member.
    pub id: MemberId,
    /// The role of the member.
    pub role: Role,
    /// The name by which people know the member.
    pub name: String,
    /// The fingerprint of the member's certificate.
    pub fingerprint: Digest,
    /// True if the member's rights ended.
    pub revoked: bool,
    /// The wall time at which the member joined, in milliseconds.
    pub joined_wall_ms: i64,
    /// The member that made the invitation; `None` for an admin that was made with the pool or at a restore.
    pub invited_by: Option<MemberId>,
    /// The wall time of the member's last call, in milliseconds, as far as it was saved.
    pub seen_wall_ms: Option<i64>,
}
