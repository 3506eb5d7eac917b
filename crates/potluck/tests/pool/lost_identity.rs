//! Tests that one lent directory has one donor, whatever becomes of identities, and that the advice of errors loses
//! nothing.

use super::content::{arg, file};
use super::lab::{Cli, Lab, Lending, start_daemon, stop};
use super::waiting::{DEADLINE, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

/// Makes a pool whose only donor holds a file, and returns the file's content as well.
fn with_file() -> (Lab, Vec<u8>) {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let (input, content) = file(lab.dir(), "input", 5, 3_000_000);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    (lab, content)
}

#[test]
fn store_has_one_identity_and_name() {
    let (mut lab, content) = with_file();
    let (lent, second) = (lab.lent("donor-1").0, lab.dir().join("second"));
    lab.cli.ok(&["join", &lab.token("donor"), "--state", arg(&second), "--name", "second"]);
    let link = lab.dir().join("link");
    symlink(&lent, &link).expect("a link");
    let lend = |cli: &Cli, dir| {
        cli.fails(10, &["lend", dir, "--state", arg(&second), "--listen", "127.0.0.1:0"])
    };
    // The directory is refused while its donor runs, and when it does not.
    assert!(lend(&lab.cli, arg(&link)).message.contains("is lent already"));
    lab.kill_donor("donor-1");
    for dir in [&lent, &link] {
        let why = lend(&lab.cli, arg(dir));
        assert_eq!(why.code, "POT-E066");
        assert!(why.message.contains("store of donor 2 (“donor-1”) of pool pool"), "{why:?}");
        assert!(why.message.contains("lend an empty directory"), "{why:?}");
        assert!(!why.message.contains("delete") && !why.message.contains("rm "), "{why:?}");
    }
    lab.start_donor("donor-1");
    lab.wait_live();
    assert_eq!(lab.cli.cat("pot://lab/f"), content);
}

#[test]
fn donor_with_a_lost_identity_recovers_its_store() {
    let (mut lab, content) = with_file();
    lab.kill_donor("donor-1");
    fs::remove_dir_all(lab.donor_state("donor-1")).expect("lost");
    let dir = Some(lab.lent("donor-1").0);
    let options = vec!["--adopt-store".into()];
    lab.lend("again", Lending { dir, options, ..Lending::default() });
    wait_until("the donor to serve under its new identity", DEADLINE, || {
        lab.cli.run(&["cat", "pot://lab/f"]).stdout == content
    });
    // The chunks of the store count for the new identity now, so the old one can be removed, and nothing else goes.
    wait_until("nothing to need the old identity", DEADLINE, || {
        lab.cli.run(&["members", "rm", "donor-1", "-y"]).code == 0
    });
    assert_eq!(lab.cli.cat("pot://lab/f"), content);
    assert_eq!(lab.cli.live_donors(), ["again"]);
}

#[test]
fn lost_store_restarts_by_an_option() {
    let (mut lab, _) = with_file();
    lab.cli.ok(&["rm", "pot://lab/f"]);
    lab.kill_donor("donor-1");
    let (lent, state) = (lab.lent("donor-1").0, lab.donor_state("donor-1"));
    fs::remove_dir_all(&lent).expect("lost");
    let lend = ["lend", arg(&lent), "--state", arg(&state), "--listen", "127.0.0.1:0"];
    let why = lab.cli.fails(1, &lend);
    assert!(why.message.contains("mount the disk"), "{why:?}");
    assert!(why.message.contains("--new-store"), "{why:?}");
    assert!(!lent.exists(), "nothing is made where a disk may be mounted");
    let mut anew = lab.cli.start(&[&lend[..], &["--new-store"]].concat());
    let marker = lent.join("potluck-store.json");
    wait_until("the store to be begun anew", DEADLINE, || marker.exists());
    anew.kill_9();
    let said = fs::read_to_string(marker).expect("a marker");
    assert!(said.contains("donor-1") && !said.contains("delete"), "{said}");
}

#[test]
fn new_store_keeps_its_terms_and_raises_no_disk_alarm() {
    let mut lab = Lab::with_donors(3);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 5, 3_000_000);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    lab.kill_donor("donor-1");
    let (lent, state) = (lab.lent("donor-1").0, lab.donor_state("donor-1"));
    fs::remove_dir_all(&lent).expect("lost");
    let new = lab.dir().join("new-disk");
    let at = ["--state", arg(&state), "--listen", "127.0.0.1:0", "--new-store"];
    // The donor goes down before the pool has heard of the new store, and is started again as on any other day.
    lab.kill_manager();
    let lend = [&["lend", arg(&new)], &at[..]].concat();
    let mut unheard = lab.cli.start(&lend);
    let remembered = || {
        let state = fs::read_to_string(state.join("donor.json")).expect("a state");
        state.contains(arg(&new))
    };
    wait_until("the store to be begun anew", DEADLINE, remembered);
    unheard.kill_9();
    lab.start_manager();
    let mut anew = lab.cli.start(&lend[..lend.len() - 1]);
    let said = || lab.logs().iter().any(|(_, log)| log.contains("donor-1 (2) begins anew"));
    wait_until("the pool to know that what was there is lost", DEADLINE, said);
    lab.cli.wait_safe("pot://lab/f");
    assert_eq!(lab.cli.cat("pot://lab/f"), content);
    let status = lab.cli.ok(&["status"]).text();
    assert!(!status.contains("failing") && lab.cli.donor("donor-1")["bad"] == 0, "{status}");
    let set = lab.cli.json(&["set", "lend.max", "--state", arg(&state)]);
    let max = &set["settings"][0];
    assert_eq!((&max["value"], &max["dir"]), (&"1GiB".into(), &arg(&new).into()), "{set}");
    anew.kill_9();
}

/// A clone of a machine has the identity and the store of its donor.
#[test]
fn cloned_donor_is_detected_and_joins_anew() {
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--copies", "1", "--chunk-size", "64KiB"]);
    stop(lab.donor("donor-1"), Signal::TERM);
    let clone = lab.dir().join("clone");
    let mut copy = Command::new("cp");
    assert!(
        copy.arg("-a").arg(lab.dir().join("donor-1")).arg(&clone).status().expect("cp").success()
    );
    lab.start_donor("donor-1");
    lab.wait_back("donor-1");
    let (input, content) = file(lab.dir(), "input", 12, 20 << 16);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);

    let (lent, state) = (clone.join("lent"), clone.join("state"));
    let lends = ["lend", arg(&lent), "--state", arg(&state), "--max", "1GiB", "--keep-free", "0%"];
    let lends = [&lends[..], &["--listen", "127.0.0.1:0"]].concat();
    let (mut cloned, _) = start_daemon(&lab.cli, lab.dir(), "clone", &lends);
    let alarms = |status: &Value| status["alarms"].as_array().expect("alarms").clone();
    let mut advice = String::new();
    wait_until("the alarm, and what the clone lacks", DEADLINE, || {
        let status = lab.cli.status();
        let told = alarms(&status).into_iter().find(|alarm| alarm["kind"] == "donor_twins");
        let lacks = status["donors"][0]["bad"].as_u64() >= Some(8);
        let is_told = told.is_some() && lacks;
        if let (true, Some(told)) = (is_told, told) {
            let kinds = alarms(&status).into_iter().map(|alarm| alarm["kind"].clone());
            assert!(kinds.into_iter().all(|kind| kind != "donor_bad_copies"), "{status}");
            advice = told["advice"].as_str().expect("text").to_owned();
        }
        is_told
    });

    stop(&mut cloned, Signal::TERM);
    fs::remove_dir_all(&clone).expect("removed");
    let told: Vec<&str> = advice.split('`').filter(|part| part.starts_with("potluck ")).collect();
    assert_eq!(told[1], "potluck invite --role donor", "{advice}");
    let token = lab.token_file("donor");
    let typed = |command: &str| -> Vec<String> {
        let words = command.split(' ').skip(1).map(|word| match word {
            "DIR" => arg(&lent),
            "FILE" => arg(&token),
            "/var/lib/potluck/donor" => arg(&state),
            word => word,
        });
        words.map(str::to_owned).collect()
    };
    let (lend, join) = (typed(told[2]), typed(told[3]));
    lab.cli.ok(&join.iter().map(String::as_str).chain(["--name", "clone"]).collect::<Vec<_>>());
    let lend: Vec<&str> = lend.iter().map(String::as_str).collect();
    let lend = [&lend[..], &["--state", arg(&state), "--listen", "127.0.0.1:0"]].concat();
    let (_own, _) = start_daemon(&lab.cli, lab.dir(), "own", &lend);
    wait_until("both to be donors", DEADLINE, || {
        let live = lab.cli.live_donors();
        ["clone", "donor-1"].iter().all(|name| live.iter().any(|one| one == name))
    });
    let logs = lab.logs().into_iter().map(|(_, log)| log).collect::<String>();
    assert!(!logs.contains("disk may be failing"), "not for a moment, and not in the log");
    assert_eq!(lab.cli.cat("pot://lab/f"), content);
}
