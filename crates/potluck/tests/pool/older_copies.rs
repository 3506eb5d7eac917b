//! A manager that is started on an old copy of its directory: what came after the copy is not lost.

use super::content::{arg, file};
use super::lab::{Lab, start_daemon, stop};
use super::metadata_survives::{cat_when_there, lose_and_restore_with, wait_logged};
use super::ports::free_port;
use super::waiting::{DEADLINE, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const OPTIONS: [&str; 4] = ["--backup-every", "300ms", "--metadata-copies", "2"];

/// A pool whose manager runs on a copy of its directory from before `pot://lab/today` was written.
struct PutBack {
    lab: Lab,
    today: Vec<u8>,
    kit: PathBuf,
}

impl PutBack {
    fn new() -> Self {
        let mut lab = Lab::with_options(2, &OPTIONS);
        lab.cli.ok(&["space", "create", "lab", "--copies", "2"]);
        let (early, _) = file(lab.dir(), "early", 1, 200_000);
        lab.cli.ok(&["cp", arg(&early), "pot://lab/early"]);
        wait_logged(&lab);
        lab.kill_manager();
        let (state, old) = (lab.manager_dir(), lab.dir().join("old"));
        copy(&state, &old);
        lab.start_manager();
        lab.wait_live();
        let (source, today) = file(lab.dir(), "today", 2, 300_000);
        lab.cli.ok(&["cp", arg(&source), "pot://lab/today"]);
        wait_logged(&lab);
        let kit = lab.dir().join("kit");
        fs::copy(state.join("recovery.kit"), &kit).expect("a kit");
        lab.kill_manager();
        fs::rename(&state, lab.dir().join("newer")).expect("put away");
        fs::rename(&old, &state).expect("put back");
        lab.start_manager();
        lab.wait_live();
        wait_until("the manager to know that its catalog is older", DEADLINE, || {
            lab.cli.json(&["gc", "status"])["frozen"].is_string()
        });
        lab.cli.fails(3, &["stat", "pot://lab/today"]);
        lab.cli.ok(&["space", "create", "meanwhile"]);
        wait_logged(&lab);
        Self { lab, today, kit }
    }
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.expect("cp").success());
}

#[test]
fn restore_recovers_changes_newer_than_an_old_copy() {
    let PutBack { mut lab, today, kit } = PutBack::new();
    let alarms = lab.cli.status()["alarms"].to_string();
    assert!(alarms.contains("--adopt-newer"), "{alarms}");
    // An interrupted start does not change which counts.
    lab.kill_manager();
    lab.start_manager();
    lab.wait_live();
    let told = lose_and_restore_with(&mut lab, &kit, &[]);
    let chains = told["chains"].as_array().expect("chains");
    let taken: Vec<&Value> = chains.iter().filter(|chain| chain["taken"] == true).collect();
    assert!(chains.len() > 1 && taken.len() == 1, "{told}");
    assert_eq!((&taken[0]["files"], &taken[0]["inherited"]), (&2.into(), &false.into()), "{told}");
    let other = chains.iter().find(|chain| chain["inherited"] == true).expect("the copy's");
    assert_eq!(other["files"], 1, "{told}");
    assert_eq!(cat_when_there(&lab, "pot://lab/today"), today);
    lab.cli.fails(3, &["ls", "pot://meanwhile"]);
    // Told to, it takes the other one.
    let id = other["chain"].as_str().expect("a name").to_owned();
    lose_and_restore_with(&mut lab, &kit, &["--chain", &id]);
    lab.cli.ok(&["ls", "pot://meanwhile"]);
    lab.cli.fails(3, &["stat", "pot://lab/today"]);
}

#[test]
fn stale_manager_adopts_the_newer_catalog() {
    let PutBack { mut lab, today, .. } = PutBack::new();
    lab.kill_manager();
    lab.start_manager_with(&["--adopt-newer"]);
    lab.wait_live();
    assert_eq!(cat_when_there(&lab, "pot://lab/today"), today);
    lab.cli.fails(3, &["ls", "pot://meanwhile"]);
    let replaced = lab.manager_dir().join("older-1");
    assert!(replaced.join("catalog.db").exists());
    lab.cli.ok(&["gc", "resume"]);
    wait_logged(&lab);
    // Once is enough: the next start with it finds nothing newer.
    lab.kill_manager();
    lab.start_manager_with(&["--adopt-newer"]);
    lab.wait_live();
    assert!(!lab.manager_dir().join("older-2").exists());
    assert_eq!(cat_when_there(&lab, "pot://lab/today"), today);
}

/// The only donor that keeps the newer catalog may be the one in the process that asks for it.
#[test]
fn a_machine_alone_takes_the_newer_catalog_from_its_own_donor() {
    let mut lab = Lab::empty();
    let (state, lent) = (lab.dir().join("state"), lab.dir().join("lent"));
    let [listen, lend_listen] = [(); 2].map(|()| format!("127.0.0.1:{}", free_port()));
    let daemon = lab.cli.clone();
    lab.cli = daemon.under(&state.join("manager/admin"));
    let up = |lab: &Lab, more: &[&str]| {
        let all = ["up", arg(&lent), "--state", arg(&state), "--backup-every", "300ms"];
        let at = ["--listen", &*listen, "--lend-listen", &lend_listen, "--keep-free", "0%"];
        start_daemon(&daemon, lab.dir(), "up", &[&all, &at[..], more].concat()).0
    };
    let live = |lab: &Lab| wait_until("the donor", DEADLINE, || lab.cli.live_donors().len() == 1);
    let mut running = up(&lab, &["--max", "1GiB", "--name", "alone"]);
    live(&lab);
    lab.cli.ok(&["space", "create", "lab", "--copies", "1"]);
    wait_logged(&lab);
    stop(&mut running, Signal::TERM);
    let (manager, old) = (state.join("manager"), lab.dir().join("old"));
    copy(&manager, &old);
    // The pool has its name, whatever a later start says.
    let refused = daemon.fails(10, &["up", "--state", arg(&state), "--name", "other"]);
    assert!(refused.message.contains("is called alone, not other"), "{refused:?}");
    let mut running = up(&lab, &["--name", "alone"]);
    live(&lab);
    let (source, today) = file(lab.dir(), "today", 2, 300_000);
    lab.cli.ok(&["cp", arg(&source), "pot://lab/today"]);
    wait_logged(&lab);
    stop(&mut running, Signal::TERM);
    fs::rename(&manager, lab.dir().join("newer")).expect("put away");
    fs::rename(&old, &manager).expect("put back");
    let mut running = up(&lab, &["--adopt-newer"]);
    live(&lab);
    assert_eq!(cat_when_there(&lab, "pot://lab/today"), today);
    assert!(manager.join("older-1/catalog.db").exists() && !manager.join("restoring").exists());
    stop(&mut running, Signal::TERM);
    // A manager alone, whose donors do not run, says so, and leaves its directory as it was.
    let alone = ["manager", "--state", arg(&manager), "--listen", &*listen, "--adopt-newer"];
    let refused = daemon.fails(5, &alone);
    assert!(refused.message.contains("no donor is reached"), "{refused:?}");
    assert!(!manager.join("restoring").exists());
}
