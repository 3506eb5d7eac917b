//! Tests daemons under systemd: units that it understands, that keep a service to itself, and that are removed as they
//! came. Units are written below a directory of the test's own, for no test may touch the services of the machine it
//! runs on.

use super::content::arg;
use super::lab::{Cli, Lab};
use super::waiting::{has_program, skip};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROLES: [&str; 3] = ["manager", "lend", "up"];

/// Makes a machine's directory in which a donor has been told to lend two directories.
fn image(lab: &Lab) -> PathBuf {
    let root = lab.dir().join("image");
    let state = root.join("var/lib/potluck/donor");
    fs::create_dir_all(&state).expect("a directory in the test's own");
    let settings =
        "[[lend]]\ndir = \"/data/lent\"\nmax = \"1GiB\"\n\n[[lend]]\ndir = \"/home/ada/10% $x\"\n";
    fs::write(state.join("settings.toml"), settings).expect("written");
    root
}

fn service(cli: &Cli, root: &Path, args: &[&str]) -> Value {
    cli.json(&[&["service"], args, &["--system", "--root", arg(root)]].concat())
}

#[test]
fn systemd_units_verify_and_are_confined() {
    let test = "systemd_units_verify_and_are_confined";
    if !has_program("systemd-analyze") {
        return skip(test, "systemd-analyze is not here (Debian package systemd)");
    }
    let lab = Lab::empty();
    let root = image(&lab);
    for role in ROLES {
        service(&lab.cli, &root, &["install", role]);
        let user = ["--json", "service", "install", role, "--user", "--root", arg(&root)];
        lab.cli.run(&user).ok();
    }
    let user_units = files_named(&root, "potluck-up.service")
        .into_iter()
        .filter_map(|path| path.parent().map(Path::to_owned))
        .find(|dir| dir.ends_with("systemd/user"))
        .expect("units of a user");
    for (dir, scope) in [(root.join("etc/systemd/system"), "--system"), (user_units, "--user")] {
        for role in ROLES {
            let unit = dir.join(format!("potluck-{role}.service"));
            let mut verify = Command::new("systemd-analyze");
            verify.args(["verify", scope, "--man=no"]).arg(&unit);
            verify.env("SYSTEMD_UNIT_PATH", format!("{}:", dir.display()));
            verify.env("XDG_RUNTIME_DIR", lab.dir());
            let said = verify.output().expect("systemd-analyze");
            let words = String::from_utf8_lossy(&said.stderr);
            let ours = words.lines().filter(|line| line.contains("potluck"));
            assert_eq!(ours.collect::<Vec<_>>(), Vec::<&str>::new(), "{role} {scope}");
            assert!(said.status.success(), "{role} {scope}: {words}");
        }
    }
    for role in ROLES {
        let unit = root.join(format!("etc/systemd/system/potluck-{role}.service"));
        let mut security = Command::new("systemd-analyze");
        // The threshold is between 0, no exposure at all, and 100, the exposure of a daemon that is not confined.
        security.args(["security", "--offline=yes", "--threshold=20", "--no-pager"]).arg(&unit);
        let said = security.output().expect("systemd-analyze");
        let words = String::from_utf8_lossy(&said.stdout);
        assert!(said.status.success(), "{role}: {}", words.lines().last().unwrap_or_default());
    }
}

/// The unit of a user's mounts is a template; it is shipped, and enabled by its name alone.
#[test]
fn systemd_understands_the_unit_of_mounts() {
    let test = "systemd_understands_the_unit_of_mounts";
    if !has_program("systemd-analyze") {
        return skip(test, "systemd-analyze is not here (Debian package systemd)");
    }
    let lab = Lab::empty();
    let shipped =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd/user/potluck-mount@.service");
    let text = fs::read_to_string(shipped).expect("a unit");
    let program = env!("CARGO_BIN_EXE_potluck");
    let unit = lab.dir().join("potluck-mount@.service");
    fs::write(&unit, text.replace("/usr/bin/potluck", program)).expect("written");
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--user", "--man=no"]).arg(lab.dir().join("potluck-mount@lab.service"));
    verify.env("SYSTEMD_UNIT_PATH", format!("{}:", lab.dir().display()));
    verify.env("XDG_RUNTIME_DIR", lab.dir());
    let said = verify.output().expect("systemd-analyze");
    let words = String::from_utf8_lossy(&said.stderr);
    let ours = words.lines().filter(|line| line.contains("potluck"));
    assert_eq!(ours.collect::<Vec<_>>(), Vec::<&str>::new());
    assert!(said.status.success(), "{words}");
    assert!(
        !text.lines().any(|line| line.starts_with("NoNewPrivileges")),
        "fusermount3 needs them"
    );
}

fn files_named(dir: &Path, name: &str) -> Vec<PathBuf> {
    let found = super::lent::all_files(dir);
    found.into_iter().filter(|path| path.file_name().is_some_and(|it| it == name)).collect()
}

#[test]
fn a_service_may_write_what_it_lends_and_nothing_else() {
    let lab = Lab::empty();
    let root = image(&lab);
    let installed = service(&lab.cli, &root, &["install"]);
    assert_eq!(installed["unit"], "potluck-lend.service", "only a donor has its state there");
    assert_eq!(installed["started"], false);
    let drop_in = root.join("etc/systemd/system/potluck-lend.service.d/potluck.conf");
    let text = fs::read_to_string(drop_in).expect("a drop-in");
    assert!(text.contains("ReadWritePaths=-\"/data/lent\"\n"), "{text}");
    // A directory that lies in a home is hidden by default, and shown alone.
    assert!(text.contains("BindPaths=-\"/home/ada/10%% $x\"\n"), "{text}");
    assert!(root.join("data/lent").is_dir(), "made, for the service could not make it");
    let unit = root.join("etc/systemd/system/potluck-lend.service");
    let unit = fs::read_to_string(unit).expect("a unit");
    for line in ["User=potluck", "ProtectSystem=strict", "ProtectHome=tmpfs", "CPUWeight=idle"] {
        assert!(unit.lines().any(|said| said == line), "{line} in {unit}");
    }
    assert!(unit.contains("ExecReload=/bin/kill -HUP $MAINPID"), "{unit}");
    // The manager's keys are another user's, in another directory.
    service(&lab.cli, &root, &["install", "manager"]);
    let manager = root.join("etc/systemd/system/potluck-manager.service");
    let manager = fs::read_to_string(manager).expect("a unit");
    for (text, user, state) in
        [(&unit, "potluck", "potluck/donor"), (&manager, "potluck-manager", "potluck/manager")]
    {
        for line in [format!("User={user}"), format!("StateDirectory={state}")] {
            assert!(text.lines().any(|said| said == line), "{line} in {text}");
        }
    }
    let above = fs::metadata(root.join("var/lib/potluck")).expect("made").permissions();
    assert_eq!(above.mode() & 0o777, 0o755, "no service owns what is above the state of both");
    // A package's own unit is used, and only what is this machine's is written.
    let packaged = root.join("usr/lib/systemd/system/potluck-lend.service");
    fs::create_dir_all(packaged.parent().expect("a directory")).expect("made");
    fs::write(packaged, unit).expect("written");
    let again = service(&lab.cli, &root, &["install", "lend", "--print"]);
    assert_eq!(again["files"].as_array().map(Vec::len), Some(1), "{again}");
}

#[test]
fn root_creates_nothing_named_by_service_settings() {
    let test = "root_creates_nothing_named_by_service_settings";
    let lab = Lab::empty();
    let root = image(&lab);
    let settings = root.join("var/lib/potluck/donor/settings.toml");
    // The settings are somebody else's than who installs the service.
    if std::os::unix::fs::chown(&settings, Some(12_345), None).is_err() {
        return skip(test, "giving a file to another user needs root");
    }
    let install = ["service", "install", "lend", "--system", "--root", arg(&root)];
    let ran = lab.cli.run(&install).ok();
    assert!(ran.stderr.contains("/data/lent is not made writable"), "{}", ran.stderr);
    assert!(!root.join("data/lent").exists() && !root.join("home").exists());
    let drop_in = root.join("etc/systemd/system/potluck-lend.service.d/potluck.conf");
    let text = || fs::read_to_string(&drop_in).expect("a drop-in");
    assert!(!text().contains("/data/lent") && !text().contains("/home/ada"), "{}", text());
    // Root names one, and the next install keeps it, though the settings are not root's.
    service(&lab.cli, &root, &["install", "lend", "--dir", "/data/lent"]);
    assert!(root.join("data/lent").is_dir());
    std::os::unix::fs::chown(&settings, Some(12_345), None).expect("given away again");
    service(&lab.cli, &root, &["install", "lend"]);
    assert!(text().contains("ReadWritePaths=-\"/data/lent\"\n"), "{}", text());
    assert!(!text().contains("/home/ada"), "{}", text());
}

#[test]
fn service_removal_names_kept_state() {
    let lab = Lab::empty();
    let root = image(&lab);
    let printed = service(&lab.cli, &root, &["install", "lend", "-n"]);
    assert_eq!(printed["files"].as_array().map(Vec::len), Some(2), "{printed}");
    assert!(!root.join("etc").exists(), "printed, not written");
    assert_eq!(service(&lab.cli, &root, &["status"])["services"], Value::Array(vec![]));

    service(&lab.cli, &root, &["install", "lend"]);
    let status = lab.cli.run(&["--json", "service", "status", "--system", "--root", arg(&root)]);
    let status = status.exits(4).json();
    let daemon = &status["services"][0]["daemons"][0];
    assert_eq!(
        (&daemon["daemon"], &daemon["answers"]),
        (&"donor".into(), &false.into()),
        "{status}"
    );

    let would = service(&lab.cli, &root, &["uninstall", "-n"]);
    assert_eq!(would["units"][0], "potluck-lend.service");
    assert!(root.join("etc/systemd/system/potluck-lend.service").exists(), "a dry run");
    let done = service(&lab.cli, &root, &["uninstall"]);
    assert_eq!(done["removed"].as_array().map(Vec::len), Some(2), "{done}");
    let kept: Vec<_> = done["kept"].as_array().expect("a list").iter().collect();
    assert_eq!(kept.len(), 3, "the state and two lent directories: {kept:?}");
    assert_eq!(super::lent::all_files(&root.join("etc")), Vec::<PathBuf>::new());
    let why = lab.cli.fails(3, &["service", "uninstall", "--system", "--root", arg(&root)]);
    assert!(why.hint.contains("service status"), "{why:?}");
}

#[test]
fn service_install_without_systemd_writes_nothing() {
    if Path::new("/run/systemd/system").exists() {
        return skip("service_install_without_systemd_writes_nothing", "systemd runs here");
    }
    let lab = Lab::empty();
    let why = lab.cli.fails(2, &["service", "install", "up", "--user"]);
    assert!(why.message.contains("systemd does not run"), "{why:?}");
    // The command tells where it looked for what to run, and where else that may be.
    let why = lab.cli.fails(2, &["service", "install", "--system", "--root", arg(lab.dir())]);
    assert!(why.message.contains("/var/lib/potluck"), "{why:?}");
    assert!(why.hint.contains("service install --user"), "{why:?}");
    assert!(!lab.dir().join("home/state/potluck").exists());
    assert_eq!(files_named(lab.dir(), "potluck-up.service"), Vec::<PathBuf>::new());
}
