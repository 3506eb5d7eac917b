//! Members and the tokens by which they join.

use crate::log::{apply, records::Record};
use crate::members::{
    self,
    access_keys::{self, AccessKey},
    donor_names, groups,
    stored_member::StoredMember,
    tokens::{self, Certified, Moment, NewToken, Token},
};
use crate::sql::Tx;
use crate::{Catalog, Durability, Error};
use potluck_core::chunk::Digest;
use potluck_core::ids::MemberId;
use potluck_wire::token::Role;

impl Catalog {
    /// Adds a token and returns its number. A name that it fixes must be free.
    pub async fn add_token(
        &self,
        secret: Digest,
        new: NewToken,
        now: Moment,
    ) -> Result<u32, Error> {
        let add = move |db: &_| {
            if let Some(name) = &new.name {
                donor_names::check_fixed(db, name)?;
            }
            tokens::add(db, &secret, new.clone(), now)
        };
        self.write(Durability::Disk, add).await
    }

    /// Returns the tokens that are remembered, the oldest first.
    pub async fn tokens(&self) -> Result<Vec<Token>, Error> {
        self.read(tokens::all).await
    }

    /// Forgets an unused token, so that it cannot be used any more.
    pub async fn remove_token(&self, id: u32) -> Result<(), Error> {
        self.write(Durability::Disk, move |db| tokens::remove(db, id)).await
    }

    /// Uses a token up for a member called `name`, whose public key has the digest `key`. `certify` returns the digest
    /// of the member's certificate, and the certificate in DER. A member that used the token with that key before, and
    /// whose membership has not ended, gets the same answer again until the token expires.
    pub async fn join(
        &self,
        secret: Digest,
        key: Digest,
        name: String,
        now: Moment,
        certify: impl Fn(MemberId, Role) -> Result<(Digest, Vec<u8>), Error> + Send + 'static,
    ) -> Result<Certified, Error> {
        // A caller that guesses at tokens is refused by this read, and takes no turn of the writer.
        if !self.read(move |db| tokens::is_known(db, &secret)).await? {
            return Err(Error::UnknownToken);
        }
        let join = move |db: &_| {
            tokens::use_up(db, &secret, &key, now, |invited| {
                // Tokens end with the membership of who made them.
                let inviter = members::get(db, invited.by)?;
                if inviter.is_some_and(|by| by.revoked) {
                    return Err(Error::UnknownToken);
                }
                // Rights are granted to members and to groups by name, so no two of them may share one.
                if invited.role != Role::Donor && groups::is_there(db, &name)? {
                    return Err(Error::NameTaken { name: name.clone(), holder: "a group" });
                }
                let name = match invited.role {
                    Role::Donor => donor_names::of_joining(db, invited.name.as_deref(), &name)?,
                    Role::User | Role::Gateway | Role::Admin => name.clone(),
                };
                let mut certificate = Vec::new();
                let new = NewMember {
                    role: invited.role,
                    name: &name,
                    joined_wall_ms: now.wall_ms,
                    invited_by: Some(invited.by),
                };
                let member = add(db, new, |id| {
                    let (digest, issued) = certify(id, invited.role)?;
                    certificate = issued;
                    Ok(digest)
                })?;
                Ok(Certified { member, certificate })
            })
        };
        self.write(Durability::Disk, join).await
    }

    /// Adds an access key of a member. Those of its keys that have ended are forgotten.
    ///
    /// Errors: [`Error::TooManyKeys`].
    pub async fn add_access_key(&self, key: AccessKey, now: Moment) -> Result<(), Error> {
        self.write(Durability::Disk, move |db| access_keys::add(db, &key, now)).await
    }

    /// Returns all access keys, the oldest first.
    pub async fn access_keys(&self) -> Result<Vec<AccessKey>, Error> {
        self.read(access_keys::all).await
    }

    /// Forgets an access key, if it is there.
    pub async fn remove_access_key(&self, id: String) -> Result<(), Error> {
        self.write(Durability::Disk, move |db| access_keys::remove(db, &id)).await
    }

    /// Ends a membership. The facts kept about a donor are forgotten at once, and its copies later
    /// ([`Upkeep::RemovedDonors`](crate::Upkeep::RemovedDonors)). Also returns donors whose membership ended long ago and
    /// that are forgotten now.
    pub async fn revoke(&self, id: MemberId) -> Result<(StoredMember, Vec<MemberId>), Error> {
        let revoke = move |db: &_| Ok((revoke(db, id)?, members::forget_ended_donors(db)?));
        self.write(Durability::Disk, revoke).await
    }
}

/// A person or donor that is about to become a member.
#[derive(Debug, Clone)]
pub struct NewMember<'a> {
    /// The role of the new member.
    pub role: Role,
    /// The name by which people know the member.
    pub name: &'a str,
    /// The wall time at which the member joins, in milliseconds.
    pub joined_wall_ms: i64,
    /// The member that made the invitation; `None` for an admin that is made with the pool or at a restore.
    pub invited_by: Option<MemberId>,
}

/// Adds a member, whose certificate `certify` makes once the number is known.
pub(crate) fn add(
    db: &Tx,
    new: NewMember<'_>,
    certify: impl FnOnce(MemberId) -> Result<Digest, Error>,
) -> Result<StoredMember, Error> {
    let NewMember { role, name, joined_wall_ms, invited_by } = new;
    // No number is given twice, so a placement never changes its donor.
    let id = MemberId(db.last_number("members")? as u32 + 1);
    let (fingerprint, name, revoked, seen_wall_ms) = (certify(id)?, name.into(), false, None);
    let member = StoredMember {
        id,
        role,
        name,
        fingerprint,
        revoked,
        joined_wall_ms,
        invited_by,
        seen_wall_ms,
    };
    apply::write(db, Record::Member(member.clone()))?;
    Ok(member)
}

/// Ends a member's rights, and returns the member. A member whose rights ended before stays as it is.
///
/// Errors: [`Error::NoMember`], or [`Error::LastAdmin`] if no other admin is left.
pub(crate) fn revoke(db: &Tx, id: MemberId) -> Result<StoredMember, Error> {
    let found = members::get(db, id)?.ok_or(Error::NoMember(id.0))?;
    if found.revoked {
        return Ok(found);
    }
    let is_other = |it: &StoredMember| it.role == Role::Admin && !it.revoked && it.id != id;
    if found.role == Role::Admin && !members::all(db)?.iter().any(is_other) {
        return Err(Error::LastAdmin(id.0));
    }
    end(db, found)
}

/// Ends a member's rights, even if no admin is left, and returns the member. The invitations that the member made and
/// that nobody used are void: otherwise a removed admin would come back by one, or let others in.
pub(crate) fn end(db: &Tx, member: StoredMember) -> Result<StoredMember, Error> {
    tokens::void_of(db, member.id)?;
    access_keys::void_of(db, member.id)?;
    let ended = StoredMember { revoked: true, ..member };
    apply::write(db, Record::Member(ended.clone()))?;
    Ok(ended)
}
