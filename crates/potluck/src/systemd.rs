//! Daemons as services of systemd: which units there are, where they go, and what they may write.
//!
//! The units stand in packaging/systemd, for packages install them, too. What differs from machine to
//! machine is in a drop-in beside them: where the program is, and which directories are lent.

use crate::command_settings::CommandSettings;
use crate::keys::{self, Daemon};
use crate::settings_file::SettingsFile;
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory in which a system's services keep their state.
pub const SYSTEM_STATE: &str = "/var/lib/potluck";
/// Whom they run as.
pub const SYSTEM_USER: &str = "potluck";
/// A directory that is there while systemd runs the machine.
const SYSTEMD_RUNS: &str = "/run/systemd/system";

/// The daemons that a service runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum UnitRole {
    /// The manager alone
    Manager,
    /// The donor
    Lend,
    /// Manager and donor in one process
    Up,
}

/// The daemons of all services, manager first.
pub const ROLES: [UnitRole; 3] = [UnitRole::Manager, UnitRole::Lend, UnitRole::Up];

impl UnitRole {
    /// Returns the name of the systemd unit.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Manager => "potluck-manager.service",
            Self::Lend => "potluck-lend.service",
            Self::Up => "potluck-up.service",
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Self::Manager => "manager",
            Self::Lend => "lend",
            Self::Up => "up",
        }
    }

    /// The daemons in it.
    pub fn daemons(self) -> &'static [Daemon] {
        match self {
            Self::Manager => &[Daemon::Manager],
            Self::Lend => &[Daemon::Donor],
            Self::Up => &[Daemon::Manager, Daemon::Donor],
        }
    }

    fn template(self, scope: Scope) -> &'static str {
        macro_rules! unit {
            ($path:literal) => {
                include_str!(concat!("../../../packaging/systemd/", $path))
            };
        }
        match (scope, self) {
            (Scope::System, Self::Manager) => unit!("system/potluck-manager.service"),
            (Scope::System, Self::Lend) => unit!("system/potluck-lend.service"),
            (Scope::System, Self::Up) => unit!("system/potluck-up.service"),
            (Scope::User, Self::Manager) => unit!("user/potluck-manager.service"),
            (Scope::User, Self::Lend) => unit!("user/potluck-lend.service"),
            (Scope::User, Self::Up) => unit!("user/potluck-up.service"),
        }
    }
}

/// The owner of a service: the machine or a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The machine's: it starts with the machine, as a user of its own.
    System,
    /// The services of one user.
    User,
}

/// Where the services of one scope are, below another root in tests and images.
#[derive(Debug, Clone)]
pub struct UnitPlace {
    pub scope: Scope,
    root: Option<PathBuf>,
    units: PathBuf,
    state: PathBuf,
}

/// A file of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnitFile {
    pub path: PathBuf,
    pub text: String,
}

impl UnitPlace {
    /// The place of `scope`, below `root` if given.
    pub fn new(scope: Scope, root: Option<PathBuf>, settings: &CommandSettings) -> Self {
        let (units, state) = match scope {
            Scope::System => ("/etc/systemd/system".into(), SYSTEM_STATE.into()),
            Scope::User => {
                let config = settings.config_dir.parent().unwrap_or(&settings.config_dir);
                (config.join("systemd/user"), settings.state_dir.clone())
            }
        };
        Self { scope, root, units, state }
    }

    /// Whether systemd is to be told of changes.
    fn has_systemd(&self) -> bool {
        self.is_live() && Path::new(SYSTEMD_RUNS).exists()
    }

    /// Whether it is the machine that runs here, and not a directory that will be one.
    pub fn is_live(&self) -> bool {
        self.root.is_none()
    }

    /// A path of that machine as it is reached here.
    pub fn here(&self, path: &Path) -> PathBuf {
        match &self.root {
            Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_owned(),
        }
    }

    /// The state directory of a daemon, as its machine names it.
    pub fn state_of(&self, daemon: Daemon) -> PathBuf {
        self.state.join(daemon.name())
    }

    fn unit(&self, role: UnitRole) -> PathBuf {
        self.units.join(role.unit())
    }

    fn drop_in(&self, role: UnitRole) -> PathBuf {
        self.units.join(format!("{}.d/potluck.conf", role.unit()))
    }

    /// Whether a package brought the unit.
    fn is_packaged(&self, role: UnitRole) -> bool {
        let dir = match self.scope {
            Scope::System => "/usr/lib/systemd/system",
            Scope::User => "/usr/lib/systemd/user",
        };
        self.here(&Path::new(dir).join(role.unit())).exists()
    }

    /// Whether the service is installed, by a command here and not merely by a package.
    pub fn is_installed(&self, role: UnitRole) -> bool {
        self.here(&self.unit(role)).exists() || self.here(&self.drop_in(role)).exists()
    }

    /// Returns the paths that the daemons of `role` write beside their state, as their settings say.
    pub fn written(&self, role: UnitRole) -> Result<Vec<PathBuf>, Failure> {
        let mut written = Vec::new();
        for daemon in role.daemons() {
            let file = SettingsFile::read(*daemon, &self.here(&self.state_of(*daemon)))?;
            match daemon {
                Daemon::Manager => {
                    let key = keys::key("manager.backup-dir");
                    written.extend(file.set_to(key).map(PathBuf::from));
                }
                Daemon::Donor => written.extend(file.lent()),
            }
        }
        Ok(written)
    }

    /// The files of a service that runs `program`.
    pub fn files(&self, role: UnitRole, program: &Path) -> Result<Vec<UnitFile>, Failure> {
        let mut files = Vec::new();
        if !self.is_packaged(role) {
            let text = role.template(self.scope).to_owned();
            files.push(UnitFile { path: self.unit(role), text });
        }
        let text = self.drop_in_text(role, program, &self.written(role)?)?;
        files.push(UnitFile { path: self.drop_in(role), text });
        Ok(files)
    }

    fn drop_in_text(
        &self,
        role: UnitRole,
        program: &Path,
        written: &[PathBuf],
    ) -> Result<String, Failure> {
        let mut text = "# Written by `potluck service install`; run it again when other directories are lent.\n\
                        [Service]\n"
            .to_owned();
        let mut add = |line: String| writeln!(text, "{line}").expect("a string takes it");
        add("ExecStart=".into());
        // In a command `$` begins a variable, so it is doubled.
        add(format!("ExecStart={} -v {}", quoted(program)?.replace('$', "$$"), role.verb()));
        match self.scope {
            // These are a user's own directories, where they are not the usual ones.
            Scope::User => {
                let parent = self.state.parent().unwrap_or(&self.state);
                add(format!(
                    "Environment={}",
                    quoted_text(&format!("XDG_STATE_HOME={}", shown(parent)?))
                ));
            }
            Scope::System => {
                for path in written {
                    // `-`: a disk that is not mounted holds up nothing but itself.
                    let lies_in_a_home =
                        ["/home", "/root", "/run/user"].iter().any(|home| path.starts_with(home));
                    match lies_in_a_home {
                        true => add(format!("BindPaths=-{}", quoted(path)?)),
                        false => add(format!("ReadWritePaths=-{}", quoted(path)?)),
                    }
                }
            }
        }
        Ok(text)
    }

    /// Removes the files of a service; gives those that were there.
    pub fn remove(&self, role: UnitRole) -> Result<Vec<PathBuf>, Failure> {
        let mut removed = Vec::new();
        for path in [self.unit(role), self.drop_in(role)] {
            match fs::remove_file(self.here(&path)) {
                Ok(()) => removed.push(path.clone()),
                Err(why) if why.kind() == io::ErrorKind::NotFound => {}
                Err(why) => return Err(file_failed("remove", &path, &why)),
            }
        }
        let dir = self.drop_in(role);
        // This fails if there are drop-ins of others.
        let _ = dir.parent().map(|dir| fs::remove_dir(self.here(dir)));
        Ok(removed)
    }

    /// Calls `systemctl` for this scope, and gives what it printed.
    pub fn systemctl(&self, args: &[&str]) -> Result<String, Failure> {
        let mut command = Command::new("systemctl");
        if self.scope == Scope::User {
            command.arg("--user");
        }
        call(command.args(args))
    }

    /// Refuses where no systemd runs.
    pub fn needs_systemd(&self) -> Result<(), Failure> {
        if !self.is_live() || self.has_systemd() {
            return Ok(());
        }
        let what = "systemd does not run this machine, so there are no services to manage";
        Err(Failure::new(ErrorKind::Usage, code::LOCAL_IO, what)
            .hint("let what starts daemons here run `potluck lend` or `potluck manager`; --print shows a unit"))
    }
}

/// Where services run the donor whose state is in `state`: those of this user, or of the system.
pub fn of_donor(state: &Path, settings: &CommandSettings) -> Option<UnitPlace> {
    let places = [Scope::User, Scope::System].map(|scope| UnitPlace::new(scope, None, settings));
    places.into_iter().find(|place| place.state_of(Daemon::Donor) == state)
}

/// Takes the service of `role` away: stopped, disabled, its files removed. What its daemons keep, stays.
/// Gives the files that were removed.
pub fn uninstall(place: &UnitPlace, role: UnitRole) -> Result<Vec<PathBuf>, Failure> {
    if place.has_systemd() {
        place.systemctl(&["disable", "--now", role.unit()])?;
    }
    let removed = place.remove(role)?;
    if place.has_systemd() {
        place.systemctl(&["daemon-reload"])?;
    }
    Ok(removed)
}

/// Calls a program of the system, and gives what it printed.
pub fn call(command: &mut Command) -> Result<String, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |why: String| {
        Failure::new(ErrorKind::Other, code::LOCAL_IO, format!("{name} failed: {why}"))
            .hint("a service of the system needs root: sudo potluck service …")
    };
    let output = command.output().map_err(|why| failed(why.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Says that a file could not be written or removed.
pub fn file_failed(doing: &str, path: &Path, why: &io::Error) -> Failure {
    let what = format!("cannot {doing} {}: {why}", path.display());
    Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
        .hint("a service of the system needs root: sudo potluck service …; one of yours: --user")
}

fn shown(path: &Path) -> Result<&str, Failure> {
    path.to_str().filter(|text| !text.contains(char::is_control)).ok_or_else(|| {
        let what = format!("{} cannot be named in a unit", path.display());
        Failure::new(ErrorKind::Usage, code::LOCAL_IO, what).hint("use a path in plain UTF-8")
    })
}

/// A path as a unit has it.
fn quoted(path: &Path) -> Result<String, Failure> {
    Ok(quoted_text(shown(path)?))
}

fn quoted_text(text: &str) -> String {
    // `%` begins a specifier, so it is doubled.
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    format!("\"{text}\"")
}
