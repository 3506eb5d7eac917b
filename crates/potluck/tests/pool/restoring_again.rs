//! A restore that failed or was killed leaves nothing that starts, and is simply run again.

use super::content::arg;
use super::lab::Lab;
use super::lent::flip;
use super::program::{Ran, Running, code_of};
use super::small_disk::SmallDisk;
use super::waiting::{DEADLINE, has_program, skip, wait_until};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The things that the admin of a pool has left after its manager's disk is lost.
struct Lost {
    lab: Lab,
    kit: PathBuf,
    backup: PathBuf,
    /// The directory in which the manager is to come back.
    state: PathBuf,
}

impl Lost {
    /// Makes a pool, with one file in the catalog if it has donors, and loses its manager's disk.
    fn new(donors: usize) -> Self {
        let options = ["--backup-every", "300ms", "--metadata-copies", "2"];
        let mut lab = Lab::with_options(donors, &options);
        lab.cli.ok(&["space", "create", "lab"]);
        let note = lab.dir().join("note");
        fs::write(&note, "kept in the catalog").expect("written");
        if donors > 0 {
            lab.cli.ok(&["cp", arg(&note), "pot://lab/note"]);
            wait_until("all that to be on donors", DEADLINE, || {
                let status = lab.cli.status();
                status["log_waiting"] == 0 && status["backup_pool_seconds"].is_u64()
            });
        }
        let [kit, backup] = ["kit", "catalog.log"].map(|name| lab.dir().join(name));
        let manager = lab.manager_dir();
        fs::copy(manager.join("recovery.kit"), &kit).expect("a kit");
        lab.cli.ok(&["manager", "backup", arg(&backup), "--state", arg(&manager)]);
        lab.kill_manager();
        fs::remove_dir_all(manager).expect("lost");
        let state = lab.dir().join("new/manager");
        Self { lab, kit, backup, state }
    }

    fn restore_args<'a>(&'a self, kit: &'a Path, from: &'a Path) -> Vec<&'a str> {
        let (kit, from, state) = (arg(kit), arg(from), arg(&self.state));
        vec!["manager", "restore", "--kit", kit, "--from", from, "--state", state]
    }

    /// Restores from the backup.
    #[track_caller]
    fn restore(&self) -> Ran {
        self.alone(&self.restore_args(&self.kit, &self.backup))
    }

    /// Runs a command as somebody who has no identity of the pool.
    #[track_caller]
    fn alone(&self, args: &[&str]) -> Ran {
        self.lab.cli.at_home(&self.lab.dir().join("alone")).run(args)
    }

    /// Asserts that nothing starts in the state directory: neither a manager nor `up`.
    #[track_caller]
    fn assert_nothing_starts(&self, when: &str) {
        let above = self.state.parent().expect("a directory above");
        let staging = self.state.join("restoring");
        for (verb, state) in [("manager", &*self.state), ("up", above), ("manager", &staging)] {
            let ran = self.alone(&[verb, "--state", arg(state), "--listen", "127.0.0.1:0"]);
            assert_eq!(ran.code, 10, "{when}: `{verb}` did not refuse: {}", ran.stderr);
            assert!(ran.stderr.contains("POT-E084"), "{when}: {}", ran.stderr);
            assert!(ran.stderr.contains("potluck manager restore"), "{when}: {}", ran.stderr);
            assert!(!state.join("catalog.db").exists(), "{when}: an empty pool was made");
        }
    }

    /// Asserts that the manager that came back serves, where the lost one was.
    fn assert_serves(&mut self) {
        let place = self.lab.manager_dir();
        fs::rename(&self.state, &place).expect("moved to where the lab starts it");
        self.lab.start_manager();
        let spaces = self.lab.cli.ok(&["space", "ls"]).text();
        assert!(spaces.contains("lab"), "{spaces}");
        let gc = self.lab.cli.json(&["gc", "status"]);
        assert!(gc["frozen"].is_string(), "{gc}");
    }
}

#[test]
fn restore_with_wrong_inputs_is_rerun_and_starts_nothing() {
    let mut lost = Lost::new(0);
    let damaged = lost.backup.with_extension("damaged");
    fs::copy(&lost.backup, &damaged).expect("a copy");
    flip(&damaged, 400);
    let other = Lab::manager_only(&[]);
    let foreign = other.manager_dir().join("recovery.kit");
    let nowhere = lost.lab.dir().join("nowhere");
    // With a wrong name no restore begins.
    for (kit, from, code, names) in [
        (&lost.backup, &lost.backup, 2, "no recovery kit"),
        (&nowhere, &lost.backup, 3, "nowhere"),
        (&lost.kit, &nowhere, 3, "nowhere"),
    ] {
        let ran = lost.alone(&lost.restore_args(kit, from)).exits(code);
        assert!(ran.stderr.contains(names), "{names} is not in: {}", ran.stderr);
        assert!(!lost.state.exists(), "{names}: something was left");
    }
    for (kit, from, code, names) in [
        (&lost.kit, &damaged, 7, "catalog.damaged is damaged"),
        (&lost.kit, &lost.kit, 7, "kit is damaged"),
        (&foreign, &lost.backup, 2, "(authority "),
    ] {
        let ran = lost.alone(&lost.restore_args(kit, from)).exits(code);
        assert!(ran.stderr.contains(names), "{names} is not in: {}", ran.stderr);
        lost.assert_nothing_starts(names);
    }
    lost.restore().ok();
    // A restore that is run once more, after its answer was lost, is told that the pool is there.
    let again = lost.restore().exits(10);
    assert!(again.stderr.contains("holds a pool"), "{}", again.stderr);
    lost.assert_serves();
}

#[test]
fn restore_without_donors_is_rerun_and_starts_nothing() {
    let mut lost = Lost::new(2);
    let address = lost.lab.address().to_owned();
    let pool = Path::new("pool");
    let elsewhere = ["--listen", "127.0.0.1:0", "--wait", "1s"];
    let restore = lost.restore_args(&lost.kit, pool);
    lost.alone(&[&restore[..], &elsewhere].concat()).exits(5);
    lost.assert_nothing_starts("no donor found it");
    let listen = ["--listen", &address, "--donors", "2"];
    lost.alone(&[&restore[..], &listen].concat()).ok();
    lost.assert_serves();
    lost.lab.wait_live();
    assert_eq!(lost.lab.cli.cat("pot://lab/note"), b"kept in the catalog");
}

#[test]
fn restore_on_a_full_disk_is_rerun_and_starts_nothing() {
    let name = "restore_on_a_full_disk_is_rerun_and_starts_nothing";
    let mut lost = Lost::new(0);
    let disk = lost.lab.dir().join("small");
    lost.state = disk.join("manager");
    let mut kib = 16;
    loop {
        // The next disk is a little larger, so that each fills at another step.
        let mounted = SmallDisk::mount(name, disk.clone(), &format!("size={kib}k"));
        let Some(mounted) = mounted else { return };
        let ran = lost.restore();
        if ran.code == 0 {
            // The state is moved off the disk that goes.
            let copy = lost.lab.dir().join("copy");
            let mut cp = Command::new("cp");
            assert!(cp.arg("-a").args([&lost.state, &copy]).status().expect("cp").success());
            lost.state = copy;
            break;
        }
        assert!([1, 6].contains(&ran.code), "{kib} KiB: exit code {}: {}", ran.code, ran.stderr);
        if lost.state.join("restoring").exists() {
            lost.assert_nothing_starts(&format!("with {kib} KiB"));
            make_room(mounted.path());
            lost.restore().ok();
        }
        kib += kib / 4;
        assert!(kib < 1 << 16, "it never fits: {}", ran.stderr);
    }
    assert!(kib > 64, "small disks were filled");
    lost.assert_serves();
}

#[test]
fn repeated_restore_replaces_its_admin() {
    let mut lost = Lost::new(0);
    for round in 0..3 {
        lost.restore().ok();
        let place = lost.lab.manager_dir();
        fs::rename(&lost.state, &place).expect("moved to where the lab starts it");
        lost.lab.start_manager();
        let members = lost.lab.cli.json(&["members", "ls"]);
        let names = members["members"].as_array().expect("members").iter();
        let restored = names.filter(|member| member["name"] == "admin after restore");
        let valid = restored.filter(|member| member["revoked"] != true).count();
        assert_eq!(valid, 1, "after restore {round}: {members}");
        // An admin accepts what came back; otherwise the next backup says that changes may be missing from it.
        lost.lab.cli.ok(&["gc", "resume"]);
        fs::remove_file(&lost.backup).expect("of before");
        let backup = ["manager", "backup", arg(&lost.backup), "--state", arg(&place)];
        lost.lab.cli.ok(&backup);
        lost.lab.kill_manager();
        fs::remove_dir_all(place).expect("lost again");
    }
}

/// Makes a small disk large.
fn make_room(disk: &Path) {
    let mut mount = Command::new("mount");
    let mounted = mount.args(["-o", "remount,size=64m"]).arg(disk).status().expect("mount");
    assert!(mounted.success());
}

/// The system calls that change something on a disk.
const CHANGES: [&str; 8] =
    ["mkdir", "openat", "write", "pwrite64", "fsync", "fdatasync", "rename", "unlink"];

#[test]
fn killed_restore_is_rerun_and_starts_nothing() {
    let name = "killed_restore_is_rerun_and_starts_nothing";
    if !has_program("strace") {
        return skip(name, "killing at a chosen system call needs strace");
    }
    let mut lost = Lost::new(0);
    let mut killed = 0;
    for call in CHANGES {
        for nth in 1.. {
            let code = restore_killed_at(&lost, call, nth);
            let when = format!("killed at {call} number {nth}");
            let begun = lost.state.join("restoring").exists();
            let finished = lost.state.join("catalog.db").exists();
            if begun && !finished {
                killed += 1;
                lost.assert_nothing_starts(&when);
            }
            if finished {
                for part in ["ca/ca.pem", "ca/recovery.key", "admin/identity.json", "recovery.kit"]
                {
                    assert!(lost.state.join(part).exists(), "{when}: no {part}");
                }
                fs::remove_dir_all(&lost.state).expect("for the next one to begin in");
            }
            if code == 0 {
                break; // the restore makes this call fewer times
            }
        }
    }
    assert!(killed > 40, "killed {killed} times between beginning and end");
    restore_killed_at(&lost, "rename", 1);
    lost.restore().ok();
    lost.assert_serves();
}

/// Runs a restore that is killed when one of its threads begins its `nth` system call `call`, if it does; returns the
/// exit code.
fn restore_killed_at(lost: &Lost, call: &str, nth: u32) -> i32 {
    let restore = lost.lab.cli.at_home(&lost.lab.dir().join("alone"));
    let restore = restore.command();
    let inject = format!("inject={call}:signal=KILL:when={nth}");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject]);
    strace.arg(restore.get_program()).args(lost.restore_args(&lost.kit, &lost.backup));
    for (name, value) in restore.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    strace.process_group(0);
    let said = File::create(lost.lab.dir().join("said")).expect("a file");
    strace.stdout(said.try_clone().expect("the same file")).stderr(said);
    let mut running = Running::start(&mut strace);
    code_of(running.end("a restore under strace"))
}
