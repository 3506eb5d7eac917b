//! The identity of an admin that nobody invites: the first admin of a new pool, and the admin of a restored pool.

use crate::ca::{Ca, ProvenKey};
use crate::error::StateError;
use crate::state_dir::StateDir;
use potluck_catalog::Error;
use potluck_core::chunk::Digest;
use potluck_core::ids::MemberId;
use potluck_wire::addresses::Addresses;
use potluck_wire::identity::{About, Identity, fingerprint, new_key_and_request};
use potluck_wire::token::Role;

/// An admin that nobody invites.
pub struct NewAdmin<'a> {
    /// The name of the pool.
    pub pool: &'a str,
    /// The name that people call the admin by.
    pub name: &'a str,
    /// The addresses at which the manager is reached.
    pub manager: Addresses,
}

impl NewAdmin<'_> {
    /// Writes the identity of this admin, who is member `id`, into the state directory, and returns the
    /// fingerprint of its certificate. The identity is written before the member, so that a pool with a member
    /// has an admin whose identity is there. Called again, this makes another identity in the place of the first.
    pub fn certify(&self, state: &StateDir, ca: &Ca, id: MemberId) -> Result<Digest, Error> {
        let bug = |why: String| Error::Bug(format!("an admin's identity: {why}"));
        let (key, request) = new_key_and_request().map_err(|why| bug(why.to_string()))?;
        let proven = ProvenKey::of_request(&request).map_err(|why| bug(why.to_string()))?;
        let certificate = ca
            .certify(&proven, id, Role::Admin)
            .map_err(|why| Error::BadCertificateRequest(why.to_string()))?;
        let (pool, name, manager) = (self.pool.into(), self.name.into(), self.manager.clone());
        let pool_id = ca.pool();
        let about = About { pool, pool_id, manager, member: id, role: Role::Admin, name };
        let identity = Identity { about, ca: ca.certificate().clone(), certificate, key };
        identity.save(&state.admin()).map_err(|why| bug(why.to_string()))?;
        Ok(fingerprint(&identity.certificate))
    }
}

/// Writes the manager's addresses into the identity of the local admin, if that is there.
pub fn update_admin_address(state: &StateDir, addresses: &Addresses) -> Result<(), StateError> {
    let dir = state.admin();
    if !Identity::exists(&dir) {
        return Ok(()); // moved to safety by its owner
    }
    let mut identity = Identity::load(&dir).map_err(StateDir::io(dir.clone()))?;
    if identity.about.manager == *addresses {
        return Ok(());
    }
    identity.about.manager = addresses.clone();
    identity.save_about(&dir).map_err(StateDir::io(dir))
}
