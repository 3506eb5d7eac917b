//! Tests that files of a tree become visible while the others are still on their way, or all at one moment.

use super::content::{arg, file, tree_of};
use super::lab::{Cli, Lab};
use super::program::code_of;
use super::tap::Tap;
use super::waiting::{DEADLINE, wait_until};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};

/// The bytes a second that the only donor takes over a connection.
const SLOW: u64 = 2 << 20;

/// Makes a pool that takes as long for a tree as a test needs.
fn slow_pool(options: &[&str]) -> (Lab, Tap) {
    let mut lab = Lab::manager_only(options);
    let tap = lab.lend_behind("donor-1", Tap::slow(SLOW));
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    (lab, tap)
}

/// Makes a tree of `files` files of 512 KiB.
fn tree(dir: &Path, files: u64) -> PathBuf {
    let tree = dir.join("tree");
    fs::create_dir(&tree).expect("a directory");
    for number in 0..files {
        file(&tree, &format!("{number:03}"), number, 512 << 10);
    }
    tree
}

fn visible(cli: &Cli) -> usize {
    let listed = cli.run(&["--json", "ls", "-r", "pot://lab/tree"]);
    if listed.code == 0 { listed.json()["entries"].as_array().expect("entries").len() } else { 0 }
}

#[test]
fn tree_upload_is_incremental_and_resumable() {
    let (lab, _tap) = slow_pool(&["--resume-window", "10m"]);
    let tree = tree(lab.dir(), 40);
    let mut copying = lab.cli.start(&["cp", "-r", arg(&tree), "pot://lab/"]);
    wait_until("some files to be visible", DEADLINE, || visible(&lab.cli) > 0);
    assert!(copying.ended().is_none(), "the others are still on their way");
    copying.signal(Signal::INT);
    assert_eq!(code_of(copying.end("the interrupted copy")), 130);
    let there = visible(&lab.cli);
    assert!(there < 40, "{there} of 40 were visible when it was interrupted");
    let report = lab.cli.json(&["cp", "-r", arg(&tree), "pot://lab/"]);
    assert_eq!(report["files"], 40, "{report}");
    let sent = report["sent_bytes"].as_u64().expect("a count");
    assert!(sent <= (40 - there as u64) * (513 << 10), "{there} were there: {report}");
    let back = lab.dir().join("back");
    lab.cli.ok(&["cp", "-r", "pot://lab/tree", arg(&back)]);
    assert_eq!(tree_of(&back), tree_of(&tree));
}

#[test]
fn an_atomic_tree_becomes_visible_at_one_moment() {
    let (lab, _tap) = slow_pool(&[]);
    let tree = tree(lab.dir(), 24);
    let mut copying = lab.cli.start(&["cp", "-r", "--atomic", arg(&tree), "pot://lab/"]);
    let mut seen = Vec::new();
    wait_until("the copy to end", DEADLINE, || {
        seen.push(visible(&lab.cli));
        copying.ended().is_some()
    });
    assert_eq!(code_of(copying.end("the copy")), 0);
    assert_eq!(visible(&lab.cli), 24);
    assert!(seen.len() > 1 && seen.iter().all(|seen| [0, 24].contains(seen)), "{seen:?}");
}

#[test]
fn atomic_tree_upload_is_invisible_when_one_file_is_refused() {
    let lab = Lab::with_options(1, &["--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let tree = tree(lab.dir(), 4);
    lab.cli.ok(&["mkdir", "-p", "pot://lab/tree/002"]);
    let refused = lab.cli.fails(10, &["cp", "-r", "--atomic", arg(&tree), "pot://lab/"]);
    assert_eq!(refused.code, "POT-E022", "{refused:?}");
    assert_eq!(visible(&lab.cli), 1, "only the directory that was there");
    lab.wait_clean(0);
}
