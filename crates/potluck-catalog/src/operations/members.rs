//! Members and the tokens by which they join.

use crate::members::{
    donor_names, groups,
    stored_member::StoredMember,
    tokens::{self, Certified, Moment, NewToken, Token},
    {self, NewMember},
};
use crate::pool_records::donors;
use crate::{Catalog, Durability, Error};
use potluck_core::chunk::Digest;
use potluck_core::ids::{DonorId, MemberId};
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
                    Role::User | Role::Admin => name.clone(),
                };
                let mut certificate = Vec::new();
                let new = NewMember {
                    role: invited.role,
                    name: &name,
                    joined_wall_ms: now.wall_ms,
                    invited_by: Some(invited.by),
                };
                let member = members::add(db, new, |id| {
                    let (digest, issued) = certify(id, invited.role)?;
                    certificate = issued;
                    Ok(digest)
                })?;
                Ok(Certified { member, certificate })
            })
        };
        self.write(Durability::Disk, join).await
    }

    /// Ends a membership. The facts kept about a donor are forgotten at once, and its copies later
    /// ([`Upkeep::RemovedDonors`](crate::Upkeep::RemovedDonors)). Also returns donors whose membership ended long ago and
    /// that are forgotten now.
    pub async fn revoke(&self, id: MemberId) -> Result<(StoredMember, Vec<MemberId>), Error> {
        let revoke = move |db: &_| {
            let member = members::revoke(db, id)?;
            donors::forget(db, DonorId(id.0))?;
            Ok((member, members::forget_ended_donors(db)?))
        };
        self.write(Durability::Disk, revoke).await
    }
}
