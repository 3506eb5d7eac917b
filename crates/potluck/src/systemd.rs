//! Daemons as services of systemd: the units, their places, and the directories that they may write.
//!
//! The units are in packaging/systemd, because packages install them as well. What differs between machines is
//! in a drop-in beside them: the path of the program, and the directories that it writes.

use crate::command_settings::CommandSettings;
use crate::keys::{self, Daemon};
use crate::settings_file::SettingsFile;
use potluck_config::user_settings::SYSTEM_STATE;
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory that exists while systemd runs the machine.
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

/// All roles, in the order in which they are shown.
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

    /// Returns the user that the service of the system runs as. That of a manager alone is another one than that of a
    /// donor, which strangers reach: a donor cannot read the pool's keys.
    pub fn user(self) -> &'static str {
        match self {
            Self::Manager => "potluck-manager",
            Self::Lend | Self::Up => "potluck",
        }
    }

    /// Returns the daemons that run in the service.
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
    /// The services of the machine, which start with it and run as a user of their own.
    System,
    /// The services of one user.
    User,
}

/// The place of the services of one scope, below another root directory in tests and images.
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
    /// Returns the place of `scope`, below `root` if given.
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

    /// Returns whether the place is of this machine, and systemd runs it.
    fn has_systemd(&self) -> bool {
        self.is_live() && Path::new(SYSTEMD_RUNS).exists()
    }

    /// Returns whether the place is of this machine, and not of an image below another root.
    pub fn is_live(&self) -> bool {
        self.root.is_none()
    }

    /// Returns the path under which this process reaches a path of the place's machine.
    pub fn here(&self, path: &Path) -> PathBuf {
        match &self.root {
            Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_owned(),
        }
    }

    /// Returns the state directory of a daemon, as the place's machine names it.
    pub fn state_of(&self, daemon: Daemon) -> PathBuf {
        self.state.join(daemon.name())
    }

    fn unit(&self, role: UnitRole) -> PathBuf {
        self.units.join(role.unit())
    }

    fn drop_in(&self, role: UnitRole) -> PathBuf {
        self.units.join(format!("{}.d/potluck.conf", role.unit()))
    }

    /// Returns whether a package installed the unit.
    fn is_packaged(&self, role: UnitRole) -> bool {
        let dir = match self.scope {
            Scope::System => "/usr/lib/systemd/system",
            Scope::User => "/usr/lib/systemd/user",
        };
        self.here(&Path::new(dir).join(role.unit())).exists()
    }

    /// Returns whether a unit or drop-in was installed by `potluck service`, and not only by a package.
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

    /// Returns whether the drop-in that is there lets the service write `path`.
    pub fn lets_write(&self, role: UnitRole, path: &Path) -> bool {
        let text = fs::read_to_string(self.here(&self.drop_in(role))).unwrap_or_default();
        path_line(path).is_ok_and(|line| text.lines().any(|said| said == line))
    }

    /// Makes the files of a service that runs `program` and writes the paths `written` beside its state.
    pub fn files(
        &self,
        role: UnitRole,
        program: &Path,
        written: &[PathBuf],
    ) -> Result<Vec<UnitFile>, Failure> {
        let mut files = Vec::new();
        if !self.is_packaged(role) {
            let text = role.template(self.scope).to_owned();
            files.push(UnitFile { path: self.unit(role), text });
        }
        let text = self.drop_in_text(role, program, written)?;
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
        // `$` begins a variable in a command, so it is doubled.
        // Nobody can be asked whether a new pool is wanted, and whoever installs the service said so.
        let flags = if role == UnitRole::Lend { "" } else { " --new-pool" };
        let program = quoted(program)?.replace('$', "$$");
        add(format!("ExecStart={program} -v {}{flags}", role.verb()));
        match self.scope {
            // The service does not inherit the user's XDG_STATE_HOME.
            Scope::User => {
                let parent = self.state.parent().unwrap_or(&self.state);
                add(format!(
                    "Environment={}",
                    quoted_text(&format!("XDG_STATE_HOME={}", shown(parent)?))
                ));
            }
            Scope::System => {
                for path in written {
                    add(path_line(path)?);
                }
            }
        }
        Ok(text)
    }

    /// Removes the files of a service, and returns those that existed.
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
        // This fails if other drop-ins are there, which stay.
        let _ = dir.parent().map(|dir| fs::remove_dir(self.here(dir)));
        Ok(removed)
    }

    /// Calls `systemctl` for this scope, and returns what it printed.
    pub fn systemctl(&self, args: &[&str]) -> Result<String, Failure> {
        let mut command = Command::new("systemctl");
        if self.scope == Scope::User {
            command.arg("--user");
        }
        call(command.args(args))
    }

    /// Fails if the place is of this machine and systemd does not run it.
    pub fn needs_systemd(&self) -> Result<(), Failure> {
        if !self.is_live() || self.has_systemd() {
            return Ok(());
        }
        let what = "systemd does not run this machine, so there are no services to manage";
        Err(Failure::new(ErrorKind::Usage, code::LOCAL_IO, what)
            .hint("let what starts daemons here run `potluck lend` or `potluck manager`; --print shows a unit"))
    }
}

/// Returns the line of a drop-in that lets a service of the system write `path`. With `-` the service starts although the
/// path is missing, as on a disk that is not mounted.
fn path_line(path: &Path) -> Result<String, Failure> {
    let lies_in_a_home = ["/home", "/root", "/run/user"].iter().any(|home| path.starts_with(home));
    let key = if lies_in_a_home { "BindPaths" } else { "ReadWritePaths" };
    Ok(format!("{key}=-{}", quoted(path)?))
}

/// Returns the place of the services that run the donor whose state is in `state`: this user's, or the system's.
pub fn of_donor(state: &Path, settings: &CommandSettings) -> Option<UnitPlace> {
    let places = [Scope::User, Scope::System].map(|scope| UnitPlace::new(scope, None, settings));
    places.into_iter().find(|place| place.state_of(Daemon::Donor) == state)
}

/// Stops and disables the service of `role`, and removes and returns its files. The state of its daemons stays.
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

/// Calls a program of the system, and returns what it printed.
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

/// Makes the failure that a file could not be written or removed.
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

/// Quotes a path for a unit.
fn quoted(path: &Path) -> Result<String, Failure> {
    Ok(quoted_text(shown(path)?))
}

fn quoted_text(text: &str) -> String {
    // `%` begins a specifier in a unit, so it is doubled.
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    format!("\"{text}\"")
}
