//! Tests `potluck sync`: a directory becomes like another, and what is the same stays.

use super::content::{arg, bytes};
use super::lab::Lab;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Makes a pool, and a local tree with files, a link and an empty directory.
fn begun() -> (Lab, std::path::PathBuf) {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let dir = lab.dir().join("results");
    fs::create_dir_all(dir.join("a/b")).expect("made");
    fs::create_dir(dir.join("empty")).expect("made");
    fs::write(dir.join("a/one"), bytes(1, 100_000)).expect("written");
    fs::write(dir.join("a/b/two"), bytes(2, 300_000)).expect("written");
    fs::write(dir.join("three"), b"3").expect("written");
    symlink("three", dir.join("link")).expect("made");
    (lab, dir)
}

fn counts(synced: &Value) -> [u64; 4] {
    ["new", "changed", "same", "removed"].map(|name| synced[name].as_u64().expect("a number"))
}

fn is_same(one: &Path, other: &Path) -> bool {
    let mut diff = std::process::Command::new("diff");
    diff.args(["-r", "--no-dereference"]).args([one, other]);
    diff.output().expect("diff is there").status.success()
}

#[test]
fn sync_copies_what_differs_both_ways() {
    let (lab, dir) = begun();
    let sync = |args: &[&str]| lab.cli.json(&[&["sync"], args].concat());
    let to_pool = [arg(&dir), "pot://lab/results"];
    let planned = sync(&[&to_pool[..], &["-n"]].concat());
    assert_eq!(planned["new"].as_array().map(Vec::len), Some(7), "{planned}");
    lab.cli.fails(3, &["stat", "pot://lab/results"]);
    assert_eq!(counts(&sync(&to_pool)), [7, 0, 0, 0]);
    let version = |path: &str| lab.cli.json(&["stat", path])["entry"]["version"].clone();
    let before = version("pot://lab/results/a/one");
    assert_eq!(counts(&sync(&to_pool)), [0, 0, 4, 0]);

    fs::write(dir.join("three"), b"4").expect("written");
    fs::remove_file(dir.join("a/b/two")).expect("removed");
    fs::write(dir.join("new"), b"n").expect("written");
    let synced = sync(&to_pool);
    assert_eq!((counts(&synced), &synced["extra"]), ([1, 1, 2, 0], &1.into()));
    lab.cli.ok(&["stat", "pot://lab/results/a/b/two"]);
    assert_eq!(counts(&sync(&[&to_pool[..], &["--delete"]].concat())), [0, 0, 4, 1]);
    lab.cli.fails(3, &["stat", "pot://lab/results/a/b/two"]);
    assert_eq!(version("pot://lab/results/a/one"), before, "the same file was not stored again");

    let here = lab.dir().join("here");
    let from_pool = ["pot://lab/results", arg(&here)];
    assert_eq!(counts(&sync(&from_pool)), [7, 0, 0, 0]);
    assert!(is_same(&dir, &here));
    fs::write(here.join("a/one"), b"changed here").expect("written");
    fs::create_dir(here.join("only-here")).expect("made");
    assert_eq!(counts(&sync(&[&from_pool[..], &["--delete"]].concat())), [0, 1, 3, 1]);
    assert!(is_same(&dir, &here));
}

#[test]
fn sync_by_digest_sees_a_change_that_times_hide() {
    let (lab, dir) = begun();
    let to_pool = ["sync", arg(&dir), "pot://lab/results"];
    lab.cli.ok(&to_pool);
    let old = fs::metadata(dir.join("three")).expect("there").modified().expect("known");
    fs::write(dir.join("three"), b"x").expect("written");
    File::options()
        .write(true)
        .open(dir.join("three"))
        .expect("open")
        .set_modified(old)
        .expect("set");
    let touched = File::options().write(true).open(dir.join("a/one")).expect("open");
    touched.set_modified(SystemTime::now() + Duration::from_secs(5)).expect("set");
    assert_eq!(lab.cli.json(&[&to_pool[..], &["-n"]].concat())["changed"][0], "a/one");
    assert_eq!(counts(&lab.cli.json(&[&to_pool[..], &["--digest"]].concat())), [0, 1, 3, 0]);
    assert_eq!(lab.cli.cat("pot://lab/results/three"), b"x");
}

#[test]
fn sync_replaces_another_kind_only_if_it_may_delete() {
    let (lab, dir) = begun();
    lab.cli.ok(&["sync", arg(&dir), "pot://lab/results"]);
    fs::remove_file(dir.join("three")).expect("removed");
    fs::create_dir(dir.join("three")).expect("made");
    fs::write(dir.join("three/in"), b"in").expect("written");
    lab.cli.fails(10, &["sync", arg(&dir), "pot://lab/results"]);
    assert_eq!(lab.cli.cat("pot://lab/results/three"), b"3");
    lab.cli.ok(&["sync", arg(&dir), "pot://lab/results", "--delete"]);
    assert_eq!(lab.cli.cat("pot://lab/results/three/in"), b"in");
    lab.cli.fails(2, &["sync", arg(&dir), arg(lab.dir())]);
    lab.cli.fails(3, &["sync", "pot://lab/nothing", arg(&dir)]);
    lab.cli.fails(3, &["sync", "/nothing/here", "pot://lab/results"]);
}
