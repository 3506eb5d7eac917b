//! Who belongs to the pool.

use super::{Call, Done, call};
use crate::packed::Blob;
use crate::token::Role;
use potluck_core::chunk::Digest;
use potluck_core::ids::MemberId;
use serde::{Deserialize, Serialize};

/// Turns a token into a certificate. The only call without a client certificate: the caller has
/// none yet; it has verified the pool's CA by the token's pin.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Join {
    /// The token's secret.
    pub secret: Digest,
    /// A PKCS#10 request in DER, for a key that stays with the joiner.
    pub request: Blob,
    /// What people call this machine or person.
    pub name: String,
}
call!(Join => Joined, "join", once);

/// Membership.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Joined {
    /// The new member.
    pub member: MemberId,
    /// What it may do.
    pub role: Role,
    /// Its certificate, in DER.
    pub certificate: Blob,
    /// The pool's CA certificate, in DER; the joiner compares it with the token's pin.
    pub ca: Blob,
    /// What the pool is called.
    pub pool: String,
}

/// Makes a join token (admins).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Invite {
    /// The role it will give.
    pub role: Role,
    /// Seconds until it expires.
    pub ttl_seconds: u64,
}
call!(Invite => Invited, "invite", once);

/// A fresh token's secret; the caller knows the rest of the token itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Invited {
    /// Goes into the [`crate::token::JoinToken`].
    pub secret: Digest,
}

/// Takes a member's rights away (admins).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Revoke {
    /// Who.
    pub member: MemberId,
}
call!(Revoke => Done, "revoke", once);
