//! The directories and the configuration of a user, and under which of their identities they act.

use crate::config_file::ConfigFile;
use crate::own_pools::{JoinedPool, joined, listed, load_identity, pick, unknown};
use etcetera::BaseStrategy;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::Identity;
use potluck_wire::mdns;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directory of the state of daemons that run as services of the system.
pub const SYSTEM_STATE: &str = "/var/lib/potluck";

/// The directories and the configuration of a user.
pub struct UserSettings {
    /// The directory of the user's configuration, `$XDG_CONFIG_HOME/potluck`.
    pub config_dir: PathBuf,
    /// The directory of the daemons' state, `$XDG_STATE_HOME/potluck`.
    pub state_dir: PathBuf,
    /// The directory of the user's data, `$XDG_DATA_HOME/potluck`.
    pub data_dir: PathBuf,
    /// The directory of the user's caches, `$XDG_CACHE_HOME/potluck`.
    pub cache_dir: PathBuf,
    /// The values of the configuration files.
    pub file: ConfigFile,
    pool: Option<String>,
}

impl UserSettings {
    /// Finds the directories and reads the configuration. The user acts in the pool that is named `pool`, else in that of
    /// the configuration.
    pub fn resolve(pool: Option<&str>) -> Result<Self, Failure> {
        let base = etcetera::choose_base_strategy().map_err(|_| {
            Failure::new(ErrorKind::Usage, code::LOCAL_IO, "this user has no home directory")
                .hint("set HOME, or XDG_CONFIG_HOME, XDG_STATE_HOME and XDG_DATA_HOME")
        })?;
        let config_dir = base.config_dir().join("potluck");
        let file = ConfigFile::load(&config_dir)?;
        if file.is_on("mdns") == Some(false) {
            mdns::switch_off();
        }
        let state_dir = base.state_dir().unwrap_or_else(|| base.data_dir()).join("potluck");
        // Shells set a variable to nothing to unset it for one command.
        let pool = pool.filter(|pool| !pool.is_empty()).or_else(|| file.text("pool"));
        Ok(Self {
            config_dir,
            state_dir,
            data_dir: base.data_dir().join("potluck"),
            cache_dir: base.cache_dir().join("potluck"),
            pool: pool.map(str::to_owned),
            file,
        })
    }

    /// Returns how long to wait for a pool that does not answer, if the configuration says so.
    pub fn retry_for(&self) -> Option<Duration> {
        self.file.time("retry-for")
    }

    /// Returns the directory that holds the identities of users and admins, with one directory for each pool.
    pub fn pools_dir(&self) -> PathBuf {
        self.config_dir.join("pools")
    }

    /// Returns the state directory of a manager: this user's, or the system service's if the user has none and may
    /// look into it.
    pub fn manager_dir(&self) -> PathBuf {
        self.daemon_dir("manager")
    }

    fn daemon_dir(&self, daemon: &str) -> PathBuf {
        let own = self.state_dir.join(daemon);
        let systems = Path::new(SYSTEM_STATE).join(daemon);
        // Only root and the service's user can look into the system's directory, so others get their own.
        if !own.exists() && std::fs::read_dir(&systems).is_ok() { systems } else { own }
    }

    /// Returns the state directory of a donor: this user's, or the system service's if the user has none and may look
    /// into it.
    pub fn donor_dir(&self) -> PathBuf {
        self.daemon_dir("donor")
    }

    /// Returns the directory of a gateway's identity: this user's, or the system service's if the user has none and may
    /// look into it.
    pub fn gateway_dir(&self) -> PathBuf {
        self.daemon_dir("gateway")
    }

    /// Returns the directory of the identity with which this user joined a pool. Refuses that of the first admin,
    /// which belongs to the manager's state.
    pub fn joined_dir(&self) -> Result<PathBuf, Failure> {
        let dir = self.identity_dir()?;
        if dir != self.manager_dir().join("admin") {
            return Ok(dir);
        }
        let what = "you have not joined a pool on this machine";
        Err(Failure::new(ErrorKind::NotFound, code::NOT_A_MEMBER, what).hint(format!(
            "the first admin's identity is in {}: name it with --state if that is meant",
            dir.display()
        )))
    }

    /// Returns the directory of the identity to act under.
    pub fn identity_dir(&self) -> Result<PathBuf, Failure> {
        let named = self.pool.as_deref();
        // Only a path of several components names a directory: a name must not lead to the current directory, where
        // a stranger's identity may lie.
        if let Some(dir) = named.map(Path::new).filter(|dir| dir.components().count() > 1) {
            return match Identity::exists(dir) {
                true => Ok(dir.into()),
                false => Err(unknown(&dir.display().to_string(), "is no directory of an identity")),
            };
        }
        let mut own = joined(&self.pools_dir());
        let local = JoinedPool::load(&self.manager_dir().join("admin"));
        match (named, &own[..]) {
            (Some(name), _) => {
                // The first admin may have joined their own pool under another name as well.
                own.extend(local.filter(|local| own.iter().all(|own| own.id != local.id)));
                pick(own, name)
            }
            (None, [one]) => Ok(one.dir.clone()),
            (None, []) => match local {
                Some(local) => Ok(local.dir),
                None => Err(self.no_member()),
            },
            (None, several) => {
                let what = format!("you have joined several pools: {}", listed(several));
                Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                    .hint("say which with --pool NAME, or put `pool = \"NAME\"` into config.toml"))
            }
        }
    }

    /// Makes the failure that no user or admin has joined a pool here.
    fn no_member(&self) -> Failure {
        let failure = |what: String| Failure::new(ErrorKind::Auth, code::NOT_A_MEMBER, what);
        match JoinedPool::load(&self.donor_dir()) {
            Some(donor) => failure(format!(
                "this machine only lends to pool {}: the identity in {} is a donor's, which sees its own state and no files",
                donor.about.pool,
                donor.dir.display()
            ))
            .hint("`potluck lend status`, `potluck nodes ls` and `potluck scrub status` show what is of this machine; for the rest ask an admin for a token (`potluck invite --role user`), then run `potluck join -`"),
            None => failure("you have not joined a pool".into())
                .hint("start one with `potluck up`, or ask its admin for a token and run `potluck join -`"),
        }
    }

    /// Returns whether this machine lends to a pool, and this user has joined none and named none.
    pub fn only_lends(&self) -> bool {
        let is_none = |failure: Failure| failure.code == code::NOT_A_MEMBER;
        self.pool.is_none()
            && self.identity_dir().is_err_and(is_none)
            && Identity::exists(&self.donor_dir())
    }

    /// Loads the identity to act under.
    pub fn identity(&self) -> Result<Identity, Failure> {
        load_identity(&self.identity_dir()?)
    }
}
