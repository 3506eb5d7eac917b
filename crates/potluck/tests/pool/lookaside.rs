//! Tests lookaside trees: chunks that are found on this machine are not fetched, and what is found is right.

use super::content::{arg, assert_same, bytes};
use super::docs::{Typist, blocks};
use super::lab::Lab;
use super::machines::{Machines, Naming};
use super::mounts::{Mount, can_mount};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Returns what `lookaside ls` says of the only tree.
fn tree(lab: &Lab) -> Value {
    lab.cli.json(&["lookaside", "ls"])["trees"][0].clone()
}

/// Makes a pool of one donor with two files in it, one of them sealed, and the same files in a directory.
fn stored(sealed: bool) -> (Lab, Vec<u8>, std::path::PathBuf) {
    let lab = Lab::with_donors(1);
    let seal: &[&str] = if sealed { &["--seal"] } else { &["--plain"] };
    lab.cli.ok(&[&["space", "create", "lab", "--chunk-size", "256KiB"], seal].concat());
    let content = bytes(7, (3 << 20) + 1234);
    let dir = lab.dir().join("usb");
    fs::create_dir(&dir).expect("made");
    fs::write(dir.join("data"), &content).expect("written");
    lab.cli.ok(&["cp", arg(&dir.join("data")), "pot://lab/data"]);
    (lab, content, dir)
}

fn add(lab: &Lab, dir: &Path) {
    lab.cli.ok(&["lookaside", "index", arg(dir)]);
    lab.cli.ok(&["lookaside", "add", arg(dir)]);
}

/// The donor is stopped, so that what is read comes from the tree alone.
#[test]
fn lookaside_serves_reads_without_donors() {
    for sealed in [false, true] {
        let (mut lab, content, dir) = stored(sealed);
        add(&lab, &dir);
        lab.donor("donor-1").signal(Signal::STOP);
        assert_same(&lab.cli.cat("pot://lab/data"), &content, "cat");
        let here = lab.dir().join("here");
        lab.cli.ok(&["cp", "pot://lab/data", arg(&here)]);
        assert_same(&fs::read(&here).expect("read"), &content, "cp");
        let tree = tree(&lab);
        assert_eq!(
            (&tree["hits"], &tree["misses"], &tree["stale"]),
            (&26.into(), &0.into(), &0.into())
        );
        lab.donor("donor-1").signal(Signal::CONT);
    }
}

#[test]
fn changed_and_absent_lookaside_files_are_fetched() {
    let (lab, content, dir) = stored(true);
    add(&lab, &dir);
    let mut changed = content.clone();
    changed[300_000] ^= 1;
    fs::write(dir.join("data"), &changed).expect("written");
    assert_same(&lab.cli.cat("pot://lab/data"), &content, "with one chunk that was changed");
    assert_eq!(tree(&lab)["stale"], 1);

    lab.cli.ok(&["lookaside", "disable", arg(&dir)]);
    let before = tree(&lab);
    assert_same(&lab.cli.cat("pot://lab/data"), &content, "disabled");
    assert_eq!(tree(&lab)["hits"], before["hits"]);
    lab.cli.ok(&["lookaside", "enable", arg(&dir)]);
    fs::rename(&dir, lab.dir().join("elsewhere")).expect("moved");
    assert_same(&lab.cli.cat("pot://lab/data"), &content, "absent");
    assert_eq!(tree(&lab)["state"], "absent");
    lab.cli.ok(&["lookaside", "rm", arg(&dir)]);
    assert!(tree(&lab).is_null());
    lab.cli.fails(3, &["lookaside", "add", arg(&dir)]);
    lab.cli.ok(&["lookaside", "clear"]);
}

/// The donor is stopped, so that what is read comes from the tree alone.
#[test]
fn running_mount_hears_of_added_lookaside_trees() {
    if !can_mount("running_mount_hears_of_added_lookaside_trees") {
        return;
    }
    let (mut lab, content, dir) = stored(true);
    let mut mount = Mount::start(&lab, "pot://lab", &[]);
    let status = |lab: &Lab| {
        let mounts = lab.cli.json(&["mounts"])["mounts"].clone();
        assert_eq!(
            (mounts.as_array().map(Vec::len), &mounts[0]["state"]),
            (Some(1), &"served".into())
        );
        mounts[0]["status"].clone()
    };
    assert_eq!(status(&lab)["from_lookaside"], 0);
    add(&lab, &dir);
    lab.donor("donor-1").signal(Signal::STOP);
    assert_same(&fs::read(mount.at("data")).expect("read"), &content, "through the mount");
    let found = status(&lab)["from_lookaside"].as_u64().expect("a number");
    assert!(found >= content.len() as u64, "{found}");
    let counted = tree(&lab);
    assert!(counted["hits"].as_u64() >= Some(13), "{counted}");
    assert_eq!(counted["bytes"], found);
    assert_eq!(tree(&lab), counted, "each is counted once");
    lab.cli.ok(&["lookaside", "disable", arg(&dir)]);
    lab.donor("donor-1").signal(Signal::CONT);

    let written = fs::File::create(mount.at("open")).expect("made");
    assert_eq!(status(&lab)["written"], 1);
    drop(written);
    mount.running.kill_9();
    let listed = lab.cli.json(&["mounts"])["mounts"][0].clone();
    assert_eq!((&listed["state"], &listed["status"]), (&"dead".into(), &Value::Null));
}

#[test]
fn lookaside_is_used_as_documented() {
    let test = "lookaside_is_used_as_documented";
    let Some(lab) = Machines::new(test, Naming::Dns, &["alice"]) else { return };
    let alice = lab.machine("alice");
    let typist = Typist::new(&lab).instead_of("/media/usb", "~/usb");
    typist.types_line(alice, "potluck up --max 200GiB --label here");
    alice.sh("potluck space create lab --copies 1").ok();
    alice.sh("mkdir -p ~/usb/era5 && head -c 9000000 /dev/urandom > ~/usb/era5/june.nc").ok();
    alice.sh("potluck cp -r ~/usb/era5 pot://lab/").ok();
    for block in blocks("docs/lookaside.md", "Bytes found nearby") {
        typist.types(&block, "alice");
    }
    alice.sh("cmp era5/june.nc ~/usb/era5/june.nc").ok();
    let listed = alice.sh("potluck --json lookaside ls").ok().json();
    // The donor is as near as the tree, and may be faster.
    assert!(listed["trees"][0]["bytes"].as_u64() > Some(0), "{listed}");
}
