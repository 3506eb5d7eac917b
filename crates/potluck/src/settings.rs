//! Settings as they hold: directories, identity, how to talk.

use crate::args::Global;
use crate::config::ConfigFile;
use etcetera::BaseStrategy;
use potluck_client::patience::Patience;
use potluck_client::pool::Client;
use potluck_wire::call::Caller;
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::Identity;
use potluck_wire::tls::TlsDial;
use potluck_wire::token::Role;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Everything a command needs to know of where it runs.
pub struct Settings {
    /// `$XDG_CONFIG_HOME/potluck`.
    pub config_dir: PathBuf,
    /// `$XDG_STATE_HOME/potluck`.
    pub state_dir: PathBuf,
    /// `$XDG_DATA_HOME/potluck`.
    pub data_dir: PathBuf,
    /// Whether to draw progress bars on a terminal.
    pub progress: bool,
    /// How long to wait for those who do not answer.
    pub patience: Patience,
    pool: Option<String>,
}

impl Settings {
    /// Flags over environment over files (DESIGN §9).
    pub fn resolve(global: &Global) -> Result<Self, Failure> {
        let base = etcetera::choose_base_strategy().map_err(|_| {
            Failure::new(ErrorKind::Usage, code::LOCAL_IO, "this user has no home directory")
                .hint("set HOME, or XDG_CONFIG_HOME, XDG_STATE_HOME and XDG_DATA_HOME")
        })?;
        let config_dir = base.config_dir().join("potluck");
        let file = ConfigFile::load(&config_dir)?;
        let state_dir = base.state_dir().unwrap_or_else(|| base.data_dir()).join("potluck");
        Ok(Self {
            config_dir,
            state_dir,
            data_dir: base.data_dir().join("potluck"),
            progress: !global.no_progress && file.progress.unwrap_or(true),
            patience: patience(global, &file)?,
            // Set to nothing is how shells unset it for one command.
            pool: global.pool.clone().filter(|pool| !pool.is_empty()).or(file.pool),
        })
    }

    /// Where identities of users and admins live, one directory a pool.
    pub fn pools_dir(&self) -> PathBuf {
        self.config_dir.join("pools")
    }

    /// Where a manager of this user keeps its state.
    pub fn manager_dir(&self) -> PathBuf {
        self.state_dir.join("manager")
    }

    /// Where a donor of this user keeps its state.
    pub fn donor_dir(&self) -> PathBuf {
        self.state_dir.join("donor")
    }

    /// The directory of the identity to act under.
    fn identity_dir(&self) -> Result<PathBuf, Failure> {
        if let Some(pool) = &self.pool {
            let named = self.pools_dir().join(pool);
            return [PathBuf::from(pool), named].into_iter().find(|dir| Identity::exists(dir)).ok_or_else(|| {
                let what = format!("“{pool}” is neither a pool you joined nor the directory of an identity");
                Failure::new(ErrorKind::NotFound, code::NOT_A_MEMBER, what)
                    .hint("join it with `potluck join TOKEN`, or look in the pools directory of your configuration")
            });
        }
        let joined = joined_pools(&self.pools_dir());
        let local = self.manager_dir().join("admin");
        match joined.as_slice() {
            [one] => Ok(one.clone()),
            [] if Identity::exists(&local) => Ok(local),
            [] => Err(Failure::new(ErrorKind::Auth, code::NOT_A_MEMBER, "you have not joined a pool")
                .hint("start one with `potluck up`, or ask its admin for a token and run `potluck join TOKEN`")),
            _ => Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, "you have joined several pools")
                .hint("say which with --pool NAME, or put `pool = \"NAME\"` into config.toml")),
        }
    }

    /// The identity to act under.
    pub fn identity(&self) -> Result<Identity, Failure> {
        load_identity(&self.identity_dir()?)
    }

    /// The identity of this machine's donor, whose state is in `dir`.
    pub fn donor_identity(dir: &Path) -> Result<Identity, Failure> {
        if !Identity::exists(dir) {
            let what = format!(
                "this machine has not joined a pool as a donor: nothing in {}",
                dir.display()
            );
            return Err(Failure::new(ErrorKind::Auth, code::NOT_A_MEMBER, what)
                .hint("ask an admin for a token (`potluck invite --role donor`), then run `potluck join TOKEN`; or give the --state that `potluck lend` was given"));
        }
        let identity = load_identity(dir)?;
        if identity.about.role != Role::Donor {
            let role = identity.about.role;
            let what = format!("{} holds the identity of a {role}, not of a donor", dir.display());
            return Err(Failure::new(ErrorKind::Auth, code::NOT_ALLOWED, what)
                .hint("give --state with another directory"));
        }
        Ok(identity)
    }

    /// A client that speaks for this machine's donor.
    pub fn donor_client(&self, state: Option<&Path>) -> Result<Client, Failure> {
        let default = self.donor_dir();
        let identity = Self::donor_identity(state.unwrap_or(&default))?;
        self.client_of(&identity)
    }

    /// A client of the pool.
    pub fn client(&self) -> Result<Client, Failure> {
        self.client_of(&self.identity()?)
    }

    fn client_of(&self, identity: &Identity) -> Result<Client, Failure> {
        let mut client = Client::new(Env::system(), caller(identity)?);
        client.patience = self.patience;
        Ok(client)
    }
}

/// How long commands wait. What was asked for holds at every moment; by default a command that has
/// not begun says within half a minute that it cannot (PROMISES A2).
fn patience(global: &Global, file: &ConfigFile) -> Result<Patience, Failure> {
    let written = file.patience.as_deref().map(humantime::parse_duration).transpose();
    let written = written.map_err(|why| {
        let what = format!("`patience` in the configuration is not a time: {why}");
        Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what).hint("write it as 90s, 10m or 2h")
    })?;
    let asked = global.patience.or(written);
    Ok(Patience {
        at_first: asked.unwrap_or(Duration::from_secs(30)),
        under_way: asked.unwrap_or(Duration::from_secs(600)),
    })
}

/// Reads an identity.
pub fn load_identity(dir: &Path) -> Result<Identity, Failure> {
    Identity::load(dir).map_err(|error| {
        let what = format!("cannot use the identity in {}: {error}", dir.display());
        Failure::new(ErrorKind::Auth, code::NOT_A_MEMBER, what)
            .hint("join again with a new token from `potluck invite`")
    })
}

/// Calls the manager of an identity's pool.
pub fn caller(identity: &Identity) -> Result<Caller, Failure> {
    let dial = TlsDial::member(identity).map_err(|why| {
        Failure::new(
            ErrorKind::Auth,
            code::NOT_A_MEMBER,
            format!("the identity is unusable: {why}"),
        )
        .hint("join again with a new token from `potluck invite`")
    })?;
    Ok(Caller::new(Env::system().net, Arc::new(dial), &identity.about.manager))
}

fn joined_pools(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut pools: Vec<_> =
        entries.map(|entry| entry.path()).filter(|path| Identity::exists(path)).collect();
    pools.sort();
    pools
}
