//! `potluck service`: installs, shows and removes daemons as services of systemd.

use super::Ending;
use super::lend::absolute;
use crate::args::{ServiceArgs, ServiceInstallArgs, ServicePlaceArgs, ServiceUninstallArgs};
use crate::command_settings::CommandSettings;
use crate::keys::{self, Daemon};
use crate::output::Output;
use crate::running;
use crate::settings_file::SettingsFile;
use crate::systemd::{self, ROLES, Scope, UnitFile, UnitPlace, UnitRole, call, file_failed};
use potluck_config::user_settings::SYSTEM_STATE;
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long a daemon may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

pub async fn run(
    args: ServiceArgs,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    match args {
        ServiceArgs::Install(args) => install(args, settings, output),
        ServiceArgs::Status(args) => status(&place(&args, settings)?, output).await,
        ServiceArgs::Uninstall(args) => uninstall(&args, settings, output),
    }
}

fn place(args: &ServicePlaceArgs, settings: &CommandSettings) -> Result<UnitPlace, Failure> {
    let scope = match (args.system, args.user) {
        (true, _) => Scope::System,
        (_, true) => Scope::User,
        _ if rustix::process::geteuid().is_root() => Scope::System,
        _ => Scope::User,
    };
    let root = args.root.as_deref().map(absolute).transpose()?;
    Ok(UnitPlace::new(scope, root, settings))
}

#[derive(Debug, Serialize)]
struct Installed {
    unit: &'static str,
    scope: Scope,
    files: Vec<UnitFile>,
    /// Whether systemd was told to start it.
    started: bool,
}

fn install(
    args: ServiceInstallArgs,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let place = place(&args.place, settings)?;
    let role = args.role.map_or_else(|| role_of(&place), Ok)?;
    let program =
        std::env::current_exe().map_err(|why| file_failed("find", Path::new("potluck"), &why))?;
    let dir = args.dir.as_deref().map(absolute).transpose()?;
    if args.print {
        let mut files = place.files(role, &program, &place.written(role)?)?;
        if let Some(dir) = &dir {
            output
                .note(&format!("{} would be lent, and be writable for the service", dir.display()));
        }
        let printed = Installed {
            unit: role.unit(),
            scope: place.scope,
            files: std::mem::take(&mut files),
            started: false,
        };
        output.result(&printed, |printed| {
            let text = |file: &UnitFile| format!("# {}\n{}", file.path.display(), file.text);
            printed.files.iter().map(text).collect::<Vec<_>>().join("\n")
        });
        return Ok(Ending::Done);
    }
    place.needs_systemd()?;
    for daemon in role.daemons() {
        make_state(&place, role, *daemon)?;
    }
    let (mut written, doubtful): (Vec<_>, Vec<_>) =
        place.written(role)?.into_iter().partition(|path| is_vouched_for(&place, role, path));
    if let Some(dir) = &dir {
        if !role.daemons().contains(&Daemon::Donor) {
            let what = "a manager lends nothing: --dir is for `lend` and `up`";
            return Err(
                Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what).hint("leave --dir out")
            );
        }
        SettingsFile::edit(Daemon::Donor, &place.here(&place.state_of(Daemon::Donor)), |file| {
            file.lend(dir);
            Ok(())
        })?;
    }
    written.extend(dir.clone().filter(|dir| !written.contains(dir)));
    for path in &written {
        make_dir(&place, role, path)?;
    }
    for path in doubtful.iter().filter(|path| Some(*path) != dir.as_ref()) {
        output.note(&format!(
            "warning: {} is not made writable for the service, for only its own settings name it: if that is meant, name it \
             with --dir",
            path.display()
        ));
    }
    let files = place.files(role, &program, &written)?;
    for file in &files {
        write(&place.here(&file.path), &file.text)?;
    }
    if place.is_live() {
        place.systemctl(&["daemon-reload"])?;
        place.systemctl(&["enable", role.unit()])?;
        place.systemctl(&["restart", role.unit()])?;
    }
    let installed =
        Installed { unit: role.unit(), scope: place.scope, files, started: place.is_live() };
    output.result(&installed, |installed| {
        let written = installed.files.iter().map(|file| format!("wrote {}\n", file.path.display()));
        let started = match installed.started {
            true => format!("{} runs now, and after each start of the machine\n", installed.unit),
            false => {
                format!("nothing was started: that machine enables {} itself\n", installed.unit)
            }
        };
        written.collect::<String>() + &started
    });
    if place.is_live() && place.scope == Scope::User {
        linger(output);
    }
    Ok(Ending::Done)
}

/// Returns the role that fits the daemons whose state directories exist.
fn role_of(place: &UnitPlace) -> Result<UnitRole, Failure> {
    let has = |daemon| place.here(&place.state_of(daemon)).is_dir();
    match (has(Daemon::Manager), has(Daemon::Donor)) {
        (true, true) => Ok(UnitRole::Up),
        (true, false) => Ok(UnitRole::Manager),
        (false, true) => Ok(UnitRole::Lend),
        (false, false) => {
            let looked = place.state_of(Daemon::Manager);
            let looked = looked.parent().unwrap_or(&looked).display();
            let what = format!(
                "neither a manager nor a donor has its state in {looked}, so it must be said what to run"
            );
            let hint = match place.scope {
                Scope::System => {
                    "a pool that a user runs: as that user, potluck service install --user; a new one \
                     of the machine: potluck service install manager, lend, or up (both in one)"
                }
                Scope::User => "potluck service install manager, lend, or up (both in one)",
            };
            Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what).hint(hint))
        }
    }
}

/// Lets the services of the user go on after logout, which systemd does only for users who linger.
fn linger(output: &Output) {
    if call(Command::new("loginctl").arg("enable-linger")).is_ok() {
        output.note(
            "it goes on after you log out, and starts with the machine (you linger now: loginctl)",
        );
    } else {
        output.note(
            "warning: it ends when you log out. So that it goes on, and starts with the machine, run: \
             loginctl enable-linger (an admin: sudo loginctl enable-linger USER)",
        );
    }
}

/// Returns whether root may make the directory `path`, which settings of a service name, and let the service write it.
/// The service's user can write its settings, so they are not believed: the path must be the user's own already, or one
/// that the drop-in names, which is root's.
fn is_vouched_for(place: &UnitPlace, role: UnitRole, path: &Path) -> bool {
    let owner = |path: &Path| fs::symlink_metadata(path).map(|found| (found.uid(), found.is_dir()));
    let ours = rustix::process::geteuid().as_raw();
    let is_ours = |daemon: &Daemon| {
        let settings = place.here(&place.state_of(*daemon)).join(keys::FILE);
        owner(&settings).map_or(true, |(uid, _)| uid == ours)
    };
    place.scope == Scope::User
        || role.daemons().iter().all(is_ours)
        || place.lets_write(role, path)
        || user(role)
            .is_some_and(|(uid, _)| owner(&place.here(path)).is_ok_and(|it| it == (uid, true)))
}

/// Makes the state directory of a daemon. That of a system service belongs to the service's user, who is added to the
/// machine if missing; the directory above it is root's, so that no service can put another's away.
fn make_state(place: &UnitPlace, role: UnitRole, daemon: Daemon) -> Result<(), Failure> {
    let is_machines = place.is_live() && place.scope == Scope::System;
    if is_machines && user(role).is_none() {
        call(Command::new("useradd").args([
            "--system",
            "--user-group",
            "--no-create-home",
            "--home-dir",
            SYSTEM_STATE,
            "--shell",
            "/usr/sbin/nologin",
            role.user(),
        ]))?;
    }
    let dir = place.state_of(daemon);
    if place.scope == Scope::System {
        let above = place.here(Path::new(SYSTEM_STATE));
        let failed = |why: std::io::Error| file_failed("make", Path::new(SYSTEM_STATE), &why);
        fs::create_dir_all(&above).map_err(failed)?;
        if is_machines {
            std::os::unix::fs::chown(&above, Some(0), Some(0)).map_err(failed)?;
        }
        fs::set_permissions(&above, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    } else if let Some(above) = dir.parent() {
        make_dir(place, role, above)?;
    }
    make_dir(place, role, &dir)?;
    // Root may have made files there before, such as an identity by `potluck join`, which the service's user must read.
    // Only files of root with one name are given away, and no link is followed: the user may have put others there.
    if is_machines {
        let owner = format!("{0}:{0}", role.user());
        let mut find = Command::new("find");
        find.arg(&dir).args(["-xdev", "-user", "root", "(", "-type", "d", "-o", "-type", "f"]);
        find.args(["-links", "1", ")", "-execdir", "chown", "-h", &owner, "{}", "+"]);
        call(&mut find)?;
    }
    Ok(())
}

/// Makes a directory that a service writes. For a system service, an empty directory is given to the service's user,
/// and one that holds anything keeps its owner.
fn make_dir(place: &UnitPlace, role: UnitRole, path: &Path) -> Result<(), Failure> {
    let here = place.here(path);
    let failed = |why: std::io::Error| file_failed("make", path, &why);
    if !here.exists() {
        if let Some(above) = here.parent() {
            fs::create_dir_all(above).map_err(failed)?;
        }
        fs::DirBuilder::new().mode(0o700).create(&here).map_err(failed)?;
    }
    let is_empty = fs::read_dir(&here).is_ok_and(|mut entries| entries.next().is_none());
    if let (true, true, Some((uid, gid))) = (is_empty, place.scope == Scope::System, user(role)) {
        std::os::unix::fs::lchown(&here, Some(uid), Some(gid)).map_err(failed)?;
    }
    Ok(())
}

/// Returns the user and group number of the service's user on this machine, if there is one.
fn user(role: UnitRole) -> Option<(u32, u32)> {
    let known = fs::read_to_string("/etc/passwd").ok()?;
    let mut lines = known.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let fields = lines.find(|fields| fields.first() == Some(&role.user()))?;
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |why: std::io::Error| file_failed("write", path, &why);
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
    fs::write(path, text).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).map_err(failed)
}

/// The facts known about one service.
#[derive(Debug, Serialize)]
struct Known {
    unit: &'static str,
    /// The state of the unit in systemd's words: `active`, `inactive`, `failed` …; `null` where systemd does
    /// not run.
    active: Option<String>,
    /// The unit's file state in systemd's words: `enabled` if it starts with the machine.
    enabled: Option<String>,
    daemons: Vec<KnownDaemon>,
}

#[derive(Debug, Serialize)]
struct KnownDaemon {
    daemon: &'static str,
    state: PathBuf,
    pid: Option<u32>,
    address: Option<SocketAddr>,
    /// Whether a connection to the address succeeds.
    answers: bool,
}

#[derive(Debug, Serialize)]
struct ServiceReport {
    scope: Scope,
    services: Vec<Known>,
}

async fn status(place: &UnitPlace, output: &Output) -> Result<Ending, Failure> {
    let mut services = Vec::new();
    for role in ROLES.into_iter().filter(|role| place.is_installed(*role)) {
        let told = match place.is_live() && place.needs_systemd().is_ok() {
            true => {
                let wanted = "--property=ActiveState,UnitFileState";
                place.systemctl(&["show", wanted, role.unit()])?
            }
            false => String::new(),
        };
        let told: BTreeMap<_, _> = told.lines().filter_map(|line| line.split_once('=')).collect();
        let told = |name| told.get(name).map(|text: &&str| (*text).to_owned());
        let mut daemons = Vec::new();
        for daemon in role.daemons() {
            daemons.push(look_at(place, *daemon).await);
        }
        let (active, enabled) = (told("ActiveState"), told("UnitFileState"));
        services.push(Known { unit: role.unit(), active, enabled, daemons });
    }
    let well = services.iter().flat_map(|service| &service.daemons).all(|daemon| daemon.answers);
    output.result(&ServiceReport { scope: place.scope, services }, report);
    Ok(if well { Ending::Done } else { Ending::Partial })
}

async fn look_at(place: &UnitPlace, daemon: Daemon) -> KnownDaemon {
    let state = place.here(&place.state_of(daemon));
    let said = running::find(&state).ok().flatten();
    let address = said.as_ref().and_then(|said| said.address);
    let answers = match address {
        Some(address) => answers(address).await,
        None => false,
    };
    let pid = said.map(|said| said.pid);
    KnownDaemon { daemon: daemon.name(), state, pid, address, answers }
}

async fn answers(mut address: SocketAddr) -> bool {
    if address.ip().is_unspecified() {
        address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let (net, address) = (Env::system().net, address.to_string());
    tokio::time::timeout(CONNECT_TIMEOUT, net.connect(&address))
        .await
        .is_ok_and(|stream| stream.is_ok())
}

fn report(report: &ServiceReport) -> String {
    if report.services.is_empty() {
        return "no service of Potluck is installed: potluck service install".into();
    }
    let mut text = String::new();
    for service in &report.services {
        let or_unknown = |told: &Option<String>| told.clone().unwrap_or_else(|| "unknown".into());
        let (active, enabled) = (or_unknown(&service.active), or_unknown(&service.enabled));
        text += &format!("{}: {active}, {enabled}\n", service.unit);
        for daemon in &service.daemons {
            let at = daemon.address.map_or(String::new(), |address| format!(" at {address}"));
            let how = match (daemon.pid, daemon.answers) {
                (None, _) => "does not run".to_owned(),
                (Some(pid), true) => format!("answers{at} (process {pid})"),
                (Some(pid), false) => format!("does not answer{at} (process {pid})"),
            };
            text +=
                &format!("  {} {how}; its state is in {}\n", daemon.daemon, daemon.state.display());
        }
    }
    text
}

#[derive(Debug, Serialize)]
struct Uninstalled {
    units: Vec<&'static str>,
    removed: Vec<PathBuf>,
    /// The state directories, and others that the daemons write, that still exist.
    kept: Vec<PathBuf>,
}

fn uninstall(
    args: &ServiceUninstallArgs,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let place = place(&args.place, settings)?;
    let wanted = |role: &UnitRole| args.role.is_none_or(|wanted| wanted == *role);
    let roles: Vec<_> =
        ROLES.into_iter().filter(|role| wanted(role) && place.is_installed(*role)).collect();
    if roles.is_empty() {
        let what = "no such service is installed";
        return Err(Failure::new(ErrorKind::NotFound, code::BAD_REQUEST, what)
            .hint("`potluck service status` shows those that are; --user and --system say whose"));
    }
    if !args.dry_run {
        place.needs_systemd()?;
    }
    let mut done = Uninstalled { units: Vec::new(), removed: Vec::new(), kept: Vec::new() };
    for role in roles {
        done.units.push(role.unit());
        done.kept.extend(role.daemons().iter().map(|daemon| place.state_of(*daemon)));
        done.kept.extend(place.written(role)?);
        if !args.dry_run {
            done.removed.extend(systemd::uninstall(&place, role)?);
        }
    }
    done.kept.retain(|path| place.here(path).exists());
    output.result(&done, |done| {
        let verb = if args.dry_run { "would stop and remove" } else { "stopped and removed" };
        let list = |paths: &[PathBuf]| {
            paths.iter().map(|path| format!("  {}\n", path.display())).collect::<String>()
        };
        let mut text = format!("{verb} {}\n{}", done.units.join(", "), list(&done.removed));
        if !done.kept.is_empty() {
            text += "what its daemons keep is still there:\n";
            text += &list(&done.kept);
        }
        text
    });
    Ok(Ending::Done)
}
