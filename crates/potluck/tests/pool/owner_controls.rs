//! What an owner says of this machine holds within a second, and the pool hears of it: pause, hours, bandwidth.

use super::content::{arg, assert_same, file};
use super::docs::{Typist, blocks};
use super::lab::{Cli, Lab, stop};
use super::machines::{Machines, Naming};
use super::program::Running;
use super::waiting::{DEADLINE, pause, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

/// Returns the commands of the owner of a donor's machine, whose home has the donor's state and no user's identity.
fn owner_of(lab: &Lab, name: &str) -> Cli {
    let owner = lab.cli.at_home(&lab.dir().join("owner"));
    let state = lab.dir().join("owner/state/potluck");
    fs::create_dir_all(&state).expect("made");
    symlink(lab.donor_state(name), state.join("donor")).expect("linked");
    owner
}

/// Returns the bytes that a process has read and written so far, on disks and sockets together.
fn moved(running: &Running) -> u64 {
    let io = fs::read_to_string(format!("/proc/{}/io", running.pid())).expect("its counters");
    let counted = |name: &str| -> u64 {
        let line = io.lines().find_map(|line| line.strip_prefix(name)).expect("a counter");
        line.trim().parse().expect("a number")
    };
    counted("rchar:") + counted("wchar:")
}

fn state_of(lab: &Lab, name: &str) -> Value {
    lab.cli.donor(name)["state"].clone()
}

/// Promise (c) to an owner: nothing is read, written, sent or received a second after a pause.
#[test]
fn a_pause_silences_a_busy_donor_until_it_is_resumed() {
    let mut lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "1MiB"]);
    let (input, content) = file(lab.dir(), "input", 3, 24 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    lab.wait_settled();
    let owner = owner_of(&lab, "donor-1");

    // Somebody reads, so slowly that the pause comes in the middle of a chunk.
    owner.ok(&["set", "lend.bwlimit", "1M:off"]);
    let copy = lab.dir().join("copy");
    let reading = lab.cli.start(&["cp", "pot://lab/f", arg(&copy)]);
    let served = moved(lab.donor("donor-1"));
    wait_until("bytes to be served", DEADLINE, || moved(lab.donor("donor-1")) > served + (1 << 20));
    let paused = owner.json(&["pause", "30m"]);
    assert_eq!(paused["paused"], true, "{paused}");
    assert_eq!(paused["only_here"], 0, "{paused}");
    assert_eq!(paused["in_force"]["rule"], "pause", "{paused}");
    pause(Duration::from_secs(1));
    let before = moved(lab.donor("donor-1"));
    pause(Duration::from_secs(3));
    let during = moved(lab.donor("donor-1")) - before;
    assert!(during < 1 << 20, "{during} bytes, and heartbeats are a few thousand");
    drop(reading);

    // The pool knows at once, and neither waits for it nor makes anything again.
    wait_until("the pool to know", DEADLINE, || state_of(&lab, "donor-1") == "away");
    let listed = lab.cli.ok(&["nodes", "ls"]).text();
    assert!(listed.contains("paused by its owner"), "{listed}");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "from the other donor");
    let text = owner.ok(&["lend", "status"]).text();
    assert!(text.contains("paused until"), "{text}");

    // It holds after a restart, and twice is once.
    lab.kill_donor("donor-1");
    lab.start_donor("donor-1");
    assert_eq!(owner.json(&["pause", "30m"])["paused"], true);
    wait_until("it to be away again", DEADLINE, || state_of(&lab, "donor-1") == "away");

    owner.ok(&["set", "lend.bwlimit", "--unset"]);
    let resumed = owner.json(&["resume"]);
    assert_eq!(resumed["in_force"]["mode"], "full", "{resumed}");
    assert_eq!(owner.json(&["resume"])["paused"], false, "twice is once");
    wait_until("it to be back", DEADLINE, || state_of(&lab, "donor-1") == "live");
    lab.kill_donor("donor-2");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "from the one that was paused");
}

#[test]
fn pausing_the_only_holder_says_so_and_wants_a_yes() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--copies", "1"]);
    let (input, _) = file(lab.dir(), "input", 3, 1 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/only"]);
    lab.wait_settled();
    let owner = owner_of(&lab, "donor-1");
    let looked = owner.run(&["pause", "-n"]).ok();
    assert!(looked.stderr.contains("only this machine has 1 file"), "{looked:?}");
    let refused = owner.fails(2, &["pause"]);
    assert!(refused.hint.contains("-y"), "{refused:?}");
    assert_eq!(state_of(&lab, "donor-1"), "live");
    let text = owner.ok(&["pause", "-y"]).text();
    assert!(text.contains("paused until `potluck resume`"), "{text}");
    wait_until("it to be away", DEADLINE, || state_of(&lab, "donor-1") == "away");
    owner.ok(&["pause", "1s"]);
    wait_until("the pause to end by itself", DEADLINE, || state_of(&lab, "donor-1") == "live");
    lab.cli.ok(&["cat", "pot://lab/only"]);
}

/// A desktop is off at night, which is no reason to make anything elsewhere.
#[test]
fn donor_that_is_shut_down_says_goodbye() {
    let mut lab = Lab::with_donors(1);
    let manager = lab.manager_dir();
    lab.cli.ok(&["set", "manager.repair-grace", "1s", "--state", arg(&manager)]);
    assert_eq!(stop(lab.donor("donor-1"), Signal::TERM), 0);
    assert_eq!(state_of(&lab, "donor-1"), "away", "nothing was waited for");
    let listed = lab.cli.ok(&["nodes", "ls"]).text();
    assert!(listed.contains("shut down, away for "), "{listed}");
    pause(Duration::from_secs(3));
    assert_eq!(state_of(&lab, "donor-1"), "away", "it is not given up after the grace");
    lab.start_donor("donor-1");
    wait_until("it to be back", DEADLINE, || state_of(&lab, "donor-1") == "live");
}

#[test]
fn hours_hold_while_the_daemon_runs_and_after() {
    let lab = Lab::with_donors(1);
    let owner = owner_of(&lab, "donor-1");
    let why = owner.fails(2, &["set", "lend.hours", "Mon-Fri 9-18 polite"]);
    assert!(why.message.contains("09:00-18:00"), "{why:?}");
    let set = |value: &str| owner.ok(&["set", "lend.hours", value]);
    let mode = || lab.cli.donor("donor-1")["mode"].clone();
    set("00:00-24:00 polite");
    wait_until("it to be polite", DEADLINE, || mode() == "polite");
    let listed = lab.cli.ok(&["nodes", "ls"]).text();
    assert!(listed.contains("live, polite"), "{listed}");
    let text = owner.ok(&["lend", "status"]).text();
    assert!(text.contains("polite") && text.contains("at most 20.0 MiB/s"), "{text}");
    set("reads");
    wait_until("it to take nothing", DEADLINE, || {
        mode() == "reads" && lab.cli.donor("donor-1")["room"] == 0
    });
    set("Mon-Sun off");
    wait_until("it to be off", DEADLINE, || state_of(&lab, "donor-1") == "away");
    assert_eq!(owner.json(&["lend", "status"])["owner"]["rule"], "hours");
    owner.ok(&["set", "lend.hours", "--unset"]);
    wait_until("it to be live", DEADLINE, || state_of(&lab, "donor-1") == "live");
}

#[test]
fn the_bill_tells_what_was_moved_and_survives_kill_9() {
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--copies", "1", "--chunk-size", "64KiB"]);
    lab.cli.ok(&["space", "create", "open", "--copies", "1", "--plain"]);
    let (input, _) = file(lab.dir(), "input", 3, 4 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/secret-name"]);
    lab.cli.ok(&["cp", arg(&input), "pot://open/f"]);
    lab.cli.ok(&["cat", "pot://lab/secret-name"]);
    let owner = owner_of(&lab, "donor-1");
    let today = || owner.json(&["cost"])["today"].clone();
    let is_noted = |cost: &Value| {
        cost["received"].as_u64() >= Some(8 << 20) && cost["served"].as_u64() >= Some(4 << 20)
    };
    wait_until("it to be noted", DEADLINE, || is_noted(&today()));
    lab.kill_donor("donor-1");
    let killed = today();
    assert!(is_noted(&killed), "{killed}");
    lab.start_donor("donor-1");
    lab.wait_live();
    let bill = owner.json(&["cost", "--endurance", "600TB"]);
    assert_eq!(bill["days"], 1, "{bill}");
    assert!(bill["today"]["lent"].as_u64() > Some(0), "{bill}");
    assert!(bill["endurance_share_a_year"].as_f64().is_some_and(|share| share < 1.0), "{bill}");
    let picture = lab.dir().join("year.svg");
    let text = owner.ok(&["cost", "--svg", arg(&picture)]).text();
    for part in ["today:", "a day:", "delay:", "a year:", "month"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(fs::read_to_string(picture).expect("drawn").contains("</svg>"));

    // The owner sees how much of what is here, and who came, and no names.
    let seen = owner.json(&["inspect"]);
    assert!(seen["stored"]["bytes"].as_u64() >= Some(8 << 20), "{seen}");
    let spaces = seen["held_of"]["by_space"].as_array().expect("spaces");
    let sealed: Vec<_> = spaces.iter().map(|one| one["sealed"].as_bool()).collect();
    assert!(sealed.contains(&Some(true)) && sealed.contains(&Some(false)), "{seen}");
    let wrote = |one: &Value| one["written"].as_u64() >= Some(8 << 20);
    let visitors = seen["visitors"].as_array().expect("visitors");
    assert!(visitors.iter().any(|one| one["visitor"]["member"].is_u64() && wrote(one)), "{seen}");
    let text = owner.ok(&["inspect"]).text();
    assert!(text.contains("nobody can read it here"), "{text}");
    assert!(text.contains("whoever has this disk could read"), "{text}");
    assert!(!text.contains("secret-name") && !text.contains("lab"), "{text}");
    let text = owner.ok(&["lend", "status"]).text();
    for part in ["you let it: full", "today:", "visitors: 1 member", "more: potluck cost"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// The donor runs meanwhile, and goes by what was measured without a restart.
#[test]
fn calibration_is_kept_told_and_drawn() {
    let lab = Lab::with_donors(1);
    let stranger = lab.cli.at_home(&lab.dir().join("stranger"));
    let refused = stranger.fails(8, &["lend", "--calibrate"]);
    assert!(refused.hint.contains("potluck join"), "{refused:?}");
    let owner = owner_of(&lab, "donor-1");
    let text = owner.ok(&["lend", "status"]).text();
    assert!(text.contains("potluck lend --calibrate"), "{text}");
    let picture = lab.dir().join("impact.svg");
    let line = ["lend", "--calibrate", "--calibrate-for", "3s", "--svg", arg(&picture)];
    let measured = owner.json(&line);
    for resource in ["cpu", "memory", "disk", "network"] {
        let curves = measured["curves"].as_array().expect("curves");
        let curve = curves.iter().find(|curve| curve["resource"] == resource).expect(resource);
        let points = curve["points"].as_array().expect("points");
        assert_eq!(points.len(), 4, "{curve}");
        let of = |what: &str| points.iter().map(|it| it[what].as_f64()).collect::<Option<Vec<_>>>();
        let (rates, slowdowns) = (of("rate").expect("rates"), of("slowdown").expect("slowdowns"));
        assert!(rates.is_sorted() && slowdowns.is_sorted(), "{curve}");
    }
    assert!(fs::read_to_string(picture).expect("drawn").contains("</svg>"));
    assert!(owner.json(&["cost"])["impact"]["curves"].is_array());
    let text = owner.ok(&["lend", "status"]).text();
    assert!(text.contains("impact: measured "), "{text}");
    let left = fs::read_dir(lab.lent("donor-1").0).expect("a store").count();
    assert!(left <= 4, "nothing is left of what was read: {left}");
}

#[test]
fn owners_control_their_machine_as_documented() {
    let test = "owners_control_their_machine_as_documented";
    let Some(lab) = Machines::new(test, Naming::Dns, &["alice"]) else { return };
    let typist = Typist::new(&lab);
    typist.types_line(lab.machine("alice"), "potluck up --max 200GiB");
    for heading in [
        "Stop, now",
        "By the clock",
        "How much of the network",
        "On battery",
        "What it costs",
        "How much slower this machine becomes",
        "What is stored here, and who comes",
    ] {
        for block in blocks("docs/owners.md", heading) {
            typist.types(&block, "alice");
        }
    }
    lab.machine("alice").sh("test -s year.svg && test -s impact.svg").ok();
}
