//! Tests mounts whose close() waits for the disk of their machine alone (`--close local`).

use super::{Mount, mounted};
use crate::pool::content::{arg, assert_same, bytes};
use crate::pool::lab::{Cli, Lab};
use crate::pool::waiting::{DEADLINE, wait_until};
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

const LOCAL: &[&str] = &["--close", "local"];
/// A size in bytes of some chunks, which is no multiple of theirs.
const LARGE: usize = 300_001;

fn one_donor(test: &str) -> Option<(Lab, Mount)> {
    mounted(test, 1, &["--chunk-size", "64KiB"], LOCAL)
}

fn is_there(cli: &Cli, path: &str) -> bool {
    cli.run(&["stat", path]).code == 0
}

/// Returns the files that wait on this machine.
fn waiting(lab: &Lab) -> Vec<PathBuf> {
    let dir = lab.dir().join("home/cache/potluck/spool/closed");
    let entries = fs::read_dir(dir).into_iter().flatten();
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

/// Whatever the donor does: it is stopped, and close() of each file returns all the same.
#[test]
fn close_local_waits_for_no_donor_and_keeps_order() {
    let Some((mut lab, mount)) = one_donor("close_local_waits_for_no_donor_and_keeps_order") else {
        return;
    };
    fs::write(mount.at("old"), bytes(1, LARGE)).expect("written");
    wait_until("the first version", DEADLINE, || is_there(&lab.cli, "pot://lab/old"));
    lab.donor("donor-1").signal(Signal::STOP);
    let (new, large) = (bytes(2, LARGE), bytes(3, 9 << 20));
    fs::write(mount.at("large"), &large).expect("written");
    fs::write(mount.at("old"), &new).expect("written");
    File::create(mount.at("empty")).expect("made");
    let sparse = File::create(mount.at("sparse")).expect("made");
    sparse.write_all_at(b"far", 1 << 30).expect("written");
    drop(sparse);

    // This mount reads what was closed and waits for its turn; others see what was there.
    assert_same(&fs::read(mount.at("old")).expect("read"), &new, "old here");
    assert_eq!(fs::metadata(mount.at("sparse")).expect("seen").len(), (1 << 30) + 3);
    assert!(!is_there(&lab.cli, "pot://lab/large") && !is_there(&lab.cli, "pot://lab/empty"));
    assert_eq!(waiting(&lab).len(), 8, "each file with its description: {:?}", waiting(&lab));

    lab.donor("donor-1").signal(Signal::CONT);
    wait_until("what was closed last", DEADLINE, || is_there(&lab.cli, "pot://lab/sparse"));
    assert!(is_there(&lab.cli, "pot://lab/empty"), "it was closed before");
    assert_same(&lab.cli.cat("pot://lab/large"), &large, "large");
    assert_same(&lab.cli.cat("pot://lab/old"), &new, "old");
    lab.cli.ok(&["umount", arg(&mount.dir)]);
    assert!(waiting(&lab).is_empty());
}

fn put(lab: &Lab, path: &str, content: &[u8]) {
    let file = lab.dir().join("content");
    fs::write(&file, content).expect("written");
    lab.cli.ok(&["cp", arg(&file), path]);
}

#[test]
fn close_local_files_outlive_a_killed_mount() {
    let Some((mut lab, mut mount)) = one_donor("close_local_files_outlive_a_killed_mount") else {
        return;
    };
    for path in ["pot://lab/replaced", "pot://lab/overtaken"] {
        put(&lab, path, b"old");
    }
    lab.donor("donor-1").signal(Signal::STOP);
    let content = bytes(4, LARGE);
    let mut new = OpenOptions::new();
    let mut new = new.write(true).create_new(true).mode(0o640).open(mount.at("new")).expect("made");
    new.write_all(&content).expect("written");
    drop(new);
    for name in ["replaced", "overtaken"] {
        fs::write(mount.at(name), &content).expect("written");
    }
    mount.running.kill_9();
    lab.donor("donor-1").signal(Signal::CONT);
    put(&lab, "pot://lab/overtaken", b"newer");
    assert!(!is_there(&lab.cli, "pot://lab/new"));
    assert_eq!(waiting(&lab).len(), 6);
    let listed = lab.cli.json(&["ckpt", "ls"]);
    let told = listed["waiting"].as_array().expect("files").iter();
    let told: Vec<_> = told.map(|file| file["path"].as_str().expect("a path")).collect();
    assert_eq!(told, ["pot://lab/new", "pot://lab/replaced", "pot://lab/overtaken"]);
    let text = lab.cli.ok(&["ckpt", "ls"]).text();
    assert!(text.contains("not in the pool yet: 3 files"), "{text}");

    let next = Mount::start(&lab, "pot://lab", &[]);
    wait_until("all that was closed", DEADLINE, || waiting(&lab).is_empty());
    assert_same(&lab.cli.cat("pot://lab/new"), &content, "new");
    assert_same(&lab.cli.cat("pot://lab/replaced"), &content, "replaced");
    assert_eq!(fs::metadata(next.at("new")).expect("there").mode() & 0o777, 0o640);
    assert_same(&lab.cli.cat("pot://lab/overtaken"), b"newer", "what came later");
    let both: Vec<_> = fs::read_dir(&next.dir)
        .expect("listed")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.to_string_lossy().contains("overtaken.closed-"))
        .collect();
    assert_eq!(both.len(), 1);
    assert_same(&fs::read(&both[0]).expect("read"), &content, "what was closed before");
    lab.cli.ok(&["umount", arg(&next.dir)]);
}

/// A program that has another descriptor of a file which it closed goes on writing what comes into the next version.
#[test]
fn writes_after_close_local_follow_the_closed_version() {
    let Some((lab, mount)) = one_donor("writes_after_close_local_follow_the_closed_version") else {
        return;
    };
    let mut writer = File::create(mount.at("log")).expect("made");
    let other = writer.try_clone().expect("cloned");
    writer.write_all(&bytes(5, LARGE)).expect("written");
    drop(writer);
    other.write_all_at(b"more", LARGE as u64).expect("written");
    drop(other);
    let both = [bytes(5, LARGE), b"more".to_vec()].concat();
    assert_same(&fs::read(mount.at("log")).expect("read"), &both, "here");
    lab.cli.ok(&["umount", arg(&mount.dir)]);
    assert_same(&lab.cli.cat("pot://lab/log"), &both, "in the pool");
}
