//! Making a pool.

use crate::authority;
use crate::ca::{Ca, ProvenKey};
use crate::config::ManagerConfig;
use crate::error::ManagerError;
use crate::kit;
use crate::state_dir::{StateDir, names};
use potluck_catalog::OpenError;
use potluck_catalog::members::{self, NewMember};
use potluck_catalog::{Error, schema};
use potluck_wire::addresses::Addresses;
use potluck_wire::env::Env;
use potluck_wire::identity::{About, Identity, fingerprint, new_key_and_request};
use potluck_wire::token::Role;
use rusqlite::Connection;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;

/// What people call the first admin.
const FIRST_ADMIN: &str = "admin";

/// Makes the pool in [`ManagerConfig::state`]: its authority, its catalog, and the first admin's
/// identity in `admin/`. A directory that holds a whole pool is left as it is; one where this was
/// interrupted is completed.
///
/// Refused while a manager runs there, and where a restore was not finished or a catalog is missing.
pub fn init(config: &ManagerConfig, env: &Env) -> Result<Made, ManagerError> {
    let existed = config.state.exists();
    let made; // declared first, for it goes when the directory is nobody's any more
    let state = StateDir::take(&config.state)?;
    made = Made::begin(&state, existed)?;
    state.refuse_unfinished()?;
    schema::create(&state.catalog(), &config.pool_name)?;
    let db = schema::open_existing(&state.catalog())?;
    let catalog = |why: Error| OpenError::of(&state.catalog(), why);
    // An authority is made for a pool without members only: all others know theirs.
    if members::all(&db).map_err(catalog)?.is_empty() {
        let ca = Ca::create(&state.ca(), &config.pool_name)?;
        kit::make_key(&state, &*env.entropy)?;
        let add = || -> Result<(), Error> {
            let tx = db.unchecked_transaction()?;
            authority::note(&tx, &fingerprint(ca.certificate()))?;
            let admin = NewAdmin {
                pool: &config.pool_name,
                name: FIRST_ADMIN,
                manager: Addresses::default(),
                joined_wall_ms: env.clock.wall(),
            };
            make_admin(&state, &ca, &tx, admin)?;
            Ok(tx.commit()?)
        };
        add().map_err(catalog)?;
    }
    if !state.kit().exists() {
        let pool = schema::pool_name(&db).map_err(catalog)?;
        // Where the manager is reached, its start finds out.
        kit::keep(&state, &pool, &Addresses::default(), &*env.entropy)?;
    }
    Ok(made)
}

/// What [`init`] made of a state directory. Dropped before it is to be kept, a pool that is new is
/// taken back: a start that failed, as for a port that is taken, must not leave an empty pool where the
/// next restore is to go, with an identity that this user's commands would go by.
#[derive(Debug)]
#[must_use = "a new pool that is dropped is taken back"]
pub struct Made {
    root: PathBuf,
    /// Whether there was no pool before, and what was made since is to go.
    is_new: bool,
    /// What was in the directory before; `None`: it was not there.
    before: Option<BTreeSet<String>>,
}

impl Made {
    fn begin(state: &StateDir, existed: bool) -> Result<Self, ManagerError> {
        let before = match existed {
            true => Some(names(state.root())?.into_iter().collect()),
            false => None,
        };
        Ok(Self { root: state.root().into(), is_new: !state.catalog().exists(), before })
    }

    /// Whether there was no pool before.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// It stays.
    pub fn keep(&mut self) {
        self.is_new = false;
    }

    fn take_back(&self) -> Result<(), ManagerError> {
        // Somebody else's, if they began to run on it meanwhile.
        let state = StateDir::take(&self.root)?;
        let before = self.before.iter().flatten().collect::<BTreeSet<_>>();
        for name in names(state.root())?.iter().filter(|name| !before.contains(name)) {
            let path = state.root().join(name);
            let removed =
                if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            match removed {
                Err(why) if why.kind() != io::ErrorKind::NotFound => {
                    return Err(StateDir::io(path)(why));
                }
                _ => {}
            }
        }
        match self.before {
            Some(_) => Ok(()),
            None => fs::remove_dir(&self.root).map_err(StateDir::io(self.root.clone())),
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if !self.is_new {
            return;
        }
        if let Err(why) = self.take_back() {
            tracing::warn!("the pool that was made for this start stays: {why}");
        }
    }
}

/// An admin that nobody invites.
pub struct NewAdmin<'a> {
    /// The pool's name.
    pub pool: &'a str,
    /// What people call them.
    pub name: &'a str,
    /// Where the manager is.
    pub manager: Addresses,
    /// Wall time.
    pub joined_wall_ms: i64,
}

/// Makes an admin whose identity lies in the state directory. The identity is written
/// before its member is, so that a pool with a member has an admin whose identity is there.
pub fn make_admin(
    state: &StateDir,
    ca: &Ca,
    db: &Connection,
    new: NewAdmin<'_>,
) -> Result<(), Error> {
    let NewAdmin { pool, name, manager, joined_wall_ms } = new;
    let bug = |why: String| Error::Bug(format!("an admin's identity: {why}"));
    let (key, request) = new_key_and_request().map_err(|why| bug(why.to_string()))?;
    let proven = ProvenKey::of_request(&request).map_err(|why| bug(why.to_string()))?;
    let member = NewMember { role: Role::Admin, name, joined_wall_ms, invited_by: None };
    members::add(db, member, |id| {
        let certificate = ca
            .certify(&proven, id, Role::Admin)
            .map_err(|why| Error::BadCertificateRequest(why.to_string()))?;
        let identity = Identity {
            about: About {
                pool: pool.into(),
                manager,
                member: id,
                role: Role::Admin,
                name: name.into(),
            },
            ca: ca.certificate().clone(),
            certificate,
            key,
        };
        identity.save(&state.admin()).map_err(|why| bug(why.to_string()))?;
        Ok(fingerprint(&identity.certificate))
    })?;
    Ok(())
}

/// Tells the local admin where the manager is now.
pub fn update_admin_address(state: &StateDir, addresses: &Addresses) -> Result<(), ManagerError> {
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
