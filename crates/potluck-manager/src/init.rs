//! Making a pool.

use crate::ca::{Ca, ProvenKey};
use crate::catalog::{Error, members, schema};
use crate::config::ManagerConfig;
use crate::error::ManagerError;
use crate::state_dir::StateDir;
use potluck_wire::env::Env;
use potluck_wire::identity::{About, Identity, fingerprint, new_key_and_request};
use potluck_wire::token::Role;
use rusqlite::Connection;
use std::net::SocketAddr;

/// What people call the first admin.
const FIRST_ADMIN: &str = "admin";

/// Makes the pool in [`ManagerConfig::state`]: its authority, its catalog, and the first admin's
/// identity in `admin/`. A directory that holds a whole pool is left as it is; one where this was
/// interrupted is completed.
///
/// Refused while a manager runs there.
pub fn init(config: &ManagerConfig, _env: &Env) -> Result<(), ManagerError> {
    let state = StateDir::take(&config.state)?;
    let ca = Ca::create(&state.ca(), &config.pool_name)?;
    schema::create(&state.catalog(), &config.pool_name)?;
    let db = schema::open_existing(&state.catalog())?;
    let catalog =
        |why: Error| ManagerError::Catalog { path: state.catalog(), detail: why.to_string() };
    if members::all(&db).map_err(catalog)?.is_empty() {
        make_admin(config, &state, &ca, &db)?;
    }
    Ok(())
}

/// The identity is written before its member is, so that a pool with a member has an admin whose
/// identity is there.
fn make_admin(
    config: &ManagerConfig,
    state: &StateDir,
    ca: &Ca,
    db: &Connection,
) -> Result<(), ManagerError> {
    let bad = |why: String| ManagerError::Certificates { path: state.admin(), detail: why };
    let (key, request) = new_key_and_request().map_err(|why| bad(why.to_string()))?;
    let proven = ProvenKey::of_request(&request).map_err(|why| bad(why.to_string()))?;
    let add = || -> Result<(), Error> {
        let tx = db.unchecked_transaction()?;
        members::add(&tx, Role::Admin, FIRST_ADMIN, |id| {
            let certificate = ca
                .certify(&proven, id, Role::Admin)
                .map_err(|why| Error::BadCertificateRequest(why.to_string()))?;
            let identity = Identity {
                about: About {
                    pool: config.pool_name.clone(),
                    manager: address_guess(config),
                    member: id,
                    role: Role::Admin,
                    name: FIRST_ADMIN.into(),
                },
                ca: ca.certificate().clone(),
                certificate,
                key: key.clone_key(),
            };
            identity.save(&state.admin()).map_err(|why| Error::Bug(why.to_string()))?;
            Ok(fingerprint(&identity.certificate))
        })?;
        tx.commit()?;
        Ok(())
    };
    add().map_err(|why| ManagerError::Catalog { path: state.catalog(), detail: why.to_string() })
}

/// Where the manager will be reached, as far as the configuration tells.
fn address_guess(config: &ManagerConfig) -> String {
    match config.listen.parse::<SocketAddr>() {
        Ok(listen) => advertised(config, listen),
        Err(_) => config.advertise.clone().unwrap_or_else(|| config.listen.clone()),
    }
}

/// The `host:port` that a manager listening at `listen` tells people.
pub fn advertised(config: &ManagerConfig, listen: SocketAddr) -> String {
    match &config.advertise {
        Some(address) if has_port(address) => address.clone(),
        Some(host) => format!("{host}:{}", listen.port()),
        None if listen.ip().is_unspecified() || listen.ip().is_loopback() => {
            format!("127.0.0.1:{}", listen.port())
        }
        None => listen.to_string(),
    }
}

fn has_port(address: &str) -> bool {
    let port = address.rsplit_once(':').and_then(|(host, port)| {
        // A bare IPv6 address has colons, and none of them begins a port.
        (!host.contains(':') || host.ends_with(']')).then_some(port)
    });
    port.is_some_and(|port| port.parse::<u16>().is_ok())
}

/// Tells the local admin where the manager is now.
pub fn update_admin_address(state: &StateDir, address: &str) -> Result<(), ManagerError> {
    let dir = state.admin();
    if !Identity::exists(&dir) {
        return Ok(()); // moved to safety by its owner
    }
    let mut identity = Identity::load(&dir).map_err(StateDir::io(dir.clone()))?;
    if identity.about.manager == address {
        return Ok(());
    }
    identity.about.manager = address.into();
    identity.save_about(&dir).map_err(StateDir::io(dir))
}
