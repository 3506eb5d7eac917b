//! Tests a donor daemon that lends several directories: each is a donor of its own that fails by itself, and the
//! machine is one when copies are counted.

use super::content::{arg, assert_same, file};
use super::lab::{Lab, Lending};
use super::machines::{Machine, Machines, Naming};
use super::ports::free_port;
use super::waiting::{DEADLINE, wait_until};
use rustix::process::Signal;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;

/// Adds a directory to what `donor-1` lends, and returns it and where its donor has its state.
fn add(lab: &Lab) -> (PathBuf, PathBuf) {
    let (state, disk) = (lab.donor_state("donor-1"), lab.dir().join("disk-2"));
    let terms = ["--max", "1GiB", "--keep-free", "0%", "--state", arg(&state)];
    lab.cli.ok(&[&["lend", "--add", arg(&disk)], &terms[..]].concat());
    wait_until("the second directory's donor", DEADLINE, || is_live(lab, "donor-1-2"));
    (disk, state.join("dirs/2"))
}

fn is_live(lab: &Lab, name: &str) -> bool {
    lab.cli.live_donors().iter().any(|live| live == name)
}

#[test]
fn directory_added_to_a_running_donor_persists() {
    let mut lab = Lab::with_donors(1);
    let pid = lab.donor("donor-1").pid();
    let (disk, _) = add(&lab);
    assert_eq!(lab.donor("donor-1").pid(), pid, "the daemon went on");
    assert!(disk.join("potluck-store.json").exists());
    let set = lab.cli.json(&["set", "lend.max", "--state", arg(&lab.donor_state("donor-1"))]);
    assert_eq!(set["settings"].as_array().map(Vec::len), Some(2), "one for each: {set}");
    // Each directory has terms of its own.
    let state = lab.donor_state("donor-1");
    lab.cli.ok(&["set", "lend.max", "2GiB", "--dir", arg(&disk), "--state", arg(&state)]);
    let room = |name: &str| lab.cli.donor(name)["room"].as_u64().unwrap_or_default();
    wait_until("more room in one", DEADLINE, || room("donor-1-2") > 3 << 29);
    assert!(room("donor-1") <= 1 << 30);
    lab.kill_donor("donor-1");
    wait_until("both to be away", DEADLINE, || lab.cli.live_donors().is_empty());
    lab.start_donor("donor-1");
    wait_until("both to be back", DEADLINE, || {
        is_live(&lab, "donor-1") && is_live(&lab, "donor-1-2")
    });
    // If the terms of one directory are impossible, none of them change.
    let settings = state.join("settings.toml");
    let good = fs::read_to_string(&settings).expect("settings");
    let smaller = good.replacen("\"1GiB\"", "\"512MiB\"", 1);
    assert_ne!(smaller, good);
    let (first, second) = smaller.rsplit_once("\"0%\"").expect("both have terms");
    fs::write(&settings, format!("{first}\"8000PiB\"{second}")).expect("written");
    lab.donor("donor-1").signal(Signal::HUP);
    wait_until("the settings to be refused", DEADLINE, || {
        lab.logs().iter().any(|(_, log)| log.contains("the settings stay as they were"))
    });
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (input, _) = file(lab.dir(), "input", 3, 4 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    wait_until("a word of both after that", DEADLINE, || {
        let used = |name| lab.cli.donor(name)["used"].as_u64();
        used("donor-1") > Some(1 << 18) && used("donor-1-2") > Some(1 << 18)
    });
    assert_eq!(lab.cli.donor("donor-1")["lends"], 1 << 30, "{}", lab.cli.donor("donor-1"));
    fs::write(&settings, good).expect("written");
    // If the owner sets a label for what fails together, it is kept.
    lab.cli.ok(&["set", "lend.label", "room-3", "--state", arg(&state)]);
    wait_until("the label of both", DEADLINE, || {
        ["donor-1", "donor-1-2"].iter().all(|name| lab.cli.donor(name)["label"] == "room-3")
    });
}

#[test]
fn unlendable_added_directory_leaves_nothing_behind() {
    let mut lab = Lab::with_donors(1);
    let state = lab.donor_state("donor-1");
    let settings = || fs::read_to_string(state.join("settings.toml")).expect("settings");
    let before = settings();
    let (no_dir, disk) = (lab.dir().join("a-file"), lab.dir().join("disk-2"));
    fs::write(&no_dir, "not a directory").expect("written");
    let add = |dir: &PathBuf| {
        let line = ["lend", "--add", arg(dir), "--max", "1GiB", "--state", arg(&state)];
        line.map(str::to_owned)
    };
    let add = |dir: &PathBuf| lab.cli.run(&add(dir).each_ref().map(String::as_str));
    let ran = add(&no_dir).exits(1);
    assert!(ran.stderr.contains("nothing is changed"), "{}", ran.stderr);
    assert_eq!((settings(), state.join("dirs").exists()), (before.clone(), false));
    assert_eq!(donors(&lab), ["donor-1"], "nobody is left in the pool");
    wait_until("a pool without complaints", DEADLINE, || {
        lab.cli.run(&["status", "--check"]).code == 0
    });

    // The port of a further directory is one at which nothing listens.
    let (first, _held) = loop {
        let port = free_port();
        if let Ok(held) = TcpListener::bind(("127.0.0.1", port + 1)) {
            break (port, held);
        }
    };
    let listen = format!("127.0.0.1:{first}");
    lab.cli.ok(&["set", "lend.listen", &listen, "--state", arg(&state)]);
    let said = add(&disk).exits(0).stderr;
    wait_until("the second directory's donor", DEADLINE, || is_live(&lab, "donor-1-3"));
    let taken = format!("127.0.0.1:{}", first + 1);
    assert!(said.contains(&format!("not at {taken}: ")), "{said}");
    // Where one donor listens is nothing to choose: all follow the first.
    let third = lab.dir().join("disk-3");
    let elsewhere = ["lend", "--add", arg(&third), "--listen", "127.0.0.1:0"];
    let refused = lab.cli.fails(2, &[&elsewhere[..], &["--state", arg(&state)]].concat());
    assert!(refused.hint.contains("potluck set lend.listen"), "{refused:?}");
    assert!(!lab.cli.donor("donor-1-3")["addresses"].to_string().contains(&taken));
    lab.cli.ok(&["lend", "--remove", arg(&disk), "--state", arg(&state), "-y"]);

    // A directory that was added while nothing ran has no donor yet, and is taken out all the same.
    lab.kill_donor("donor-1");
    let with_port = settings();
    lab.cli.ok(&["lend", "--add", arg(&disk), "--state", arg(&state)]);
    lab.cli.ok(&["lend", "--remove", arg(&disk), "--state", arg(&state)]);
    assert_eq!(settings(), with_port);
}

#[test]
fn directories_sharing_a_disk_are_warned_of() {
    let lab = Lab::with_donors(1);
    let (disk, state) = (lab.dir().join("disk-2"), lab.donor_state("donor-1"));
    let own = lab.cli.json(&["set", "lend.max", "--state", arg(&state)]);
    let own = own["settings"][0]["dir"].as_str().expect("a directory").to_owned();
    let line = ["lend", "--add", arg(&disk), "--max", "1GiB", "--keep-free", "0%"];
    let said = lab.cli.ok(&[&line[..], &["--state", arg(&state)]].concat()).stderr;
    assert!(said.contains("1.0 GiB can be stored now"), "{said}");
    assert!(!said.contains("warning"), "there is room for both: {said}");
    // A cap beyond the disk is a way to say “all of it”, and what that is now is said.
    let all_of = |dir: &str| {
        let line = ["set", "lend.max", "500TiB", "--dir", dir, "--state", arg(&state)];
        lab.cli.ok(&line).stderr
    };
    let said = all_of(&own);
    assert!(said.contains("up to 500.0 TiB") && said.contains("can be stored now"), "{said}");
    let said = all_of(arg(&disk));
    assert!(said.contains(&own) && said.contains("are on one file system"), "{said}");
    assert!(said.contains("set lend.max SIZE --dir DIR"), "{said}");
}

#[test]
fn copies_on_two_disks_of_one_machine_count_as_one() {
    let mut lab = Lab::with_options(1, &["--repair-grace", "2s"]);
    add(&lab);
    wait_until("both disks to say that they are of one machine", DEADLINE, || {
        let label = |name: &str| lab.cli.donor(name)["label"].clone();
        !label("donor-1").is_null() && label("donor-1") == label("donor-1-2")
    });
    lab.cli.ok(&["space", "create", "lab", "--copies", "2"]);
    let (input, content) = file(lab.dir(), "input", 7, 3 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    // Two disks guard against the death of one, and the file is less safe than was promised.
    lab.cli.run(&["verify", "pot://lab/f"]).exits(4);
    lab.lend("donor-2", Lending::default());
    wait_until("a copy on another machine", DEADLINE, || {
        lab.cli.run(&["verify", "pot://lab/f"]).code == 0
    });
    lab.kill_donor("donor-1");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
}

#[test]
fn absent_disk_affects_no_others_and_returns_on_reload() {
    let mut lab = Lab::with_donors(1);
    let (disk, _) = add(&lab);
    let away = lab.dir().join("unplugged");
    lab.kill_donor("donor-1");
    fs::rename(&disk, &away).expect("renamed");
    // A third directory is not taken for the first one, which lay elsewhere.
    let state = lab.donor_state("donor-1");
    let third = lab.dir().join("disk-3");
    let lend = ["lend", arg(&third), "--state", arg(&state), "--listen", "127.0.0.1:0"];
    let why = lab.cli.fails(10, &lend);
    assert!(why.hint.contains("lend --add"), "{why:?}");
    let settings = fs::read_to_string(state.join("settings.toml")).expect("settings");
    assert!(settings.contains(arg(&lab.lent("donor-1").0)) && !settings.contains(arg(&third)));

    lab.start_donor("donor-1");
    wait_until("the first disk's donor", DEADLINE, || is_live(&lab, "donor-1"));
    assert!(lab.donor("donor-1").ended().is_none());
    let said = |text: &str| lab.logs().iter().any(|(_, log)| log.contains(text));
    wait_until("an error", DEADLINE, || said("is not lent"));
    fs::rename(&away, &disk).expect("renamed");
    lab.donor("donor-1").signal(Signal::HUP);
    wait_until("the second disk's donor", DEADLINE, || is_live(&lab, "donor-1-2"));
}

/// Makes a machine that lends two directories beside another one, with a file on all of them. Returns the second
/// directory, where its donor has its state, and the file's content.
fn two_and_another(lab: &mut Lab) -> (PathBuf, PathBuf, Vec<u8>) {
    lab.lend("donor-2", Lending::default());
    let (disk, own) = add(lab);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB", "--copies", "1"]);
    let (input, content) = file(lab.dir(), "input", 9, 4 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    assert_eq!(lab.cli.shares("pot://lab/f").len(), 3);
    (disk, own, content)
}

fn donors(lab: &Lab) -> Vec<String> {
    let said = lab.cli.json(&["nodes", "ls"]);
    let donors = said["donors"].as_array().expect("donors").iter();
    donors.map(|donor| donor["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn removed_lent_directory_is_drained() {
    let mut lab = Lab::with_options(1, &["--gc-delay", "1s"]);
    let (disk, own, content) = two_and_another(&mut lab);
    let (state, first) = (lab.donor_state("donor-1"), lab.lent("donor-1").0);
    let remove = ["lend", "--remove", arg(&disk), "--state", arg(&state)];
    lab.cli.fails(2, &remove); // nobody is there to be asked
    let plan = lab.cli.ok(&[&remove[..], &["-n"]].concat()).text();
    assert!(plan.contains(arg(&disk)) && !plan.contains(arg(&first)), "{plan}");

    lab.cli.ok(&[&remove[..], &["-y"]].concat());
    assert!(!disk.exists() && !own.exists() && !state.join("dirs").exists());
    assert_eq!(donors(&lab), ["donor-1", "donor-2"]);
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
    assert!(lab.donor("donor-1").ended().is_none());
    let why = lab.cli.fails(2, &["lend", "--remove", arg(&first), "--state", arg(&state)]);
    assert!(why.hint.contains("leave"), "{why:?}");
}

#[test]
fn a_machine_leaves_with_all_the_directories_that_it_lends() {
    let mut lab = Lab::with_options(1, &["--gc-delay", "1s"]);
    let (disk, own, content) = two_and_another(&mut lab);
    let (state, first) = (lab.donor_state("donor-1"), lab.lent("donor-1").0);
    let leave = ["leave", "--state", arg(&state)];
    // Files that are promised two copies cannot have them without both directories, so these are judged together.
    lab.cli.ok(&["space", "create", "twice", "--copies", "2"]);
    lab.cli.ok(&["cp", arg(&lab.dir().join("input")), "pot://twice/f"]);
    let stuck = lab.cli.fails(4, &[&leave[..], &["-y"]].concat());
    assert!(stuck.message.contains("nothing is begun"), "{stuck:?}");
    lab.cli.ok(&["rm", "pot://twice/f"]);

    // All that they hold is given back in one step, and called off in one.
    let give_back = ["drain", "--state", arg(&state)];
    let dirs = |said: &serde_json::Value| -> Vec<String> {
        let said = said["directories"].as_array().expect("directories").iter();
        said.map(|it| it["dir"].as_str().expect("a directory").to_owned()).collect()
    };
    let both = [arg(&first), arg(&disk)];
    let plan = lab.cli.json(&[&give_back[..], &["-n"]].concat());
    assert_eq!((dirs(&plan) == both, &plan["directories"][1]["active"]), (true, &false.into()));
    let given = lab.cli.json(&give_back);
    assert_eq!(dirs(&given), both, "{given}");
    for of in 0..2 {
        assert_eq!(given["directories"][of]["safe_to_remove"], true, "{given}");
    }
    assert_eq!(lab.cli.shares("pot://lab/f").into_keys().collect::<Vec<_>>(), ["donor-2"]);
    let off = lab.cli.json(&["drain", "--cancel", "--state", arg(&state)]);
    assert_eq!(dirs(&off), both, "{off}");
    for name in ["donor-1", "donor-1-2"] {
        assert!(lab.cli.donor(name)["giving_back"].is_null(), "{}", lab.cli.donor(name));
    }

    let all = serde_json::json!([disk, own, first, state]);
    let plan = lab.cli.json(&[&leave[..], &["-n"]].concat());
    assert_eq!(plan["would_remove"], all, "{plan}");
    let left = lab.cli.json(&[&leave[..], &["-y"]].concat());
    assert_eq!(left["removed"], all, "{left}");
    lab.donor("donor-1").end("a donor that left");
    assert!(!disk.exists() && !first.exists() && !state.exists());
    assert_eq!(donors(&lab), ["donor-2"]);
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
}

#[test]
fn immediate_leave_sums_losses_over_all_directories() {
    let lab = Lab::with_donors(1);
    let (disk, _) = add(&lab);
    // Each of the two donors loses nothing that the other has not.
    lab.cli.ok(&["space", "create", "lab", "--copies", "2"]);
    let (input, _) = file(lab.dir(), "input", 4, 1 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let state = lab.donor_state("donor-1");
    let leave = ["leave", "--now", "--state", arg(&state)];
    let plan = lab.cli.ok(&[&leave[..], &["-n"]].concat()).text();
    assert!(plan.contains("1 file would be lost for ever:\n  pot://lab/f"), "{plan}");
    lab.cli.fails(2, &leave); // nobody is there to be asked
    assert_eq!(donors(&lab), ["donor-1", "donor-1-2"]);
    let left = lab.cli.json(&[&leave[..], &["-y"]].concat());
    assert_eq!(left["left"], true, "{left}");
    assert!(donors(&lab).is_empty() && !disk.exists() && !state.exists());
}

/// Returns the donors that are live, as a machine's user is told.
pub fn live_on(machine: &Machine) -> Vec<String> {
    let said = machine.sh("potluck --json nodes ls");
    if said.code != 0 {
        return Vec::new();
    }
    let said = said.json();
    let donors = said["donors"].as_array().expect("donors").iter();
    let live = donors.filter(|donor| donor["state"] == "live");
    live.map(|donor| donor["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn missing_disk_does_not_stop_the_other_lent_disks() {
    let test = "missing_disk_does_not_stop_the_other_lent_disks";
    let Some(lab) = Machines::new(test, Naming::Dns, &["lab-head", "bench-1"]) else { return };
    let (head, bench) = (lab.machine("lab-head"), lab.machine("bench-1"));
    let terms = "--max 1GiB --keep-free 0%";
    head.start(&format!("potluck up /disk1/lent /disk2/lent {terms}"), "next: ");
    let token = head.sh("potluck -q invite --role donor").ok().text();
    bench.sh(&format!("echo {} > token", token.trim())).ok();
    let lend = format!("potluck lend /disk1/lent /disk2/lent {terms} --token-file token");
    bench.start(&lend, "in /disk2/lent");
    let all = ["lab-head", "lab-head-2", "bench-1", "bench-1-2"];
    wait_until("four disks", DEADLINE, || live_on(head).len() == all.len());
    head.sh("potluck space create lab --copies 2 --chunk-size 64KiB").ok();
    head.sh("head -c 4000000 /dev/urandom > /tmp/f && potluck cp /tmp/f pot://lab/f").ok();
    head.sh("potluck verify pot://lab/f").ok();
    // It is on record who enrolled whom.
    let members = head.sh("potluck --json members ls").ok().json();
    let of = |name: &str| {
        let listed = members["members"].as_array().expect("members").iter();
        let mut named = listed.filter(|member| member["name"] == name);
        named.next().unwrap_or_else(|| panic!("no {name} in {members}")).clone()
    };
    assert_eq!(of("bench-1-2")["invited_by"], of("bench-1")["member"]);

    // The first disk is not mounted at the next start; nobody names any directory.
    bench.stop("potluck lend", Signal::TERM);
    bench.sh("mv /disk1 /unplugged").ok();
    bench.start("potluck lend", "warning: /disk1/lent is not lent");
    wait_until("the other disk", DEADLINE, || {
        let live = live_on(head);
        live.iter().any(|name| name == "bench-1-2") && live.iter().all(|name| name != "bench-1")
    });
    bench.sh("mv /unplugged /disk1").ok();
    bench.signal("potluck lend", Signal::HUP);
    wait_until("all disks", DEADLINE, || live_on(head).len() == all.len());

    bench.sh("potluck give-back 512MiB --dir /disk2/lent").ok();
    let set = bench.sh("potluck set lend.max").ok().text();
    assert!(set.contains("512MiB"), "{set}");
    bench.sh("potluck away 3h").ok();
    let away = head.sh("potluck --json nodes ls").ok().json();
    let donors = away["donors"].as_array().expect("donors").iter();
    let announced = donors.filter(|donor| donor["away_seconds"].is_number());
    assert_eq!(announced.count(), 2, "{away}");
    bench.sh("potluck away --end").ok();

    head.sh("potluck policy set pot://lab --copies 1 -y").ok();
    bench.sh("potluck leave -y").ok();
    bench.sh("test ! -e /disk1/lent && test ! -e /disk2/lent").ok();
    bench.sh("test ! -e ~/.local/state/potluck/donor").ok();
    head.sh("potluck cp pot://lab/f /tmp/g && cmp /tmp/f /tmp/g").ok();
    wait_until("two disks", DEADLINE, || live_on(head).len() == 2);
}
