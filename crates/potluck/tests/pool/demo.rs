//! The demo works and leaves nothing behind.

use super::content::{Lots, arg, file};
use super::lab::Lab;
use super::lent::files_of;
use super::program::code_of;
use super::waiting::{DEADLINE, pause, wait_until};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Returns the command lines of processes that name a path below `dir`.
fn processes_of(dir: &Path) -> Vec<String> {
    let lines = files_of(Path::new("/proc")).into_iter().filter_map(|process| {
        let line = fs::read(process.join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.filter(|line| line.contains(arg(dir))).collect()
}

fn assert_nothing_left(place: &Path) {
    wait_until("the demo's processes to be gone", DEADLINE, || processes_of(place).is_empty());
    assert_eq!(files_of(place), [""; 0].map(std::path::PathBuf::from), "files are left");
}

fn place(lab: &Lab) -> std::path::PathBuf {
    let place = lab.dir().join("demo");
    fs::create_dir(&place).expect("a directory in the test's own");
    place
}

#[test]
fn demo_leaves_nothing_behind() {
    let lab = Lab::empty();
    let place = place(&lab);
    let (input, content) = file(lab.dir(), "input", 2, 24 << 20);
    let report = lab.cli.json(&["demo", arg(&input), "--dir", arg(&place)]);
    assert_eq!(report["files"], 1, "{report}");
    assert_eq!(report["bytes"], content.len(), "{report}");
    assert_eq!(report["verified"], true, "{report}");
    let donors = report["donors"].as_array().expect("donors");
    assert_eq!(donors.len(), 4, "{report}");
    let killed: Vec<_> = donors.iter().filter(|donor| donor["killed"] == true).collect();
    assert_eq!(killed.len(), 1, "{report}");
    assert!(killed[0]["chunks"].as_u64() > Some(0), "the kill must cost something: {report}");
    let stored: u64 = donors.iter().filter_map(|donor| donor["stored_bytes"].as_u64()).sum();
    assert!(stored >= 2 * content.len() as u64, "all copies are told of: {report}");
    for phase in ["store", "read_back"] {
        for figure in ["mib_s", "cpu_s_per_gib"] {
            assert!(report[phase][figure].as_f64() > Some(0.0), "{phase} {figure}: {report}");
        }
    }
    assert_nothing_left(&place);
}

#[test]
fn demo_prints_a_short_table_for_people() {
    let lab = Lab::empty();
    let place = place(&lab);
    let (input, _) = file(lab.dir(), "input", 2, 9 << 20);
    let ran = lab.cli.ok(&["demo", arg(&input), "--dir", arg(&place)]);
    for expected in ["MiB/s", "CPU-s/GiB", "donor-1", "killed", "What the kill changed"] {
        assert!(ran.text().contains(expected), "no “{expected}” in:\n{}", ran.text());
    }
    assert!(ran.text().lines().count() < 25, "{}", ran.text());
}

#[test]
fn demo_of_next_to_nothing_invents_no_figures() {
    let lab = Lab::empty();
    let place = place(&lab);
    let (input, _) = file(lab.dir(), "input", 2, 0);
    let ran = lab.cli.ok(&["demo", arg(&input), "--dir", arg(&place)]);
    assert!(!ran.text().contains("NaN"), "{}", ran.text());
    let report = lab.cli.json(&["demo", arg(&input), "--dir", arg(&place)]);
    for phase in ["store", "read_back"] {
        assert!(report[phase].get("cpu_s_per_gib").is_none(), "{report}");
    }
}

#[test]
fn demo_leaves_nothing_behind_after_ctrl_c() {
    let lab = Lab::empty();
    let place = place(&lab);
    let (input, _) = file(lab.dir(), "input", 3, 24 << 20);
    let mut lots = Lots::new("moments of Ctrl-C", 2);
    let mut interrupted = 0;
    for round in 0..4 {
        let mut demo = lab.cli.start(&["demo", arg(&input), "--dir", arg(&place)]);
        // The demo is stopped the moment there is something to leave behind, and then at any moment
        // of its life.
        wait_until("the demo to begin", DEADLINE, || !files_of(&place).is_empty());
        pause(Duration::from_millis(round * (100 + lots.below(250))));
        demo.signal(Signal::INT);
        let code = code_of(demo.end("the interrupted demo"));
        assert!([0, 130].contains(&code), "exit code {code}");
        interrupted += usize::from(code == 130);
        assert_nothing_left(&place);
    }
    assert!(interrupted > 0, "every demo was over before its Ctrl-C");
}
