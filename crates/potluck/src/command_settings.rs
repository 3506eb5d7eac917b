//! The settings of one command, from its flags, the environment and `config.toml`: directories, the identity
//! to act under, and how long to wait.

use crate::args::Global;
use potluck_client::{Pool, RetryLimits};
use potluck_config::config_file::ConfigFile;
use potluck_config::own_pools::load_identity;
use potluck_config::user_settings::UserSettings;
use potluck_mount::WriteOptions;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::Identity;
use potluck_wire::token::Role;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// The resolved settings of a command.
pub struct CommandSettings {
    /// The directories and the identities of the user.
    pub user: UserSettings,
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
    /// The hosts of private networks that may be asked as origins, whoever wrote them down.
    pub origins_allow: Vec<String>,
}

/// What the user has is asked of the settings of the command.
impl Deref for CommandSettings {
    type Target = UserSettings;

    fn deref(&self) -> &UserSettings {
        &self.user
    }
}

impl CommandSettings {
    /// Resolves the settings. Flags win over the environment, and that over `config.toml`.
    pub fn resolve(global: &Global) -> Result<Self, Failure> {
        let user = UserSettings::resolve(global.pool.as_deref())?;
        let file = &user.file;
        Ok(Self {
            progress: !global.no_progress && file.is_on("progress").unwrap_or(true),
            retry_limits: RetryLimits::asked(global.retry_for.or(user.retry_for())),
            spool_max: file.size("spool-max"),
            writing: writing(file)?,
            cache_max: file.size("cache-max"),
            origins_allow: file.text("origins-allow").map(origin_hosts).unwrap_or_default(),
            user,
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
        Self::donor_identity(dir)?;
        Pool::of_member(dir, self.retry_limits)
    }

    /// Makes a client that acts under this user's identity.
    pub fn client(&self) -> Result<Pool, Failure> {
        Pool::of_member(&self.identity_dir()?, self.retry_limits)
    }
}

/// Returns the hosts in a list of them, which are separated by commas.
fn origin_hosts(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|host| !host.is_empty()).map(str::to_owned).collect()
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
