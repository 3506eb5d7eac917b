//! Makes a new pool: its certificate authority, its catalog, its first admin and its recovery kit.

use crate::config::{ManagerConfig, NEW_POOL};
use potluck_catalog::Founding;
use potluck_recovery::StateError;
use potluck_recovery::admin::NewAdmin;
use potluck_recovery::ca::Ca;
use potluck_recovery::kit;
use potluck_recovery::pool_authority;
use potluck_recovery::state_dir::{StateDir, names};
use potluck_wire::addresses::Addresses;
use potluck_wire::env::Env;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;

/// The name that people call the first admin by.
const FIRST_ADMIN: &str = "admin";

/// Makes the pool in [`ManagerConfig::state`]: its authority, its catalog, and the first admin's
/// identity in `admin/`. A directory that holds a whole pool is left as it is; one where this was
/// interrupted is completed.
///
/// Errors: a manager runs there, a restore was not finished, the catalog of a pool is missing, or the pool there has
/// another name than the one that is said.
pub fn init(config: &ManagerConfig, env: &Env) -> Result<Made, StateError> {
    let existed = config.state.exists();
    let made; // declared first, so that it is dropped after the directory was given up
    let state = StateDir::take(&config.state)?;
    made = Made::begin(&state, existed)?;
    state.refuse_unfinished()?;
    pool_authority::settle(&state)?;
    let said = config.pool_name.as_deref();
    let catalog = Founding::begin(&state.catalog(), said.unwrap_or(NEW_POOL))?;
    let name = catalog.pool_name()?;
    if let Some(said) = said.filter(|said| *said != name) {
        return Err(StateError::OtherName { state: config.state.clone(), name, said: said.into() });
    }
    // An authority is made only for a pool without members, for members know theirs.
    if !catalog.is_founded()? {
        let ca = Ca::create(&state.ca(), &name)?;
        kit::make_key(&state, &*env.entropy)?;
        let admin = NewAdmin { pool: &name, name: FIRST_ADMIN, manager: Addresses::default() };
        let certify = |id| admin.certify(&state, &ca, id);
        catalog.found(&ca.pool(), FIRST_ADMIN, env.clock.wall(), certify)?;
    }
    if !state.kit().exists() {
        // The manager finds out at its start where it is reached.
        kit::keep(&state, &name, &Addresses::default(), &*env.entropy)?;
    }
    Ok(made)
}

/// The state directory that [`init`] made. A new pool is removed again when this is dropped without
/// [`Made::keep`]: a failed start, for example for a port that is taken, must not leave an empty pool
/// where the next restore is to go, with an identity that this user's commands would use.
#[derive(Debug)]
#[must_use = "a new pool that is dropped is taken back"]
pub struct Made {
    root: PathBuf,
    /// True if there was no pool before and the new one is not kept yet: it is removed on drop.
    is_new: bool,
    /// The names that were in the directory before [`init`] filled it; `None` if the directory was not there.
    before: Option<BTreeSet<String>>,
}

impl Made {
    fn begin(state: &StateDir, existed: bool) -> Result<Self, StateError> {
        let before = match existed {
            true => Some(names(state.root())?.into_iter().collect()),
            false => None,
        };
        Ok(Self { root: state.root().into(), is_new: !state.has_catalog(), before })
    }

    /// Returns true if there was no pool before; false after [`Made::keep`].
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Keeps the pool: it is not removed on drop any more.
    pub fn keep(&mut self) {
        self.is_new = false;
    }

    fn take_back(&self) -> Result<(), StateError> {
        // If somebody began to run on it meanwhile, the directory is theirs, and this fails.
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
