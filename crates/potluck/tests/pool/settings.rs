//! Tests that settings told to daemons are kept, can be changed while they run, and come from nowhere else.

use super::content::{arg, file};
use super::lab::{Cli, Lab, Lending, start_daemon, stop};
use super::program::Running;
use super::waiting::{DEADLINE, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

const GIB: u64 = 1 << 30;

/// Returns what `potluck set KEY` shows of the daemon whose state is in `state`.
fn shown(cli: &Cli, state: &Path, key: &str) -> Value {
    let shown = cli.json(&["set", key, "--state", arg(state)]);
    shown["settings"][0].clone()
}

/// Returns a user who has joined nothing, for daemons that are started by hand.
fn nobody(lab: &Lab) -> Cli {
    lab.cli.at_home(&lab.dir().join("nobody"))
}

/// Starts a donor with nothing but its state directory.
fn start_bare(lab: &Lab, name: &str) -> (Running, String) {
    let state = lab.donor_state(name);
    start_daemon(&nobody(lab), lab.dir(), name, &["lend", "--state", arg(&state)])
}

#[test]
fn donor_settings_persist_across_restarts() {
    let mut lab = Lab::manager_only(&[]);
    let options = ["--label", "room-1", "--away", "3d"].map(str::to_owned).to_vec();
    lab.lend("a", Lending { max: "2GiB".into(), options, ..Lending::default() });
    lab.wait_live();
    let state = lab.donor_state("a");
    assert_eq!(lab.cli.donor("a")["label"], "room-1");
    assert_eq!(shown(&lab.cli, &state, "lend.away")["value"], "3d");
    assert_eq!(shown(&lab.cli, &state, "lend.scrub-every")["set"], false, "nobody said that");

    lab.kill_donor("a");
    let (mut running, address) = start_bare(&lab, "a");
    wait_until("the donor at its new address", DEADLINE, || {
        let donor = lab.cli.donor("a");
        donor["addresses"][0] == address.as_str() && donor["state"] == "live"
    });
    let donor = lab.cli.donor("a");
    assert_eq!(donor["label"], "room-1");
    assert!(donor["room"].as_u64() > Some(GIB), "of 2 GiB: {donor}");
    assert_eq!(stop(&mut running, Signal::TERM), 0);

    // A flag wins over the settings, and is kept in them.
    let args = ["lend", "--state", arg(&state), "--label", "room-2"];
    let (mut running, _) = start_daemon(&nobody(&lab), lab.dir(), "a", &args);
    assert_eq!(stop(&mut running, Signal::TERM), 0);
    let label = shown(&lab.cli, &state, "lend.label");
    assert_eq!((&label["value"], &label["set"]), (&"room-2".into(), &true.into()));
    let text = fs::read_to_string(state.join("settings.toml")).expect("a settings file");
    assert!(!text.contains("room-1"), "{text}");
}

#[test]
fn a_running_donor_takes_new_settings_without_a_restart() {
    let mut lab = Lab::with_donors(1);
    let (state, pid) = (lab.donor_state("donor-1"), lab.donor("donor-1").pid());
    let set = |line: &[&str]| lab.cli.json(&[&["set"], line, &["--state", arg(&state)]].concat());
    let changed = set(&["lend.max", "3", "GiB"]);
    assert_eq!((&changed["running"], &changed["applies"]), (&true.into(), &"at once".into()));
    // The manager knows the setting when the command ends, so the next question is answered by it.
    assert!(lab.cli.donor("donor-1")["room"].as_u64() > Some(2 * GIB));
    set(&["lend.max", "1GiB"]);
    assert_eq!(lab.cli.donor("donor-1")["lends"], GIB);
    set(&["lend.label", "room-9"]);
    assert_eq!(lab.cli.donor("donor-1")["label"], "room-9");
    set(&["label", "--unset"]);
    assert!(lab.cli.donor("donor-1")["label"].is_null());
    let listen = set(&["lend.listen", "127.0.0.1:0"]);
    assert_eq!(listen["applies"], "at the next start");
    lab.kill_manager();
    let late = lab.cli.run(&["set", "lend.max", "2GiB", "--state", arg(&state)]).ok();
    assert!(late.stderr.contains("the manager does not answer now"), "{}", late.stderr);
    assert_eq!(lab.donor("donor-1").pid(), pid);
    assert!(lab.donor("donor-1").ended().is_none());
}

#[test]
fn a_running_manager_takes_new_settings_without_a_restart() {
    let mut lab = Lab::with_options(2, &["--gc-delay", "1d", "--lease", "2s"]);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2"]);
    let (input, _) = file(lab.dir(), "input", 3, 1 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    lab.cli.ok(&["rm", "pot://lab/f"]);
    wait_until("condemned chunks", DEADLINE, || lab.cli.status()["condemned_chunks"] != 0);
    assert!(lab.chunk_files() > 0);
    let state = lab.manager_dir();
    lab.cli.ok(&["set", "manager.gc-delay", "2s", "--state", arg(&state)]);
    lab.wait_clean(0);
    assert!(lab.manager().ended().is_none());
}

#[test]
fn sighup_reloads_valid_settings_only() {
    let mut lab = Lab::with_donors(1);
    let state = lab.donor_state("donor-1");
    let path = state.join("settings.toml");
    let good = fs::read_to_string(&path).expect("a settings file");
    let reloads = || -> u64 {
        let said = fs::read(state.join("daemon.json")).expect("what it says");
        let said = serde_json::from_slice::<Value>(&said).unwrap_or_default();
        said["reloads"].as_u64().unwrap_or_default()
    };
    fs::write(&path, format!("label = \"by-hand\"\n{good}")).expect("written");
    lab.donor("donor-1").signal(Signal::HUP);
    wait_until("the label that was set by hand", DEADLINE, || {
        lab.cli.donor("donor-1")["label"] == "by-hand"
    });
    let before = reloads();
    fs::write(&path, format!("labell = \"misspelt\"\n{good}")).expect("written");
    lab.donor("donor-1").signal(Signal::HUP);
    wait_until("one more reload", DEADLINE, || reloads() > before);
    assert_eq!(lab.cli.donor("donor-1")["label"], "by-hand");
    // The command line tells the same error: the file, the line, the key, and what may be meant.
    let why = lab.cli.fails(2, &["set", "lend.away", "3d", "--state", arg(&state)]);
    assert_eq!(why.code, "POT-E004");
    assert!(why.message.contains("settings.toml, line 1: unknown key “labell”"), "{why:?}");
    assert!(why.hint.contains("“label”"), "{why:?}");
    let logs = lab.logs();
    assert!(logs.iter().any(|(_, text)| text.contains("labell")), "an error is logged");
    // The status of the pool tells it, too, until it is mended.
    let alarms = |lab: &Lab| lab.cli.json(&["status"])["alarms"].to_string();
    wait_until("an alarm", DEADLINE, || {
        alarms(&lab).contains("daemon of donor-1 cannot use its settings")
    });
    assert!(alarms(&lab).contains("unknown key “labell”"), "{}", alarms(&lab));
    // A manager that is told to read bad settings goes on as well.
    let managers = lab.manager_dir().join("settings.toml");
    let managers_good = fs::read_to_string(&managers).expect("a settings file");
    fs::write(&managers, format!("leese = \"1s\"\n{managers_good}")).expect("written");
    lab.manager().signal(Signal::HUP);
    wait_until("the manager's alarm", DEADLINE, || {
        alarms(&lab).contains("the manager cannot use its")
    });
    lab.cli.ok(&["space", "create", "lab"]);
    fs::write(&path, good).expect("written");
    fs::write(&managers, managers_good).expect("written");
    lab.donor("donor-1").signal(Signal::HUP);
    lab.manager().signal(Signal::HUP);
    wait_until("no alarm", DEADLINE, || !alarms(&lab).contains("settings"));
}

#[test]
fn a_daemon_outlives_the_terminal_it_was_started_from() {
    let lab = Lab::empty();
    let (state, ready) = (lab.dir().join("manager"), lab.dir().join("ready"));
    let mut command = lab.cli.command();
    command.args(["manager", "--listen", "127.0.0.1:0", "--state", arg(&state), "--ready-file"]);
    command.arg(&ready).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut running = Running::start(&mut command);
    wait_until("the manager to serve", DEADLINE, || ready.exists());
    // The terminal goes away: nobody reads what the daemon says any more, and it gets a hangup.
    drop(running.child().stderr.take());
    fs::write(state.join("settings.toml"), "nonsense = 1\n").expect("written");
    running.signal(Signal::HUP);
    let heard = |count: u64| {
        let said = fs::read(state.join("daemon.json")).unwrap_or_default();
        let said = serde_json::from_slice::<Value>(&said).unwrap_or_default();
        said["reloads"].as_u64() == Some(count) && said["refused"].is_string()
    };
    wait_until("an error that nobody can read", DEADLINE, || heard(1));
    running.signal(Signal::HUP);
    wait_until("another", DEADLINE, || heard(2));
    let admin = lab.cli.under(&state.join("admin"));
    admin.ok(&["space", "create", "lab"]);
    assert_eq!(stop(&mut running, Signal::TERM), 0);
}

#[test]
fn invalid_setting_is_refused_unwritten() {
    let lab = Lab::with_donors(1);
    let state = lab.donor_state("donor-1");
    let before = fs::read(state.join("settings.toml")).expect("a settings file");
    for (line, said) in [
        (&["lend.maxx", "1GiB"][..], "lend.max"),
        (&["listen", "0.0.0.0:1"], "manager.listen or lend.listen"),
        (&["lend.nope", "1"], "did you mean lend."),
        (&["lend.max", "10"], ""),
        (&["lend.label", "room", "12"], ""),
        (&["lend.max", "1GiB", "--dir", "/nowhere"], "lent are"),
    ] {
        let line = [&["set"], line, &["--state", arg(&state)]].concat();
        let why = lab.cli.fails(2, &line);
        assert!(why.code == "POT-E004" && why.hint.contains(said), "{line:?}: {why:?}");
    }
    let why = lab.cli.fails(2, &["set", "lend.scrub-every", "soon", "--state", arg(&state)]);
    assert!(why.message.ends_with("“soon” is not a time: write 30s, 10m, 12h or 3d"), "{why:?}");
    let manager = lab.manager_dir();
    let to = ["set", "manager.backup-dir", "/no/such/disk", "--state", arg(&manager)];
    let why = lab.cli.fails(2, &to);
    assert!(why.message.contains("no directory /no/such/disk"), "{why:?}");
    // Settings that cannot be kept to are told after a reload, too.
    let why = lab.cli.fails(2, &["set", "lend.keep-free", "100%", "--state", arg(&state)]);
    assert!(why.message.contains("leaves nothing to lend"), "{why:?}");
    lab.cli.ok(&["set", "lend.keep-free", "0%", "--state", arg(&state)]);
    assert_eq!(fs::read(state.join("settings.toml")).expect("a settings file"), before);
    let why =
        lab.cli.fails(3, &["set", "lend.max", "1GiB", "--state", arg(&lab.dir().join("none"))]);
    assert!(why.hint.contains("potluck lend"), "{why:?}");
    // A machine that only lends shows the settings of a donor.
    let donor = lab.cli.at_home(&lab.dir().join("donor"));
    donor.ok(&["join", &lab.token("donor")]);
    let shown = donor.json(&["set"])["settings"].to_string();
    assert!(shown.contains("lend.max") && !shown.contains("manager."), "{shown}");
    donor.fails(3, &["set", "manager.lease"]);
}

#[test]
fn all_in_one_keeps_what_it_was_told_of_both_its_daemons() {
    let lab = Lab::empty();
    let state = lab.dir().join("state");
    let lent: PathBuf = lab.dir().join("lent");
    let up = |more: &[&str]| {
        let args = [&["up", "--state", arg(&state)], more].concat();
        start_daemon(&lab.cli, lab.dir(), "up", &args).0
    };
    let mut running = up(&[
        "--listen",
        "127.0.0.1:0",
        arg(&lent),
        "--max",
        "1GiB",
        "--keep-free",
        "0%",
        "--repair-grace",
        "1h",
    ]);
    let said = || fs::read_to_string(lab.dir().join("logs/up.log")).expect("a log");
    let next = || said().matches("next: `potluck invite").count();
    wait_until("what to do next with a new pool", DEADLINE, || next() == 1);
    assert_eq!(stop(&mut running, Signal::TERM), 0);
    let mut running = up(&[]);
    assert_eq!(shown(&lab.cli, &state, "manager.repair-grace")["value"], "1h");
    let max = shown(&lab.cli, &state, "lend.max");
    assert_eq!((max["value"].as_str(), max["dir"].as_str()), (Some("1GiB"), lent.to_str()));
    let donors = lab.cli.under(&state.join("manager/admin"));
    wait_until("the donor", DEADLINE, || !donors.live_donors().is_empty());
    wait_until("what it lends", DEADLINE, || said().matches("lending up to ").count() == 2);
    assert_eq!(next(), 1, "of a new pool only");
    // One of the two files is bad: one line says so, and none says that all is well.
    let path = state.join("donor/settings.toml");
    let good = fs::read_to_string(&path).expect("settings");
    fs::write(&path, format!("labell = \"misspelt\"\n{good}")).expect("written");
    running.signal(Signal::HUP);
    wait_until("what is wrong", DEADLINE, || said().contains("labell"));
    let log = said();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("settings")).collect();
    assert!(lines.iter().filter(|line| line.contains("stay as they were")).count() == 1, "{log}");
    assert!(!lines.iter().any(|line| line.contains("read again")), "{log}");
    fs::write(&path, good).expect("written");
    lab.cli.ok(&["set", "lend.label", "here", "--state", arg(&state)]);
    let text = fs::read_to_string(&path).expect("settings");
    assert!(text.starts_with("# What this daemon was told"), "{text}");
    wait_until("the label", DEADLINE, || donors.status()["donors"][0]["label"] == "here");
    assert_eq!(stop(&mut running, Signal::TERM), 0);
}

#[test]
fn a_file_in_the_working_directory_configures_nothing() {
    let lab = Lab::with_donors(1);
    let home = lab.dir().join("user");
    let user = lab.cli.at_home(&home);
    user.ok(&["join", &lab.token("user")]);
    fs::write(lab.dir().join(".potluck.toml"), "pool = \"elsewhere\"\n").expect("written");
    user.ok(&["ls"]);
    // A configuration in the user's own place is read, so the name is not merely misspelt here.
    let own = home.join("config/potluck/config.toml");
    fs::write(own, "pool = \"elsewhere\"\n").expect("written");
    assert!(user.fails(3, &["ls"]).message.contains("elsewhere"));
}
