//! The settings of one command, from its flags, the environment and `config.toml`: directories, the identity
//! to act under, and how long to wait.

use crate::args::Global;
use crate::config_file::ConfigFile;
use crate::keys::Daemon;
use crate::systemd::SYSTEM_STATE;
use etcetera::BaseStrategy;
use potluck_client::{Pool, RetryLimits};
use potluck_core::chunk::Digest;
use potluck_mount::WriteOptions;
use potluck_wire::call::Caller;
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::{About, Identity};
use potluck_wire::mdns;
use potluck_wire::tls::TlsDial;
use potluck_wire::token::Role;
use potluck_wire::whereabouts::Guide;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The resolved settings of a command.
pub struct CommandSettings {
    /// The directory of the user's configuration, `$XDG_CONFIG_HOME/potluck`.
    pub config_dir: PathBuf,
    /// The directory of the daemons' state, `$XDG_STATE_HOME/potluck`.
    pub state_dir: PathBuf,
    /// The directory of the user's data, `$XDG_DATA_HOME/potluck`.
    pub data_dir: PathBuf,
    /// The directory of the user's caches, `$XDG_CACHE_HOME/potluck`.
    pub cache_dir: PathBuf,
    /// Whether to draw progress bars on a terminal.
    pub progress: bool,
    /// How long to wait for a manager and donors that do not answer.
    pub retry_limits: RetryLimits,
    /// The most bytes that files which are written through a mount may take on this machine; `None` if not set.
    pub spool_max: Option<u64>,
    /// How files that are written in order through a mount go to donors.
    pub writing: WriteOptions,
    /// The most bytes that the disk cache of this user's mounts may take; `None` if not set.
    pub cache_max: Option<u64>,
    pool: Option<String>,
}

impl CommandSettings {
    /// Resolves the settings. Flags win over the environment, and that over `config.toml`.
    pub fn resolve(global: &Global) -> Result<Self, Failure> {
        let base = etcetera::choose_base_strategy().map_err(|_| {
            Failure::new(ErrorKind::Usage, code::LOCAL_IO, "this user has no home directory")
                .hint("set HOME, or XDG_CONFIG_HOME, XDG_STATE_HOME and XDG_DATA_HOME")
        })?;
        let config_dir = base.config_dir().join("potluck");
        let file = ConfigFile::load(&config_dir)?;
        if file.is_on("mdns") == Some(false) {
            mdns::switch_off();
        }
        let pool = || file.text("pool").map(str::to_owned);
        let state_dir = base.state_dir().unwrap_or_else(|| base.data_dir()).join("potluck");
        Ok(Self {
            config_dir,
            state_dir,
            data_dir: base.data_dir().join("potluck"),
            cache_dir: base.cache_dir().join("potluck"),
            progress: !global.no_progress && file.is_on("progress").unwrap_or(true),
            retry_limits: retry_limits(global.retry_for.or(file.time("retry-for"))),
            spool_max: file.size("spool-max"),
            writing: writing(&file)?,
            cache_max: file.size("cache-max"),
            // Shells set a variable to nothing to unset it for one command.
            pool: global.pool.clone().filter(|pool| !pool.is_empty()).or_else(pool),
        })
    }

    /// Returns the directory where mounts keep files that are not published yet, and their records of them.
    pub fn spool_dir(&self) -> PathBuf {
        self.cache_dir.join("spool")
    }

    /// Returns the directory of the cache of chunks that mounts have read.
    pub fn chunk_cache_dir(&self) -> PathBuf {
        self.cache_dir.join("chunks")
    }

    /// Returns the directory that holds the identities of users and admins, with one directory for each pool.
    pub fn pools_dir(&self) -> PathBuf {
        self.config_dir.join("pools")
    }

    /// Returns the state directory of a manager: this user's, or the system service's if the user has none and may
    /// look into it.
    pub fn manager_dir(&self) -> PathBuf {
        self.daemon_dir(Daemon::Manager)
    }

    fn daemon_dir(&self, daemon: Daemon) -> PathBuf {
        let own = self.state_dir.join(daemon.name());
        let systems = Path::new(SYSTEM_STATE).join(daemon.name());
        // Only root and the service's user can look into the system's directory, so others get their own.
        if !own.exists() && std::fs::read_dir(&systems).is_ok() { systems } else { own }
    }

    /// Returns the state directory of a donor: this user's, or the system service's if the user has none and may look
    /// into it.
    pub fn donor_dir(&self) -> PathBuf {
        self.daemon_dir(Daemon::Donor)
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

    /// Loads the identity of this machine's donor, whose state is in `dir`.
    pub fn donor_identity(dir: &Path) -> Result<Identity, Failure> {
        if !Identity::exists(dir) {
            let what = format!(
                "this machine has not joined a pool as a donor: nothing in {}",
                dir.display()
            );
            return Err(Failure::new(ErrorKind::Auth, code::NOT_A_MEMBER, what)
                .hint("ask an admin for a token (`potluck invite --role donor`), then run `potluck join -`; or give the --state that `potluck lend` was given"));
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

    /// Makes a client that acts as this machine's donor, whose state is in `state` or in the default place.
    pub fn donor_client(&self, state: Option<&Path>) -> Result<Pool, Failure> {
        let default = self.donor_dir();
        let dir = state.unwrap_or(&default);
        self.client_of(&Self::donor_identity(dir)?, dir)
    }

    /// Makes a client that acts under this user's identity.
    pub fn client(&self) -> Result<Pool, Failure> {
        let dir = self.identity_dir()?;
        self.client_of(&load_identity(&dir)?, &dir)
    }

    fn client_of(&self, identity: &Identity, dir: &Path) -> Result<Pool, Failure> {
        let client = Pool::new(Env::system(), guided(identity, dir)?);
        Ok(client.with_retry_limits(self.retry_limits))
    }
}

/// Returns how long commands wait. A time that the user `asked` for holds in all cases. By default a command that cannot
/// begin gives up much sooner than one that is under way (promise A2).
fn retry_limits(asked: Option<Duration>) -> RetryLimits {
    RetryLimits {
        at_first: asked.unwrap_or(Duration::from_secs(30)),
        under_way: asked.unwrap_or(Duration::from_secs(600)),
        donors: asked.unwrap_or(Duration::from_secs(600)),
    }
}

/// Reads from the configuration how files that are written in order through a mount go to donors.
fn writing(file: &ConfigFile) -> Result<WriteOptions, Failure> {
    let default = WriteOptions::default();
    let protocol = file.text("write-protocol").map(str::parse).transpose();
    let protocol = protocol.map_err(|why: String| {
        let what = format!("`write-protocol` in the configuration: {why}");
        Failure::new(ErrorKind::Usage, code::BAD_SETTINGS, what)
            .hint("`potluck mount --help` tells what each of them does")
    })?;
    let close = file.text("close").map(str::parse).transpose();
    let close = close.map_err(|why: String| {
        let what = format!("`close` in the configuration: {why}");
        Failure::new(ErrorKind::Usage, code::BAD_SETTINGS, what)
            .hint("`potluck mount --help` tells what each of them does")
    })?;
    Ok(WriteOptions {
        protocol: protocol.unwrap_or(default.protocol),
        window: file.size("write-window").unwrap_or(default.window),
        temporary_size: file.size("temporary-size").unwrap_or(default.temporary_size),
        close: close.unwrap_or(default.close),
    })
}

/// Splits a setting that is a list with commas; nothing gives an empty list.
pub fn list(text: Option<String>) -> Vec<String> {
    text.iter().flat_map(|text| text.split(',')).map(str::to_owned).collect()
}

/// Loads the identity in `dir`.
pub fn load_identity(dir: &Path) -> Result<Identity, Failure> {
    Identity::load(dir).map_err(|error| {
        let what = format!("cannot use the identity in {}: {error}", dir.display());
        Failure::new(ErrorKind::Auth, code::NOT_A_MEMBER, what)
            .hint("bring its files back from a copy; if they are lost, move that directory away and join as a new member (`potluck invite` makes a token): a donor then takes its store over with `potluck lend DIR --adopt-store`")
    })
}

/// Makes a caller of the manager of an identity's pool, which does not follow a manager that moved.
pub fn caller(identity: &Identity) -> Result<Caller, Failure> {
    Ok(Caller::new(Env::system().net, dial(identity)?, identity.about.manager.clone()))
}

fn dial(identity: &Identity) -> Result<Arc<TlsDial>, Failure> {
    let dial = TlsDial::member(identity).map_err(|why| {
        Failure::new(
            ErrorKind::Auth,
            code::NOT_A_MEMBER,
            format!("the identity is unusable: {why}"),
        )
        .hint("bring its files back from a copy, or move that directory away and join as a new member")
    })?;
    Ok(Arc::new(dial))
}

/// Makes a caller of the manager of an identity's pool, which finds a manager that moved by the guide beside the
/// identity in `dir`.
pub fn guided(identity: &Identity, dir: &Path) -> Result<Caller, Failure> {
    let (net, dial) = (Env::system().net, dial(identity)?);
    let guide = Guide::open(Arc::clone(&net), identity.pool(), identity.ca.clone(), dir);
    Ok(Caller::guided(net, dial, &identity.about.manager, guide))
}

/// A pool that this user joined.
#[derive(Debug, Clone)]
pub struct JoinedPool {
    /// The directory of the identity.
    pub dir: PathBuf,
    /// The pool and the member that the identity belongs to.
    pub about: About,
    /// The fingerprint of the pool's first CA, which identifies the pool.
    pub id: Digest,
}

impl JoinedPool {
    /// Loads the identity in `dir`, if one is there that can be used.
    pub fn load(dir: &Path) -> Option<Self> {
        let load = Identity::exists(dir).then(|| Identity::load(dir))?;
        let unusable = |why| tracing::warn!("the identity in {} is unusable: {why}", dir.display());
        let identity = load.map_err(unusable).ok()?;
        Some(Self { dir: dir.into(), id: identity.pool(), about: identity.about })
    }

    /// Returns the pool's name with a part of its fingerprint, which no other pool has.
    fn full_name(&self) -> String {
        format!("{}-{}", self.about.pool, self.id.short())
    }
}

/// Loads the identities directly below `pools`, in the order of their directories' names.
pub fn joined(pools: &Path) -> Vec<JoinedPool> {
    let entries = std::fs::read_dir(pools).into_iter().flatten().flatten();
    // A directory with a hidden name belongs to a join that is not finished.
    let whole = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    let mut dirs: Vec<_> = whole.map(|entry| entry.path()).collect();
    dirs.sort();
    dirs.iter().filter_map(|dir| JoinedPool::load(dir)).collect()
}

/// Returns the directory of the pool whose name, or full name, is `name`.
fn pick(own: Vec<JoinedPool>, name: &str) -> Result<PathBuf, Failure> {
    let by = |is: &dyn Fn(&JoinedPool) -> bool| -> Vec<JoinedPool> {
        own.iter().filter(|own| is(own)).cloned().collect()
    };
    let exact = by(&|own| own.full_name() == name);
    let found = if exact.is_empty() { by(&|own| own.about.pool == name) } else { exact };
    match &found[..] {
        [one] => Ok(one.dir.clone()),
        [] => Err(unknown(name, "is no pool that you joined")),
        several => {
            let what =
                format!("you have joined several pools called “{name}”: {}", listed(several));
            Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                .hint(format!("say which: --pool {}", several[0].full_name())))
        }
    }
}

fn unknown(named: &str, what: &str) -> Failure {
    Failure::new(ErrorKind::NotFound, code::NOT_A_MEMBER, format!("“{named}” {what}"))
        .hint("join it with `potluck join -`, or look in the pools directory of your configuration")
}

fn listed(own: &[JoinedPool]) -> String {
    let one = |own: &JoinedPool| {
        let About { manager, role, name, .. } = &own.about;
        format!("{} ({role} “{name}”, manager at {manager})", own.full_name())
    };
    own.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::ids::MemberId;

    #[test]
    fn pools_of_one_name_are_told_apart_by_their_authority() {
        let pool = |name: &str, id: u8| JoinedPool {
            dir: PathBuf::from(format!("/{name}/{id}")),
            about: About {
                pool: name.into(),
                pool_id: Digest([id; 32]),
                manager: "lab:7700".parse().expect("an address"),
                member: MemberId(2),
                role: Role::User,
                name: "ada".into(),
            },
            id: Digest([id; 32]),
        };
        let own = || vec![pool("pool", 1), pool("pool", 2), pool("lab", 3)];
        assert_eq!(pick(own(), "lab"), Ok("/lab/3".into()));
        assert_eq!(pick(own(), "lab-03030303"), Ok("/lab/3".into()));
        assert_eq!(pick(own(), "pool-02020202"), Ok("/pool/2".into()));
        let why = pick(own(), "pool").expect_err("two of them");
        assert_eq!(why.kind, ErrorKind::Usage);
        assert!(why.message.contains("pool-01010101") && why.message.contains("pool-02020202"));
        assert_eq!(pick(own(), "nope").expect_err("none").kind, ErrorKind::NotFound);
    }
}
