//! One donor daemon lends several directories: each is a donor of its own with a fate of its own, and
//! the machine is one when copies are counted.

use super::content::{arg, assert_same, file};
use super::lab::{Lab, Lending};
use super::waiting::{PATIENCE, wait_until};
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;

/// Adds a directory to what `donor-1` lends; gives it and where its donor has its state.
fn add(lab: &Lab) -> (PathBuf, PathBuf) {
    let (state, disk) = (lab.donor_state("donor-1"), lab.dir().join("disk-2"));
    let token = lab.token("donor");
    let terms = ["--max", "1GiB", "--keep-free", "0%", "--state", arg(&state)];
    lab.cli.ok(&[&["lend", "--add", arg(&disk), "--token", &token], &terms[..]].concat());
    wait_until("the second directory's donor", PATIENCE, || is_live(lab, "donor-1-2"));
    (disk, state.join("dirs/2"))
}

fn is_live(lab: &Lab, name: &str) -> bool {
    lab.cli.live_donors().iter().any(|live| live == name)
}

#[test]
fn a_directory_is_added_to_a_running_donor_and_is_lent_again_after_a_restart() {
    let mut lab = Lab::with_donors(1);
    let pid = lab.donor("donor-1").pid();
    let (disk, _) = add(&lab);
    assert_eq!(lab.donor("donor-1").pid(), pid, "the daemon went on");
    assert!(disk.join("potluck-store.json").exists());
    let set = lab.cli.json(&["set", "lend.max", "--state", arg(&lab.donor_state("donor-1"))]);
    assert_eq!(set["settings"].as_array().map(Vec::len), Some(2), "one for each: {set}");
    // Each has terms of its own.
    let state = lab.donor_state("donor-1");
    lab.cli.ok(&["set", "lend.max", "2GiB", "--dir", arg(&disk), "--state", arg(&state)]);
    let room = |name: &str| lab.cli.donor(name)["room"].as_u64().unwrap_or_default();
    wait_until("more room in one", PATIENCE, || room("donor-1-2") > 3 << 29);
    assert!(room("donor-1") <= 1 << 30);
    lab.kill_donor("donor-1");
    wait_until("both to be away", PATIENCE, || lab.cli.live_donors().is_empty());
    lab.start_donor("donor-1");
    wait_until("both to be back", PATIENCE, || {
        is_live(&lab, "donor-1") && is_live(&lab, "donor-1-2")
    });
    // A name for what fails together is the owner's, where one is set.
    lab.cli.ok(&["set", "lend.label", "room-3", "--state", arg(&state)]);
    wait_until("the label of both", PATIENCE, || {
        ["donor-1", "donor-1-2"].iter().all(|name| lab.cli.donor(name)["label"] == "room-3")
    });
}

#[test]
fn copies_on_two_disks_of_one_machine_count_as_one() {
    let mut lab = Lab::with_options(1, &["--repair-grace", "2s"]);
    add(&lab);
    wait_until("both disks to say that they are of one machine", PATIENCE, || {
        let label = |name: &str| lab.cli.donor(name)["label"].clone();
        !label("donor-1").is_null() && label("donor-1") == label("donor-1-2")
    });
    lab.cli.ok(&["space", "create", "lab", "--copies", "2"]);
    let (input, content) = file(lab.dir(), "input", 7, 3 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    // Two disks guard against the death of one, and the file is less safe than was promised.
    lab.cli.run(&["verify", "pot://lab/f"]).exits(4);
    lab.lend("donor-2", Lending::default());
    wait_until("a copy on another machine", PATIENCE, || {
        lab.cli.run(&["verify", "pot://lab/f"]).code == 0
    });
    lab.kill_donor("donor-1");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
}

#[test]
fn a_disk_that_is_not_there_leaves_the_others_alone_and_comes_back_at_a_reload() {
    let mut lab = Lab::with_donors(1);
    let (disk, _) = add(&lab);
    let away = lab.dir().join("unplugged");
    lab.kill_donor("donor-1");
    fs::rename(&disk, &away).expect("renamed");
    lab.start_donor("donor-1");
    wait_until("the first disk's donor", PATIENCE, || is_live(&lab, "donor-1"));
    assert!(lab.donor("donor-1").ended().is_none());
    let said = |text: &str| lab.logs().iter().any(|(_, log)| log.contains(text));
    wait_until("an error", PATIENCE, || said("is not lent"));
    fs::rename(&away, &disk).expect("renamed");
    lab.donor("donor-1").signal(Signal::HUP);
    wait_until("the second disk's donor", PATIENCE, || is_live(&lab, "donor-1-2"));
}

#[test]
fn a_directory_is_taken_out_once_it_was_given_back() {
    let mut lab = Lab::with_options(1, &["--gc-grace", "1s"]);
    lab.lend("donor-2", Lending::default());
    let (disk, own) = add(&lab);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB", "--copies", "1"]);
    let (input, content) = file(lab.dir(), "input", 9, 4 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let state = lab.donor_state("donor-1");
    let remove = ["lend", "--remove", arg(&disk), "--state", arg(&state)];
    let why = lab.cli.fails(10, &remove);
    assert!(why.hint.contains("give-back --all"), "{why:?}");
    lab.cli.ok(&["give-back", "--all", "-y", "--state", arg(&own)]);
    wait_until("its chunks to be elsewhere", PATIENCE, || {
        super::lent::all_files(&disk.join("chunks")).is_empty()
    });
    lab.cli.ok(&remove);
    wait_until("its donor to be gone", PATIENCE, || !is_live(&lab, "donor-1-2"));
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
    assert!(lab.donor("donor-1").ended().is_none());
    let why = lab
        .cli
        .fails(2, &["lend", "--remove", arg(&lab.lent("donor-1").0), "--state", arg(&state)]);
    assert!(why.hint.contains("leave"), "{why:?}");
}
