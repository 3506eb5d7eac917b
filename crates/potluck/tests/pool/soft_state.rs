//! Tests that donors report, fall silent, and come back.

use super::content::{arg, assert_same, file};
use super::lab::Lab;
use super::waiting::{DEADLINE, pause, wait_until};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// The seconds of silence after which a donor is suspect.
const SUSPECT_AFTER: u64 = 5;

/// A bound of the time that a silent donor costs a command which it does not hold up: it would give the donor up after
/// 8 s.
const UNNOTICED: Duration = Duration::from_secs(7);

#[test]
fn donors_report_load_and_inventory_regularly() {
    let lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (input, _) = file(lab.dir(), "input", 10, 1 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    wait_until("the donors' own counts of what they hold", DEADLINE, || {
        let used = |name: &str| lab.cli.donor(name)["used"].as_u64().unwrap_or_default();
        used("donor-1") + used("donor-2") > 1 << 20
    });
    let donor = lab.cli.donor("donor-1");
    let load = &donor["load"];
    for field in [
        "cpu_busy",
        "load1",
        "memory_free",
        "memory_total",
        "disk_busy",
        "disk_read_bytes_s",
        "disk_write_bytes_s",
        "io_processes",
        "net_rx_bytes_s",
        "net_tx_bytes_s",
        "served_bytes_s",
        "stored_bytes_s",
    ] {
        assert!(load[field].is_number(), "no {field} in {load}");
    }
    assert!(load["memory_total"].as_u64() > Some(0), "{load}");
    if std::path::Path::new("/proc/pressure/cpu").exists() {
        for field in ["cpu", "io", "memory"] {
            assert!(load["pressure"][field].is_number(), "no pressure of {field} in {load}");
        }
    }
    // Over some seconds no donor is ever silent for long enough to be suspect, but where a busy machine holds it up.
    let is_heard = (0..3).any(|_| {
        let (until, mut longest) = (Instant::now() + Duration::from_secs(3), Some(0));
        while Instant::now() < until {
            let silent = |name| lab.cli.donor(name)["silent_seconds"].as_u64();
            longest = longest.max(silent("donor-1")).max(silent("donor-2"));
            pause(Duration::from_millis(100));
        }
        longest < Some(SUSPECT_AFTER)
    });
    assert!(is_heard, "a donor was silent for {SUSPECT_AFTER} s, three times");
}

#[test]
fn silence_makes_a_donor_suspect_within_5_s_and_nobody_waits() {
    let mut lab = Lab::with_donors(3);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 11, 4 << 20);
    let wrote = lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]).took;
    let read = lab.cli.ok(&["cat", "pot://lab/f"]).took;
    let unnoticed = UNNOTICED + wrote.max(read);

    lab.donor("donor-2").signal(Signal::STOP);
    // The manager does not know yet, and nobody waits all the same.
    let ran = lab.cli.ok(&["cat", "pot://lab/f"]);
    assert_same(&ran.stdout, &content, "the file");
    println!("a read while the manager did not know took {:?}", ran.took);
    assert!(ran.took < unnoticed, "a read took {:?}", ran.took);
    let (other, _) = file(lab.dir(), "other", 12, 4 << 20);
    let ran = lab.cli.ok(&["cp", arg(&other), "pot://lab/g"]);
    println!("a write while the manager did not know took {:?}", ran.took);
    assert!(ran.took < unnoticed, "a write took {:?}", ran.took);

    wait_until("the donor to be suspect", DEADLINE, || {
        let donor = lab.cli.donor("donor-2");
        let noticed = donor["state"] == "suspect";
        // The manager measures the silence; how often the test looks depends on the machine.
        assert!(noticed || donor["silent_seconds"].as_u64() <= Some(SUSPECT_AFTER), "{donor}");
        noticed
    });

    // The donor is known to be suspect now, and is not even asked.
    let ran = lab.cli.ok(&["cat", "pot://lab/f"]);
    println!("a read with a suspect took {:?}", ran.took);
    assert!(ran.took < unnoticed, "a read took {:?}", ran.took);
    let (third, _) = file(lab.dir(), "third", 13, 4 << 20);
    let ran = lab.cli.ok(&["cp", arg(&third), "pot://lab/h"]);
    assert!(ran.took < unnoticed, "a write took {:?}", ran.took);
    assert!(!lab.cli.shares("pot://lab/h").contains_key("donor-2"));
    assert_eq!(lab.cli.json(&["stat", "pot://lab/f"])["live_copies"], 1);
    let text = lab.cli.ok(&["status"]).text();
    assert!(text.contains("silent for") && text.contains("2 of 3 donors live"), "{text}");

    // The donor wakes up, and is used and counted again.
    lab.donor("donor-2").signal(Signal::CONT);
    wait_until("the donor to be live", DEADLINE, || lab.cli.live_donors().len() == 3);
    wait_until("its copies to count", DEADLINE, || {
        lab.cli.json(&["stat", "pot://lab/f"])["live_copies"] == 2
    });
    let (fourth, _) = file(lab.dir(), "fourth", 14, 4 << 20);
    lab.cli.ok(&["cp", arg(&fourth), "pot://lab/i", "--copies", "3"]);
    assert_eq!(lab.cli.shares("pot://lab/i")["donor-2"], 64);
}

#[test]
fn a_returning_donor_counts_again() {
    let mut lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 15, 2 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    lab.kill_donor("donor-1");
    wait_until("the dead donor to be noticed", DEADLINE, || {
        lab.cli.json(&["stat", "pot://lab/f"])["live_copies"] == 1
    });
    // While the donor is away, some of its chunks are lost.
    let lost = lab.lent("donor-1").chunks()[..3].to_vec();
    lost.iter().for_each(|path| std::fs::remove_file(path).expect("a chunk file"));
    lab.start_donor("donor-1");
    lab.wait_back("donor-1");
    wait_until("what it still holds to be counted", DEADLINE, || {
        lab.cli.shares("pot://lab/f")["donor-1"] == 29
    });
    assert_eq!(
        lab.cli.json(&["stat", "pot://lab/f"])["live_copies"],
        1,
        "three chunks have one copy"
    );
    assert_eq!(lab.cli.donor("donor-1")["bad"], 3);
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
    // Storing it again restores the copies that are missing.
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    assert_eq!(lab.cli.json(&["stat", "pot://lab/f"])["live_copies"], 2);
    // The returned donor has the only copies once the other one dies.
    lab.kill_donor("donor-2");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file from the returned donor alone");
}

#[test]
fn chunks_that_the_catalog_does_not_know_are_kept() {
    let mut lab = Lab::with_options(1, &["--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--plain", "--chunk-size", "64KiB"]);
    let (input, _) = file(lab.dir(), "input", 16, 1 << 20);
    let (manager, saved) = (lab.manager_dir(), lab.dir().join("saved"));
    lab.kill_manager();
    std::fs::create_dir(&saved).expect("a directory");
    for name in ["catalog.db", "catalog.db-wal"] {
        std::fs::copy(manager.join(name), saved.join(name)).expect("copied");
    }
    lab.start_manager();
    lab.wait_live();
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    // The manager is set back to before the file.
    lab.kill_manager();
    std::fs::remove_file(manager.join("catalog.db-shm")).expect("removed");
    for name in ["catalog.db", "catalog.db-wal"] {
        std::fs::copy(saved.join(name), manager.join(name)).expect("copied");
    }
    lab.start_manager();
    wait_until("the donor's list of what nobody knows", DEADLINE, || {
        lab.cli.json(&["gc", "unknown", "ls"])["chunks"] == 16
    });
    // Whatever this manager orders from now on, nothing is deleted for being unknown (D5).
    pause(Duration::from_secs(4));
    assert_eq!(lab.lent("donor-1").chunks().len(), 16);
}
