//! Answers the calls by which members are invited, join, leave and are revoked.

use super::Answer;
use crate::audit_log::Auditor;
use crate::callers::{self, CallingMember, KnownMember, inviting_donor};
use crate::departure::Departures;
use crate::departure::RemovalTerms;
use crate::handles::handles;
use crate::own_term::OwnTerm;
use crate::pool_time::PoolTime;
use crate::scan_state::ScanState;
use crate::sessions::WriteSessions;
use crate::shared_pool::SharedPool;
use potluck_catalog::{Catalog, Certified, Error, NewToken, StoredMember, Token};
use potluck_core::chunk::Digest;
use potluck_core::ids::{DonorId, MemberId};
use potluck_core::rights::{EVERYONE, is_number};
use potluck_core::text::is_unseen;
use potluck_recovery::ca::ProvenKey;
use potluck_recovery::pool_authority::PoolAuthority;
use potluck_wire::control::{
    Call, Done, Invitation, InvitationList, InvitationRemove, Invitations, Invite, Invited, Join,
    Joined, Leave, MemberAbout, MemberList, Members, Revoke,
};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::fingerprint;
use potluck_wire::packed::Blob;
use potluck_wire::token::Role;
use std::collections::BTreeSet;
use std::sync::Arc;

handles! {
    /// The handles for answering calls about members.
    pub struct MembershipCalls {
        env: Env,
        time: PoolTime,
        term: Arc<OwnTerm>,
        pool: SharedPool,
        catalog: Catalog,
        members: Arc<callers::KnownMembers>,
        authority: Arc<PoolAuthority>,
        scan_state: Arc<ScanState>,
        departures: Departures,
        sessions: WriteSessions,
        auditor: Auditor,
    }
}

/// The longest name of a member, in bytes.
const MAX_NAME: usize = 255;

/// The longest time for which a token is good.
const MAX_TTL_SECONDS: u64 = 366 * 24 * 3600;

/// The longest life of a token that a donor makes, which its own machine uses at once.
const MAX_DONORS_TTL_SECONDS: u64 = 600;

/// The most donors that one donor may have invited, open invitations included: more than the further disks of a
/// desktop.
const MAX_FURTHER_DONORS: usize = 63;

impl Answer<Join> for MembershipCalls {
    async fn answer(self, call: Join, caller: CallingMember) -> Result<Joined, Failure> {
        let name = checked_name(&call.name)?;
        if call.ca.is_some_and(|pinned| pinned != self.authority.fingerprint()) {
            let what = "this token was made before the pool's authority was replaced";
            return Err(Failure::new(ErrorKind::Auth, code::BAD_TOKEN, what)
                .hint("ask an admin for a new one: `potluck invite`"));
        }
        let request = call.request.0;
        let key = self
            .env
            .offload
            .run(move || ProvenKey::of_request(&request))
            .await
            .map_err(|why| Failure::from(Error::BadCertificateRequest(why.to_string())))?;
        let (now, ca, digest) = (self.term.moment(&self.time), self.authority.ca(), key.digest());
        let present = Arc::clone(&ca);
        let certify = move |id, role| {
            let issued = ca.certify(&key, id, role);
            let issued = issued.map_err(|why| Error::BadCertificateRequest(why.to_string()))?;
            Ok((fingerprint(&issued), issued.to_vec()))
        };
        let joined = self.catalog.join(call.secret, digest, name, now, certify).await?;
        let Certified { member, certificate } = joined;
        let what = format!("{} {} ({}) joined", member.role, member.name, member.id);
        tracing::info!("{what}");
        self.enlist(&member);
        self.auditor.changed(&caller, Join::NAME, what).await;
        Ok(Joined {
            member: member.id,
            role: member.role,
            name: member.name,
            certificate: Blob(certificate),
            ca: Blob(present.certificate().to_vec()),
            pool_id: present.pool(),
            pool: self.term.pool_name.clone(),
        })
    }
}

impl MembershipCalls {
    fn enlist(&self, member: &StoredMember) {
        self.members.put(member.clone());
        if member.role == Role::Donor {
            let inviter = inviting_donor(&self.members.all(), member);
            self.pool.lock().add_donor(DonorId(member.id.0), &member.name, inviter);
        }
    }
}

fn checked_name(name: &str) -> Result<String, Failure> {
    let name = name.trim();
    if name.is_empty() || name.len() > MAX_NAME || name.contains(is_unseen) {
        let what = format!(
            "a member's name has 1 to {MAX_NAME} bytes, and no characters that only steer a terminal"
        );
        return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
            .hint("choose another by `--name`"));
    }
    // In a command such a name would mean another member or a group.
    if name == EVERYONE || is_number(name) || name.starts_with("group:") {
        let what = format!("“{name}” cannot be a member's name: it means a number or a group");
        return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
            .hint("choose another by `--name`"));
    }
    Ok(name.into())
}

impl Answer<Invite> for MembershipCalls {
    async fn answer(self, call: Invite, caller: CallingMember) -> Result<Invited, Failure> {
        if !(1..=MAX_TTL_SECONDS).contains(&call.ttl_seconds) {
            let (most, asked) = (MAX_TTL_SECONDS, call.ttl_seconds);
            let what = format!("a token is good for 1 to {most} seconds, not {asked}");
            return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                .hint("choose another by `--ttl`"));
        }
        let name = match &call.name {
            Some(_) if call.role != Role::Donor => {
                let what = "an invitation fixes the name of a donor, and of nobody else";
                return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                    .hint("leave --name out: users and admins say who they are when they join"));
            }
            Some(name) => Some(checked_name(name)?),
            None => None,
        };
        let who = caller.member()?;
        if who.role == Role::Donor {
            self.check_further_donor(who, &call).await?;
            self.auditor.admit_change(&caller)?;
        }
        let (by, secret) = (who.member, Digest(self.env.entropy.bytes()));
        let (now, new) = (
            self.term.moment(&self.time),
            NewToken { role: call.role, by, ttl_ms: call.ttl_seconds * 1000, name },
        );
        let invitation = self.catalog.add_token(secret, new, now).await?;
        let what = format!("made the invitation {invitation} for a {}", call.role);
        self.auditor.changed(&caller, Invite::NAME, what).await;
        Ok(Invited { secret, invitation })
    }
}

impl MembershipCalls {
    /// Refuses a donor's invitation that is not for another directory of its own machine, as far as the pool can tell:
    /// a donor may invite only donors, only so many, and only if it was not invited by a donor itself. All of them
    /// count as one machine (`Pool::add_donor`), so that by failing together or lying they do no more harm than one
    /// donor could.
    async fn check_further_donor(&self, who: &KnownMember, invite: &Invite) -> Result<(), Failure> {
        let refused = |what: String| {
            Err(Failure::new(ErrorKind::Auth, code::NOT_ALLOWED, what)
                .hint("an admin invites others: potluck invite --role donor"))
        };
        if invite.role != Role::Donor || invite.ttl_seconds > MAX_DONORS_TTL_SECONDS {
            return refused("a donor invites only donors for its own machine, for a moment".into());
        }
        let members = self.members.all();
        let own = members.iter().find(|member| member.id == who.member);
        if own.is_some_and(|own| inviting_donor(&members, own).is_some()) {
            return refused(format!("{} was itself invited by a donor", who.name));
        }
        let is_further =
            |member: &&StoredMember| !member.revoked && member.invited_by == Some(who.member);
        let further = members.iter().filter(is_further).count();
        let now = self.term.moment(&self.time);
        let open = self.catalog.tokens().await?;
        let is_open = |token: &&Token| {
            token.made_by == who.member && token.used_by.is_none() && token.left_ms(now) > 0
        };
        if further + open.iter().filter(is_open).count() >= MAX_FURTHER_DONORS {
            return refused(format!(
                "{} has invited {MAX_FURTHER_DONORS} donors already",
                who.name
            ));
        }
        tracing::info!("{} ({}) invites a donor for another directory", who.name, who.member);
        Ok(())
    }
}

impl Answer<InvitationList> for MembershipCalls {
    async fn answer(self, _call: InvitationList, _: CallingMember) -> Result<Invitations, Failure> {
        let now = self.term.moment(&self.time);
        let about = |token: Token| Invitation {
            invitation: token.id,
            role: token.role,
            by: token.made_by,
            made_wall_ms: token.made_wall_ms,
            left_seconds: token.left_ms(now).div_ceil(1000),
            used_by: token.used_by,
            name: token.name,
        };
        let all = self.catalog.tokens().await?;
        Ok(Invitations { invitations: all.into_iter().map(about).collect() })
    }
}

impl Answer<InvitationRemove> for MembershipCalls {
    async fn answer(self, call: InvitationRemove, caller: CallingMember) -> Result<Done, Failure> {
        let id = call.invitation;
        self.catalog.remove_token(id).await?;
        tracing::info!(invitation = id, "an invitation was removed");
        let what = format!("removed the invitation {id}");
        self.auditor.changed(&caller, InvitationRemove::NAME, what).await;
        Ok(Done {})
    }
}

impl Answer<MemberList> for MembershipCalls {
    async fn answer(self, _call: MemberList, _: CallingMember) -> Result<Members, Failure> {
        let behind = self.authority.members_behind();
        let about = |member: StoredMember| {
            let is_behind = !member.revoked && behind.contains(&member.id);
            about(member, is_behind)
        };
        Ok(Members { members: self.members.all().into_iter().map(about).collect() })
    }
}

/// Describes a member; `is_behind` if it does not follow the pool's authority.
pub fn about(member: StoredMember, is_behind: bool) -> MemberAbout {
    MemberAbout {
        member: member.id,
        name: member.name,
        role: member.role,
        joined_wall_ms: member.joined_wall_ms,
        invited_by: member.invited_by,
        seen_wall_ms: member.seen_wall_ms,
        is_behind,
        revoked: member.revoked,
    }
}

impl Answer<Revoke> for MembershipCalls {
    async fn answer(self, call: Revoke, caller: CallingMember) -> Result<Done, Failure> {
        let Revoke { members, now, agreed } = call;
        let mut donors: BTreeSet<_> = members.iter().map(|member| DonorId(member.0)).collect();
        donors.retain(|donor| self.pool.lock().knows_donor(*donor));
        let _condemned = self.departures.allow(donors, RemovalTerms { now, agreed }).await?;
        for member in members {
            self.revoke(&caller, Revoke::NAME, member).await?;
        }
        Ok(Done {})
    }
}

impl Answer<Leave> for MembershipCalls {
    async fn answer(self, call: Leave, caller: CallingMember) -> Result<Done, Failure> {
        let who = caller.member()?;
        let Leave { now, agreed } = call;
        let donor = (who.role == Role::Donor).then_some(DonorId(who.member.0));
        let donors = donor.into_iter().collect();
        let _condemned = self.departures.allow(donors, RemovalTerms { now, agreed }).await?;
        self.revoke(&caller, Leave::NAME, who.member).await?;
        Ok(Done {})
    }
}

impl MembershipCalls {
    /// Ends a membership, with the member's tickets and write sessions.
    async fn revoke(
        &self,
        caller: &CallingMember,
        call: &str,
        id: MemberId,
    ) -> Result<(), Failure> {
        let (member, forgotten) = self.catalog.revoke(id).await?;
        self.members.forget(&forgotten);
        let what = format!("{} {} ({}) is revoked", member.role, member.name, member.id);
        tracing::info!("{what}");
        let was_donor = member.role == Role::Donor;
        let leaves = caller.member()?.member == id;
        self.members.put(member);
        self.auditor.changed(caller, call, what).await;
        let sessions = {
            let mut pool = self.pool.lock();
            pool.remove_donor(DonorId(id.0));
            // The tickets that a member was given are not recorded, so the tickets of all members end; those who still
            // may have them ask for new ones. Not for a donor that leaves by itself, as thousands may that come and go:
            // it was given none but those to fetch what it was told to, which end in minutes.
            if !(was_donor && leaves) {
                pool.void_tickets(self.time.now_ms());
            }
            pool.sessions_of(id)
        };
        for session in sessions {
            self.sessions.end(session).await?;
        }
        if was_donor {
            // The records of the donor's copies are being forgotten, so that no scan could go from them to the files
            // that need them.
            self.scan_state.changed_anywhere(self.time.tick());
            self.scan_state.hurry(self.time.tick());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
