//! Tests that the daemons' logs tell an operator each change once, with the donor's name, and nothing again
//! and again.

use super::content::{arg, file};
use super::lab::{Lab, stop};
use super::program::Running;
use super::waiting::{DEADLINE, wait_until};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// Returns the lines that a daemon has logged, each without its time.
fn logged(lab: &Lab, daemon: &str) -> Vec<String> {
    let text = fs::read(lab.dir().join(format!("logs/{daemon}.log"))).expect("a log");
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = |line: &str| {
        let levels = ["INFO ", "WARN ", "ERROR "];
        levels.iter().find_map(|level| Some(line.split_once(level)?.1.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// Returns how many lines have all these words.
fn count(lines: &[String], words: &[&str]) -> usize {
    lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).count()
}

#[test]
fn death_repair_and_return_are_logged_once() {
    let mut lab = Lab::with_options(3, &["--repair-grace", "6s"]);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, _) = file(lab.dir(), "input", 1, 2 << 20);
    let quiet = lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    assert!(!quiet.stderr.contains("INFO"), "a command that ends is quiet: {}", quiet.stderr);
    lab.kill_donor("donor-1");
    wait_until("its death and the repair to be told of", DEADLINE * 2, || {
        let lines = logged(&lab, "manager");
        count(&lines, &["donor donor-1", "given up"]) > 0 && count(&lines, &["repair ended"]) > 0
    });
    lab.start_donor("donor-1");
    lab.wait_back("donor-1");
    wait_until("its return to be told of", DEADLINE, || {
        count(&logged(&lab, "manager"), &["donor donor-1", "is back"]) > 0
    });
    lab.cli.ok(&["nodes", "rm", "donor-1", "-y"]);
    let code = stop(lab.manager(), Signal::TERM);
    assert_eq!(code, 0);

    let lines = logged(&lab, "manager");
    for words in [
        &["manager of the pool", "serves at", "version"][..],
        &["donor donor-2 ", "joined"],
        &["donor donor-1 ", "is revoked"],
        &["manager has stopped"],
    ] {
        assert_eq!(count(&lines, words), 1, "{words:?} in {lines:#?}");
    }
    // A busy machine may hold the donor up for so long that it is missed again; each absence is told of once.
    let (mut silent, mut given_up) = (0, 0);
    for line in lines.iter().filter(|line| line.contains("donor donor-1 ")) {
        silent += usize::from(line.contains("is silent, for"));
        given_up += usize::from(line.contains("made again elsewhere"));
        if line.contains("is back; it was silent for") {
            let is_once = silent <= 1 && given_up <= 1 && silent + given_up > 0;
            assert!(is_once, "{silent} and {given_up} times: {lines:#?}");
            (silent, given_up) = (0, 0);
        }
    }
    assert_eq!(
        count(&lines, &["donor donor-1 ", "registered anew, at 127.0.0.1:"]),
        2,
        "{lines:#?}"
    );
    assert_eq!(
        count(&lines, &["repair began"]),
        count(&lines, &["repair ended"]) + count(&lines, &["repair came to a stop"]),
        "{lines:#?}"
    );
    let donor = logged(&lab, "donor-2");
    assert_eq!(count(&donor, &["the donor of", "serves at 127.0.0.1:"]), 1, "{donor:#?}");
}

#[test]
fn repeated_failures_do_not_flood_logs() {
    let mut lab = Lab::with_options(1, &["--backup-every", "200ms"]);
    let backups = lab.manager_dir().join("backups");
    wait_until("a backup", DEADLINE, || backups.is_dir());
    fs::rename(&backups, backups.with_extension("away")).expect("moved");
    fs::write(&backups, "no directory").expect("a file in its place");
    let change = |lab: &Lab, from: u32| {
        for n in from..from + 8 {
            lab.cli.ok(&["space", "create", &format!("space-{n}")]);
            super::waiting::pause(Duration::from_millis(400));
        }
    };
    change(&lab, 0);
    fs::remove_file(&backups).expect("removed");
    change(&lab, 8);
    wait_until("the log to say that it is over", DEADLINE, || {
        count(&logged(&lab, "manager"), &["is backed up to a file again"]) > 0
    });
    lab.kill_manager();
    super::waiting::pause(Duration::from_secs(8));
    lab.start_manager();
    lab.wait_live();
    // The manager counts a donor as live before the donor has heard so.
    wait_until("the donor to say that its manager is back", DEADLINE, || {
        count(&logged(&lab, "donor-1"), &["answers again"]) > 0
    });

    for daemon in ["manager", "donor-1"] {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for line in logged(&lab, daemon) {
            *seen.entry(line).or_default() += 1;
        }
        for (line, times) in seen {
            assert!(times <= 2, "{daemon} said {times} times: {line}");
        }
    }
    let lines = logged(&lab, "manager");
    assert_eq!(count(&lines, &["the catalog is not backed up to a file"]), 1, "{lines:#?}");
}

#[test]
fn lines_for_the_journal_have_a_weight_and_no_time() {
    let lab = Lab::empty();
    let path = lab.dir().join("journal");
    let journal = fs::File::create(&path).expect("a file in the test's own directory");
    let about = journal.metadata().expect("metadata");
    let stream = format!("{}:{}", about.dev(), about.ino());
    let state = lab.dir().join("state");
    let mut command = lab.cli.with_env("JOURNAL_STREAM", &stream).command();
    command.args(["manager", "--listen", "127.0.0.1:0", "--state", arg(&state)]);
    let mut manager = Running::start(command.stderr(journal));
    let read = || fs::read_to_string(&path).expect("text");
    wait_until("it to tell that it serves", DEADLINE, || read().contains("serves at"));
    assert_eq!(stop(&mut manager, Signal::TERM), 0);
    let text = read();
    assert!(text.contains("<6>the manager of the pool"), "{text}");
    assert!(text.contains("<6>the manager has stopped\n"), "{text}");
}
