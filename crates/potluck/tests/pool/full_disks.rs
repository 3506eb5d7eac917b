//! Tests donors, and a manager, whose disk is really full (ENOSPC), on a small tmpfs.

use super::content::{arg, assert_same, bytes, file};
use super::lab::{Lab, Lending};
use super::small_disk::SmallDisk;
use super::waiting::{DEADLINE, wait_until};
use std::fs;

/// Returns the mount options of a disk with inodes for a donor's 256 buckets, its other directories and its marker, and
/// for `chunks` more files.
fn inodes_for(chunks: usize) -> String {
    format!("size=64m,nr_inodes={}", 1 + 256 + 5 + chunks)
}

#[test]
fn full_donor_error_harms_no_other_file() {
    const NAME: &str = "a_donor_that_is_really_full";
    let mut lab = Lab::manager_only(&["--gc-delay", "1h"]);
    // There is room in bytes and none in inodes: the donor cannot know before the system says ENOSPC.
    let Some(disk) = SmallDisk::mount(NAME, lab.dir().join("disk"), &inodes_for(40)) else {
        return;
    };
    let lent = disk.path().join("lent");
    lab.lend("full", Lending { dir: Some(lent), ..Lending::default() });
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (kept, content) = file(lab.dir(), "kept", 12, 1 << 20);
    lab.cli.ok(&["cp", arg(&kept), "pot://lab/kept"]);
    let (large, _) = file(lab.dir(), "large", 13, 8 << 20);
    let refused = lab.cli.run(&["--json", "cp", arg(&large), "pot://lab/large"]);
    let said = refused.failure();
    println!("{said:?}");
    assert_eq!(refused.code, 6, "{said:?}");
    assert!(said.message.contains("full"), "it says which donor: {said:?}");
    lab.cli.fails(3, &["stat", "pot://lab/large"]);
    assert_same(&lab.cli.cat("pot://lab/kept"), &content, "the other file");
    // Chunks of a write that failed for good are reclaimed at once, however long the GC delay is (promise D2),
    // and new writes work again.
    lab.wait_clean(16);
    let (small, content) = file(lab.dir(), "small", 14, 1 << 20);
    lab.cli.ok(&["cp", arg(&small), "pot://lab/small"]);
    assert_same(&lab.cli.cat("pot://lab/small"), &content, "a file that fits");
}

#[test]
fn a_full_donor_is_passed_over_where_another_has_room() {
    const NAME: &str = "a_full_donor_is_passed_over";
    let mut lab = Lab::manager_only(&["--gc-delay", "1s"]);
    let Some(disk) = SmallDisk::mount(NAME, lab.dir().join("disk"), &inodes_for(10)) else {
        return;
    };
    lab.lend("full", Lending { dir: Some(disk.path().join("lent")), ..Lending::default() });
    lab.lend("other", Lending::default());
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB", "--width", "2"]);
    let (input, content) = file(lab.dir(), "input", 15, 8 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
    let shares = lab.cli.shares("pot://lab/f");
    assert!(shares["other"] >= 118, "{shares:?}");
    lab.wait_left(128);
}

#[test]
fn full_disk_errors_are_clear_and_deletes_work() {
    const NAME: &str = "a_disk_that_its_owner_fills";
    let mut lab = Lab::manager_only(&["--gc-delay", "1s"]);
    let Some(disk) = SmallDisk::mount(NAME, lab.dir().join("disk"), "size=16m") else { return };
    lab.lend("donor", Lending { dir: Some(disk.path().join("lent")), ..Lending::default() });
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (kept, content) = file(lab.dir(), "kept", 16, 2 << 20);
    lab.cli.ok(&["cp", arg(&kept), "pot://lab/kept"]);
    // The owner takes the rest of the disk.
    let mut filler = fs::File::create(disk.path().join("owner")).expect("a file");
    let full = std::io::copy(&mut std::io::repeat(1), &mut filler).expect_err("a full disk");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    let (input, _) = file(lab.dir(), "input", 17, 4 << 20);
    let refused = lab.cli.run(&["--json", "cp", arg(&input), "pot://lab/f"]);
    assert_eq!(refused.code, 6, "{}", refused.stderr);
    println!("{:?}", refused.failure());
    assert_same(&lab.cli.cat("pot://lab/kept"), &content, "the other file");
    lab.cli.ok(&["rm", "pot://lab/kept"]);
    lab.wait_clean(0);
    // The owner frees the disk again.
    drop(filler);
    fs::remove_file(disk.path().join("owner")).expect("removed");
    wait_until("room to be seen again", DEADLINE, || {
        lab.cli.donor("donor")["room"].as_u64() > Some(8 << 20)
    });
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    assert_same(&lab.cli.cat("pot://lab/f"), &bytes(17, 4 << 20), "the file");
}

#[test]
fn full_manager_disk_is_reported_until_freed() {
    const NAME: &str = "a_full_disk_of_the_managers_own";
    let mut lab = Lab::empty();
    let Some(disk) = SmallDisk::mount(NAME, lab.manager_dir(), "size=24m,mode=0700") else {
        return;
    };
    lab.start_manager();
    lab.lend("donor", Lending::default());
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab"]);
    let (kept, content) = file(lab.dir(), "kept", 18, 1 << 20);
    lab.cli.ok(&["cp", arg(&kept), "pot://lab/kept"]);
    let filler = disk.path().join("filler");
    let mut file = fs::File::create(&filler).expect("a file");
    std::io::copy(&mut std::io::repeat(1), &mut file).expect_err("a full disk");
    drop(file);
    // The files of the catalog have some room left, so the first writes may succeed.
    let mut tried = 0;
    wait_until("a refusal", DEADLINE, || {
        tried += 1;
        lab.cli.run(&["mkdir", &format!("pot://lab/{tried}")]).code == 6
    });
    let status = lab.cli.ok(&["status"]).text();
    assert!(status.starts_with("unavailable: the manager cannot write its catalog"), "{status}");
    let advice = status.lines().nth(1).unwrap_or_default();
    assert!(advice.contains(arg(&lab.manager_dir())), "{status}");
    assert!(!status.contains("look at the donors"), "{status}");
    assert_same(&lab.cli.cat("pot://lab/kept"), &content, "reads work as ever");
    fs::remove_file(&filler).expect("removed");
    wait_until("all to be well", DEADLINE, || {
        lab.cli.ok(&["status"]).text().starts_with("healthy: ")
    });
    lab.cli.ok(&["mkdir", "pot://lab/more"]);
}
