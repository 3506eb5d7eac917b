//! Point 11: after a restart the pool heals its own leftovers, and lets foreign ones alone.

use super::content::{arg, assert_same, bytes, file};
use super::lab::Lab;
use super::waiting::{PATIENCE, wait_until};
use std::fs;
use std::io::Write;

#[test]
fn p11_leftovers_are_healed() {
    let mut lab = Lab::with_options(2, &["--lease", "2s", "--gc-grace", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 11, 1 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    // A session that is open when everything dies, with chunks that are then orphans.
    let mut writer = lab.cli.start(&["cp", "-", "pot://lab/lost"]);
    let mut pipe = writer.child().stdin.take().expect("a pipe");
    pipe.write_all(&bytes(12, 3 << 20)).expect("a writer that reads");
    wait_until("chunks to flow", PATIENCE, || lab.chunk_files() > 16 + 20);
    lab.kill_manager();
    writer.kill_9();
    for name in lab.donor_names() {
        lab.kill_donor(&name);
        // What a donor that died in mid-write leaves, and what a failing disk may.
        let lent = lab.lent(&name);
        fs::write(lent.0.join("temp/0123456789abcdef-7"), bytes(13, 50_000)).expect("a file");
        fs::write(lent.0.join("chunks/00/not-a-chunk"), "odd").expect("a file");
        let cut = "ab".to_owned() + &"0".repeat(62);
        fs::write(lent.0.join("chunks/ab").join(&cut), "too short").expect("a file");
    }
    lab.start_manager();
    for name in lab.donor_names() {
        lab.start_donor(&name);
    }
    lab.wait_live();
    lab.wait_clean(16);
    for name in lab.donor_names() {
        let aside = lab.lent(&name).quarantine();
        assert_eq!(aside.len(), 2, "set aside, not deleted: {aside:?}");
    }
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the committed file");
    lab.cli.fails(3, &["stat", "pot://lab/lost"]);
    // The path and the space are free again.
    lab.cli.ok(&["cp", arg(&input), "pot://lab/lost", "--if-absent"]);
}

#[test]
fn p11_two_processes_never_share_a_directory() {
    let lab = Lab::with_donors(1);
    let state = lab.manager_dir();
    let ran = lab.cli.run(&["manager", "--state", arg(&state), "--listen", "127.0.0.1:0"]);
    assert_ne!(ran.code, 0);
    assert!(ran.stderr.contains("another manager"), "{}", ran.stderr);
    let (lent, state) = (lab.lent("donor-1").0, lab.dir().join("donor-1/state"));
    let ran = lab.cli.run(&["lend", arg(&lent), "--state", arg(&state), "--max", "1GiB"]);
    assert_ne!(ran.code, 0);
    assert!(ran.stderr.contains("another donor"), "{}", ran.stderr);
}

#[test]
fn p11_a_donor_does_not_begin_anew_where_its_disk_is_not_mounted() {
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let (input, content) = file(lab.dir(), "input", 14, 1 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    lab.kill_donor("donor-1");
    let (lent, aside) = (lab.lent("donor-1").0, lab.dir().join("unmounted"));
    fs::rename(&lent, &aside).expect("moved away");
    fs::create_dir(&lent).expect("a bare mount point");
    let state = lab.dir().join("donor-1/state");
    let ran = lab.cli.run(&["lend", arg(&lent), "--state", arg(&state), "--max", "1GiB"]);
    assert_ne!(ran.code, 0);
    assert!(ran.stderr.contains("mount"), "{}", ran.stderr);
    assert_eq!(super::lent::files_of(&lent).len(), 0, "nothing was made there");
    // The owner's own files are not a store either.
    fs::write(lent.join("thesis.tex"), "mine").expect("a file");
    let other = lab.dir().join("other/state");
    let token = lab.token("donor");
    let args = ["lend", arg(&lent), "--state", arg(&other), "--token", &token, "--max", "1GiB"];
    assert_ne!(lab.cli.run(&args).code, 0);
    assert_eq!(fs::read(lent.join("thesis.tex")).expect("still there"), b"mine");
    fs::remove_dir_all(&lent).expect("removed");
    fs::rename(&aside, &lent).expect("mounted again");
    lab.start_donor("donor-1");
    lab.wait_live();
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
}
