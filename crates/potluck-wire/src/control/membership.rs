//! Calls about who belongs to the pool: joining, invitations, members, finding the manager.

use super::{Call, Callers, Done, LOOK_AT_ALL, call};
use crate::addresses::Addresses;
use crate::packed::Blob;
use crate::token::Role;
use crate::whereabouts::SignedWhereabouts;
use potluck_core::chunk::Digest;
use potluck_core::ids::MemberId;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Turns a token into a certificate. This is the only call without a client certificate, because the caller has none
/// yet. The caller has verified the pool's CA by the token's pin.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Join {
    /// The secret of the token.
    pub secret: Digest,
    /// A PKCS#10 request in DER, for a key that stays with the joiner.
    pub request: Blob,
    /// The name by which people are to call this machine or person.
    pub name: String,
    /// The pool's CA by its fingerprint, as the token pins it; `None` where the caller takes any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<Digest>,
}
call!(Join => Joined, "join", Everybody, "`potluck join`", once);

/// The membership of somebody who joined, with the certificates that prove it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Joined {
    /// The number of the new member.
    pub member: MemberId,
    /// The role of the new member.
    pub role: Role,
    /// The name of the new member: a donor gets another than it asked for where the invitation fixes one, or another
    /// donor has it.
    pub name: String,
    /// The certificate of the new member, in DER.
    pub certificate: Blob,
    /// The pool's CA certificate, in DER; the joiner compares it with the token's pin.
    pub ca: Blob,
    /// The name of the pool.
    pub pool: String,
    /// The pool itself, by the fingerprint of its first CA.
    pub pool_id: Digest,
}

/// Makes a join token (admins; also a donor, for another directory of its own machine).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Invite {
    /// The role that the token will give.
    pub role: Role,
    /// The time until the token expires, in seconds.
    pub ttl_seconds: u64,
    /// The name that the donor who joins gets, whatever it calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
call!(Invite => Invited, "invite", DonorsAndAdmins, "`potluck invite`", once);

/// The secret of a fresh token; the caller knows the rest of the token itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Invited {
    /// The secret that goes into the [`crate::token::JoinToken`].
    pub secret: Digest,
    /// The number that people call the invitation by.
    pub invitation: u32,
}

/// Lists the tokens that can be used, and those that could until lately (admins).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InvitationList {}
call!(InvitationList => Invitations, "invitations", Admins, "`potluck invite`");

/// The tokens that can be used, or could until lately, and whether they were used.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Invitations {
    /// The tokens, the oldest first.
    pub invitations: Vec<Invitation>,
}

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// The number that people call the invitation by.
    pub invitation: u32,
    /// The role that the token gives.
    pub role: Role,
    /// The member who made the token.
    pub by: MemberId,
    /// The time at which the token was made, in milliseconds of wall time.
    pub made_wall_ms: i64,
    /// The seconds until the token expires; 0 where it has expired.
    pub left_seconds: u64,
    /// The member who joined with the token; `None` while nobody has.
    pub used_by: Option<MemberId>,
    /// The name that the donor gets who joins with the token, if the inviter fixed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Forgets a token that nobody used (admins).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InvitationRemove {
    /// The number of the invitation.
    pub invitation: u32,
}
call!(InvitationRemove => Done, "uninvite", Admins, "`potluck invite`");

/// Lists all members that ever were (admins).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MemberList {}
call!(MemberList => Members, "members", Admins, "`potluck members`");

/// All members of the pool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Members {
    /// The members, by number.
    pub members: Vec<MemberAbout>,
}

/// A member of the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAbout {
    /// The number of the member.
    pub member: MemberId,
    /// The name that people call the member by.
    pub name: String,
    /// The role of the member.
    pub role: Role,
    /// The wall time at which the member joined, in milliseconds.
    pub joined_wall_ms: i64,
    /// The member that made the invitation; `None` for an admin that was made with the pool or at a restore.
    pub invited_by: Option<MemberId>,
    /// The wall time of the member's last call, in milliseconds.
    pub seen_wall_ms: Option<i64>,
    /// True if the member does not trust the pool's present authority yet, or did not when the one before it was thrown
    /// away.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_behind: bool,
    /// True if the membership has ended.
    pub revoked: bool,
}

/// Ends the caller's own membership (anybody). A donor's is refused while files would be lost by it, unless its owner
/// agreed to lose them. A repeated call is refused like every call of somebody who is no member.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Leave {
    /// True if a donor may leave also where files are less safe without it than promised, until repair has made them
    /// whole again.
    #[serde(default)]
    pub now: bool,
    /// The digest of the list of files that the donor's owner agreed to lose ([`super::GivingBack::listing`]).
    pub agreed: Option<Digest>,
}
call!(Leave => Done, "leave", Everybody, "`potluck leave`", within LOOK_AT_ALL);

/// Asks for what helps to find the manager when it has moved (all members).
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Find {}
call!(Find => Found, "find", Everybody, "`potluck find-manager`");

/// The facts that help to find the manager when it has moved.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Found {
    /// The whereabouts of the manager.
    #[serde(default)]
    pub manager: Option<SignedWhereabouts>,
    /// The addresses of some donors that the manager visits when it has moved, and that tell any caller where it is.
    #[serde(default)]
    pub donors: Vec<Addresses>,
}

/// Takes members' rights away (admins). Donors among them are removed only where no file needs them, unless the call
/// says otherwise. They are judged together, for none of them can count on the copies of another.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Revoke {
    /// The numbers of the members.
    pub members: Vec<MemberId>,
    /// True if donors are removed also where files are less safe without them than promised, until they are made whole
    /// again.
    #[serde(default)]
    pub now: bool,
    /// The digest of the list of files that may be lost with donors ([`super::GivingBack::listing`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed: Option<Digest>,
}
impl Revoke {
    /// Makes the request that removes a member only where nobody loses anything by it.
    pub fn of(member: MemberId) -> Self {
        Self { members: vec![member], now: false, agreed: None }
    }
}
impl Call for Revoke {
    const NAME: &'static str = "revoke";
    const BY: Callers = Callers::Admins;
    const WHAT: &'static str = "`potluck members`";
    const DEADLINE: Duration = LOOK_AT_ALL;
    type Reply = Done;
    fn is_repeatable(&self) -> bool {
        false
    }
}
