//! Who is who, by certificate: the member list as every request asks it.

use crate::catalog::members::Member;
use potluck_core::chunk::Digest;
use potluck_core::ids::MemberId;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::token::Role;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::RwLock;

/// The member list, in step with the catalog's.
#[derive(Debug, Default)]
pub struct Members(RwLock<HashMap<Digest, Member>>);

impl Members {
    /// The list of these members.
    pub fn new(members: Vec<Member>) -> Self {
        let by_fingerprint = members.into_iter().map(|member| (member.fingerprint, member));
        Self(RwLock::new(by_fingerprint.collect()))
    }

    /// A member joined, or changed.
    pub fn put(&self, member: Member) {
        self.0.write().expect("no holder panics").insert(member.fingerprint, member);
    }

    /// Takes somebody for a donor of whom nothing but a certificate of the pool is known: while a
    /// lost manager's metadata is collected there is no member list.
    pub fn admit_donor(&self, fingerprint: &Digest) {
        let mut members = self.0.write().expect("no holder panics");
        let id = MemberId(members.values().map(|member| member.id.0).max().unwrap_or(0) + 1);
        members.entry(*fingerprint).or_insert_with(|| Member {
            id,
            role: Role::Donor,
            name: format!("donor {id}"),
            fingerprint: *fingerprint,
            revoked: false,
        });
    }

    /// Who shows the certificate with this fingerprint. Asked for each request, so that a
    /// revocation ends open connections too (PROMISES X5).
    pub fn identify(&self, fingerprint: &Digest) -> Result<Who, Failure> {
        let members = self.0.read().expect("no holder panics");
        let auth = |what: &str| Failure::new(ErrorKind::Auth, code::NOT_A_MEMBER, what);
        match members.get(fingerprint) {
            None => Err(auth(
                "this certificate is of the pool, but the manager does not know its member",
            )
            .hint("join again with a new token from `potluck invite`")),
            Some(member) if member.revoked => Err(auth(&format!(
                "{} {} ({}) was removed from the pool",
                member.role, member.id, member.name
            ))
            .hint("ask an admin for a new token (`potluck invite`) to join again")),
            Some(member) => {
                Ok(Who { member: member.id, role: member.role, name: member.name.clone() })
            }
        }
    }
}

/// A member who makes a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// Their number.
    pub member: MemberId,
    /// What they may do.
    pub role: Role,
    /// What people call them.
    pub name: String,
}

/// Whoever makes a call.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The member; `None` for somebody without a certificate.
    pub who: Option<Who>,
    /// Where the call came from.
    pub peer: IpAddr,
}

impl Caller {
    /// The member who calls.
    pub fn member(&self) -> Result<&Who, Failure> {
        self.who.as_ref().ok_or_else(|| {
            Failure::new(
                ErrorKind::Auth,
                code::NOT_A_MEMBER,
                "this call needs a certificate of the pool, and none was shown",
            )
            .hint("join the pool first: `potluck join TOKEN`, with a token from `potluck invite`")
        })
    }
}
