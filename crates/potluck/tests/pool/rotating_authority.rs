//! Tests that a pool gets another authority and another recovery kit while it runs, that its members follow by
//! themselves, and that whoever has an old kit cannot take it over.

use super::content::{Lots, arg, assert_same, bytes, file};
use super::extent::cases;
use super::lab::{Cli, Lab, stop};
use super::metadata_survives::{cat_when_there, lose_and_restore, wait_logged};
use super::mounts::{Mount, can_mount};
use super::waiting::{DEADLINE, pause, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

const OPTIONS: [&str; 4] = ["--backup-every", "300ms", "--metadata-copies", "2"];
const ROTATE: [&str; 3] = ["manager", "rotate-authority", "-y"];

/// Makes a pool with a space that everybody may read and write.
fn pool(donors: usize) -> Lab {
    let lab = Lab::with_options(donors, &OPTIONS);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2"]);
    lab.cli.ok(&["space", "grant", "lab", "everyone", "read", "write"]);
    lab
}

/// Has a user join at a home of her own; returns her, and the directory of her identity.
fn user(lab: &Lab, name: &str) -> (Cli, PathBuf) {
    let home = lab.dir().join(name);
    let cli = lab.cli.at_home(&home);
    let state = home.join("identity");
    cli.ok(&["join", &lab.token("user"), "--name", name, "--state", arg(&state)]);
    (cli.under(&state), state)
}

/// Returns the admin anew: who asks for the status in other tests trusts the authority of the beginning for ever.
fn admin(lab: &Lab) -> Cli {
    lab.cli.under(&lab.manager_dir().join("admin"))
}

fn look(lab: &Lab) -> Value {
    lab.cli.json(&["manager", "rotate-authority", "-n"])
}

fn names(behind: &Value) -> Vec<String> {
    let named = behind["behind"].as_array().expect("members").iter();
    named.map(|member| member["name"].as_str().expect("a name").to_owned()).collect()
}

fn ca(identity: &Path) -> String {
    fs::read_to_string(identity.join("ca.pem")).expect("a certificate")
}

fn keep_kit(lab: &Lab, name: &str) -> PathBuf {
    let kept = lab.dir().join(name);
    fs::copy(lab.manager_dir().join("recovery.kit"), &kept).expect("a kit");
    kept
}

#[test]
fn rotation_interrupts_nothing_x6() {
    let mut lab = pool(2);
    let (ada, ada_dir) = user(&lab, "ada");
    let mount = can_mount("rotation_interrupts_nothing_x6")
        .then(|| Mount::start_as(&ada, lab.dir(), "mounted", "pot://lab", &[]));
    let content = bytes(7, 24 << 20);
    let mut upload = ada.start(&["cp", "-", "pot://lab/stream"]);
    let mut pipe = upload.child().stdin.take().expect("a pipe");
    let (first, rest) = content.split_at(content.len() / 3);
    pipe.write_all(first).expect("taken");
    let mut open = mount.as_ref().map(|mount| {
        let mut open = File::create(mount.at("open")).expect("made");
        open.write_all(first).expect("written");
        open
    });

    let state = lab.cli.json(&ROTATE);
    assert_eq!((names(&state), &state["earlier"]), (Vec::new(), &Value::Null), "{state}");
    let present = ca(&lab.manager_dir().join("admin"));
    for dir in [&lab.donor_state("donor-1"), &lab.donor_state("donor-2"), &ada_dir] {
        assert_eq!(ca(dir), present, "{} trusts the new one", dir.display());
    }

    pipe.write_all(rest).expect("taken");
    drop(pipe);
    assert!(upload.end("the upload").success(), "{}", ada.said_by_the_last());
    assert_same(&ada.cat("pot://lab/stream"), &content, "the stream");
    if let (Some(mount), Some(mut open)) = (&mount, open.take()) {
        open.write_all(rest).expect("written");
        drop(open);
        assert_same(&fs::read(mount.at("open")).expect("read"), &content, "the open file");
        assert_same(&ada.cat("pot://lab/open"), &content, "the open file in the pool");
    }
    drop(mount);

    // All of that holds for processes that begin later.
    for donor in ["donor-1", "donor-2"] {
        assert_eq!(stop(lab.donor(donor), Signal::TERM), 0);
        lab.start_donor(donor);
    }
    assert_eq!(stop(lab.manager(), Signal::TERM), 0);
    lab.start_manager();
    lab.cli = admin(&lab);
    lab.wait_live();
    assert_same(&cat_when_there(&lab, "pot://lab/stream"), &content, "the stream");
    let (eve, _) = user(&lab, "eve");
    eve.ok(&["ls", "pot://lab"]);
    lab.lend("donor-3", Default::default());
    lab.wait_live();
    let audit = lab.cli.ok(&["audit"]).text();
    assert!(audit.contains("replaced the pool's authority"), "{audit}");
}

#[test]
fn absent_members_follow_a_rotation_and_removed_do_not_x6() {
    let mut lab = pool(3);
    let ((bob, bob_dir), (eve, eve_dir)) = (user(&lab, "bob"), user(&lab, "eve"));
    let token = lab.token("user");
    lab.kill_donor("donor-3");
    let removed = lab.cli.json(&["members", "ls"]);
    let members = removed["members"].as_array().expect("members").iter();
    let eves = { members }.find(|it| it["name"] == "eve").expect("eve")["member"].to_string();
    lab.cli.ok(&["members", "rm", &eves, "-y"]);

    let ran = lab.cli.run(&[&["--json"], &ROTATE[..], &["--wait", "3s"]].concat()).exits(4);
    assert_eq!(names(&ran.json()), ["donor-3", "bob"], "{}", ran.stderr);
    let ran = lab.cli.run(&[&ROTATE[..], &["--wait", "1s"]].concat()).exits(4);
    assert!(ran.stderr.contains("--finish"), "{}", ran.stderr);
    let listed = lab.cli.ok(&["members", "ls"]).text();
    assert_eq!(listed.matches("trusts an earlier authority").count(), 2, "{listed}");
    // The manager knows it when it is started again, too.
    lab.kill_manager();
    lab.start_manager();
    let left = ["donor-3", "bob"];
    wait_until("the others to be known", DEADLINE, || names(&look(&lab)) == left);

    let refused = lab.cli.at_home(&lab.dir().join("late")).fails(8, &["join", &token]);
    assert_eq!(refused.code, "POT-E060", "{refused:?}");
    let before = ca(&eve_dir);
    assert_eq!(eve.fails(8, &["ls", "pot://lab"]).code, "POT-E065");
    assert_eq!(ca(&eve_dir), before, "she is told nothing");
    wait_until("bob to follow", DEADLINE, || {
        bob.ok(&["ls", "pot://lab"]);
        ca(&bob_dir) == ca(&lab.manager_dir().join("admin"))
    });
    wait_until("the manager to know", DEADLINE, || names(&look(&lab)) == ["donor-3"]);
    lab.start_donor("donor-3");
    wait_until("the change to end by itself", DEADLINE, || look(&lab)["earlier"].is_null());
    lab.cli = admin(&lab);
    lab.wait_live();
    assert_eq!(eve.fails(8, &["ls", "pot://lab"]).code, "POT-E063", "nobody she knows is there");
    bob.ok(&["ls", "pot://lab"]);
}

#[test]
fn members_that_missed_a_rotation_are_named_and_reinvited_x6() {
    let mut lab = pool(2);
    let (bob, _) = user(&lab, "bob");
    let (source, content) = file(lab.dir(), "source", 3, 300_000);
    lab.cli.ok(&["cp", arg(&source), "pot://lab/file"]);
    lab.kill_donor("donor-2");
    lab.cli.run(&[&ROTATE[..], &["--wait", "2s"]].concat()).exits(4);
    let ended = lab.cli.json(&["manager", "rotate-authority", "--finish", "-y"]);
    assert_eq!(names(&ended), ["donor-2", "bob"], "{ended}");
    assert!(ended["earlier"].is_null(), "{ended}");
    lab.cli = admin(&lab);
    let why = bob.fails(8, &["ls", "pot://lab"]);
    assert_eq!(why.code, "POT-E063");
    assert!(why.hint.contains("authority"), "{why:?}");
    // What the donor holds is taken over by the one that takes its place.
    let lent = lab.lent("donor-2").0;
    let (again, token) = (lab.dir().join("again"), lab.token_file("donor"));
    let args = ["lend", arg(&lent), "--adopt-store", "--state", arg(&again), "--max", "1GiB"];
    let more = ["--token-file", arg(&token), "--listen", "127.0.0.1:0", "--name", "donor-2b"];
    let alone = lab.cli.at_home(&lab.dir().join("again-home"));
    let _lending = alone.start(&[&args[..], &more].concat());
    wait_until("its copies to count again", DEADLINE, || {
        lab.cli.shares("pot://lab/file").contains_key("donor-2b")
    });
    assert_same(&cat_when_there(&lab, "pot://lab/file"), &content, "the file");
}

#[test]
fn old_recovery_kit_is_useless_after_rotation_x6() {
    let mut lab = pool(2);
    let (old_kit, old_backup) = (keep_kit(&lab, "old-kit"), lab.dir().join("old-backup.log"));
    let state = lab.manager_dir();
    lab.cli.ok(&["manager", "backup", arg(&old_backup), "--state", arg(&state)]);
    let (ada, _) = user(&lab, "ada");
    lab.cli.run(&[&ROTATE[..], &["--wait", "1s"]].concat()).exits(4);
    ada.ok(&["ls", "pot://lab"]);
    wait_until("the change to end", DEADLINE, || look(&lab)["earlier"].is_null());
    let new_kit = keep_kit(&lab, "new-kit");
    lab.cli = admin(&lab);
    let (source, content) = file(lab.dir(), "source", 5, 700_000);
    ada.ok(&["cp", arg(&source), "pot://lab/file"]);
    wait_logged(&lab);
    let backup = lab.dir().join("backup.log");
    lab.cli.ok(&["manager", "backup", arg(&backup), "--state", arg(&state)]);

    // The thief has the old kit and a file of the new log: it says which kit it needs.
    let thief = lab.cli.at_home(&lab.dir().join("thief"));
    let stolen = lab.dir().join("stolen");
    let restore = ["manager", "restore", "--kit", arg(&old_kit), "--state", arg(&stolen)];
    let why = thief.fails(2, &[&restore[..], &["--from", arg(&backup)]].concat());
    assert!(why.message.contains("another recovery key"), "{why:?}");
    // With the log of before the change he has a manager, to which no member talks.
    fs::remove_dir_all(&stolen).expect("removed");
    thief.ok(&[&restore[..], &["--from", arg(&old_backup)]].concat());
    lab.kill_manager();
    let honest = lab.dir().join("honest");
    fs::rename(&state, &honest).expect("moved away");
    fs::rename(&stolen, &state).expect("at the manager's own address");
    lab.start_manager();
    let fake = admin(&lab);
    wait_until("the fake to run", DEADLINE, || fake.run(&["space", "ls"]).code == 0);
    pause(Duration::from_secs(3)); // donors would be there within a second
    assert!(fake.live_donors().is_empty(), "{:?}", fake.live_donors());
    assert_eq!(ada.fails(8, &["ls", "pot://lab"]).code, "POT-E063");
    // Nor is it asked by those to whom it shows where it is.
    let names = lab.donor_names();
    let donors: Vec<String> = names.iter().map(|it| lab.donor_address(it).to_owned()).collect();
    lab.kill_manager();
    fs::remove_dir_all(&state).expect("removed");
    let from_pool: Vec<String> =
        donors.iter().flat_map(|at: &String| ["--donor".into(), at.clone()]).collect();
    let from_pool: Vec<&str> = from_pool.iter().map(String::as_str).collect();
    let asked = [&restore[..], &["--from", "pool", "--wait", "2s"], &from_pool].concat();
    let why = thief.fails(5, &asked);
    assert_eq!(why.code, "POT-E030", "{why:?}");

    // The pool's own kit brings all back, also on the manager's lost disk.
    fs::rename(&honest, &state).expect("moved back");
    lab.start_manager();
    lab.wait_live();
    let told = lose_and_restore(&mut lab, &new_kit);
    assert_eq!((&told["files"], &told["log"]["missing"]), (&1.into(), &0.into()), "{told}");
    lab.cli = admin(&lab);
    assert_same(&cat_when_there(&lab, "pot://lab/file"), &content, "the file");
    assert_same(&ada.cat("pot://lab/file"), &content, "the file, to her");
}

#[test]
fn rotation_survives_manager_kills_x6() {
    let mut lab = pool(2);
    let (source, content) = file(lab.dir(), "source", 9, 300_000);
    lab.cli.ok(&["cp", arg(&source), "pot://lab/file"]);
    let mut lots = Lots::new("a change of the authority", 1);
    for round in 0..cases(2, 6) {
        let mut changing = lab.cli.start(&ROTATE);
        pause(Duration::from_millis(lots.below(2500)));
        lab.kill_manager();
        if lots.below(2) == 0 {
            changing.kill_9();
        }
        lab.start_manager();
        let state = lab.cli.json(&ROTATE);
        assert_eq!((names(&state), &state["earlier"]), (Vec::new(), &Value::Null), "{round}");
        lab.cli = admin(&lab);
        lab.wait_live();
        assert_same(&cat_when_there(&lab, "pot://lab/file"), &content, "the file");
    }
    let kit = keep_kit(&lab, "kit");
    wait_logged(&lab);
    lose_and_restore(&mut lab, &kit);
    lab.cli = admin(&lab);
    assert_same(&cat_when_there(&lab, "pot://lab/file"), &content, "the file");
}
