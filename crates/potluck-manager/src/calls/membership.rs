//! Joining, inviting, revoking.

use super::Answer;
use crate::ca::ProvenKey;
use crate::catalog::members::{self, Member};
use crate::catalog::{Durability, Error};
use crate::failure;
use crate::members::Caller;
use crate::service::Service;
use potluck_core::chunk::Digest;
use potluck_core::ids::DonorId;
use potluck_wire::control::{Done, Invite, Invited, Join, Joined, Revoke};
use potluck_wire::error::Failure;
use potluck_wire::identity::fingerprint;
use potluck_wire::packed::Blob;
use potluck_wire::token::Role;
use std::sync::Arc;

/// The longest name of a member, in bytes.
const MAX_NAME: usize = 255;

/// The longest a token is good for.
const MAX_TTL_SECONDS: u64 = 366 * 24 * 3600;

impl Answer for Join {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Joined, Failure> {
        let name = checked_name(&self.name)?;
        let request = self.request.0;
        let key =
            service.env.offload.run(move || ProvenKey::of_request(&request)).await.map_err(
                |why| failure::of_catalog(Error::BadCertificateRequest(why.to_string())),
            )?;
        let (now, shared) = (service.moment(), Arc::clone(&service));
        let join = move |db: &_| {
            let mut certificate = None;
            let member = members::use_token(db, &self.secret, now, |role| {
                members::add(db, role, &name, |id| {
                    let issued = shared
                        .ca
                        .certify(&key, id, role)
                        .map_err(|why| Error::BadCertificateRequest(why.to_string()))?;
                    let print = fingerprint(&issued);
                    certificate = Some(issued);
                    Ok(print)
                })
            })?;
            Ok((member, certificate.ok_or_else(|| Error::Bug("nothing was certified".into()))?))
        };
        let (member, certificate) = service.catalog.write(Durability::Disk, join).await?;
        tracing::info!(member = %member.id, role = %member.role, name = member.name, "joined");
        enlist(&service, &member);
        Ok(Joined {
            member: member.id,
            role: member.role,
            certificate: Blob(certificate.to_vec()),
            ca: Blob(service.ca.certificate().to_vec()),
            pool: service.pool_name.clone(),
        })
    }
}

fn enlist(service: &Service, member: &Member) {
    service.members.put(member.clone());
    if member.role == Role::Donor {
        service.pool().add_donor(DonorId(member.id.0), &member.name);
    }
}

fn checked_name(name: &str) -> Result<String, Failure> {
    let name = name.trim();
    if name.is_empty() || name.len() > MAX_NAME || name.contains(char::is_control) {
        return Err(failure::bad_request(format!(
            "a member's name has 1 to {MAX_NAME} bytes and no control characters"
        )));
    }
    Ok(name.into())
}

impl Answer for Invite {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Invited, Failure> {
        if !(1..=MAX_TTL_SECONDS).contains(&self.ttl_seconds) {
            return Err(failure::bad_request(format!(
                "a token is good for 1 to {MAX_TTL_SECONDS} seconds, not {}",
                self.ttl_seconds
            )));
        }
        let secret = Digest(service.env.entropy.bytes());
        let (now, role, ttl_ms) = (service.moment(), self.role, self.ttl_seconds * 1000);
        let add = move |db: &_| members::add_token(db, &secret, role, now, ttl_ms);
        service.catalog.write(Durability::Disk, add).await?;
        Ok(Invited { secret })
    }
}

impl Answer for Revoke {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Done, Failure> {
        let id = self.member;
        let member =
            service.catalog.write(Durability::Disk, move |db| members::revoke(db, id)).await?;
        tracing::info!(%member.id, role = %member.role, name = member.name, "revoked");
        service.members.put(member);
        let sessions = {
            let mut pool = service.pool();
            pool.remove_donor(DonorId(id.0));
            pool.sessions_of(id)
        };
        for session in sessions {
            super::session::end(&service, session).await?;
        }
        // What a donor held is not there any more.
        service.keeper.hurry(service.time.tick());
        Ok(Done {})
    }
}
