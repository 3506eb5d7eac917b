//! Tests that `df`, `status` and writes tell the same of a pool that is nearly full.

use super::content::{arg, bytes, file};
use super::lab::{Lab, Lending};
use super::mounts::{Mount, can_mount};
use super::waiting::{DEADLINE, wait_until};
use rustix::fs::statvfs;
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Makes a pool of donors that lend so many MiB each, with a mounted space by `policy`.
fn pool(lent: &[u64], policy: &[&str]) -> (Lab, Mount) {
    let mut lab = Lab::manager_only(&["--gc-delay", "1s"]);
    for (number, mib) in lent.iter().enumerate() {
        let max = format!("{mib}MiB");
        lab.lend(&format!("donor-{number}"), Lending { max, ..Lending::default() });
    }
    lab.wait_live();
    lab.cli.ok(&[&["space", "create", "lab"], policy].concat());
    let mount = Mount::start(&lab, "pot://lab", &[]);
    (lab, mount)
}

fn free(mount: &Mount) -> u64 {
    let told = statvfs(&mount.dir).expect("told");
    told.f_bavail * told.f_frsize
}

fn free_by_status(lab: &Lab) -> u64 {
    lab.cli.status()["spaces"][0]["free"].as_u64().expect("bytes")
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Writes files of a MiB until one does not fit; returns how many bytes did.
fn fill(mount: &Mount) -> u64 {
    for number in 0_u64.. {
        let path = mount.at(&format!("f{number}"));
        if let Err(why) = write(&path, &bytes(number, MIB as usize)) {
            assert_eq!(why.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{why}");
            return number * MIB;
        }
    }
    unreachable!("a pool is finite")
}

/// Fills a pool through a mount and adds donors. `chunk` is the most that may be left beside whole files.
fn df_and_writes_agree(test: &str, lent: &[u64], policy: &[&str], chunk: u64) {
    if !can_mount(test) {
        return;
    }
    let (mut lab, mount) = pool(lent, policy);
    let before = free(&mount);
    assert_eq!(free_by_status(&lab), before, "status and df");
    let written = fill(&mount);
    let left = before.abs_diff(written);
    assert!(left <= before / 50 + chunk, "{written} of {before} were written");
    wait_until("df to tell that nothing more fits", DEADLINE, || free(&mount) <= chunk);
    wait_until("status to tell so", DEADLINE, || free_by_status(&lab) <= chunk);
    let (source, _) = file(lab.dir(), "source", 1000, MIB as usize);
    // The mount may have had room reserved that comes back: it is less than two files.
    if lab.cli.run(&["cp", arg(&source), "pot://lab/last"]).code != 0 {
        lab.cli.fails(6, &["cp", arg(&source), "pot://lab/last"]);
    }
    lab.cli.fails(6, &["cp", arg(&source), "pot://lab/by-cp"]);

    // The other way round: what donors have room for again can be written again.
    for name in ["further-1", "further-2"] {
        lab.lend(name, Lending { max: "10MiB".into(), ..Lending::default() });
    }
    wait_until("df to tell of it", DEADLINE, || free(&mount) > 8 * MIB);
    lab.cli.ok(&["cp", arg(&source), "pot://lab/by-cp"]);
    write(&mount.at("by-mount"), &bytes(1001, MIB as usize)).expect("written");
    lab.cli.ok(&["umount", arg(&mount.dir)]);
}

#[test]
fn df_status_and_writes_agree_on_free_space() {
    let policy = ["--copies", "1", "--chunk-size", "64KiB", "--plain"];
    df_and_writes_agree("df_status_and_writes_agree_on_free_space", &[40, 25], &policy, MIB);
}

#[test]
fn df_status_and_writes_agree_on_free_space_of_sealed_chunks() {
    let test = "df_status_and_writes_agree_on_free_space_of_sealed_chunks";
    df_and_writes_agree(test, &[30, 18, 12], &["--copies", "1", "--chunk-size", "1MiB"], 3 * MIB);
}

#[test]
fn df_status_and_writes_agree_on_free_space_with_two_copies() {
    let (test, policy) =
        ("df_status_and_writes_agree_on_free_space_with_two_copies", ["--copies", "2"]);
    let policy = [&policy[..], &["--chunk-size", "64KiB"]].concat();
    df_and_writes_agree(test, &[30, 30], &policy, MIB);
}

#[test]
fn df_status_and_writes_agree_on_free_space_of_unequal_donors() {
    let test = "df_status_and_writes_agree_on_free_space_of_unequal_donors";
    let policy = ["--copies", "2", "--chunk-size", "64KiB"];
    df_and_writes_agree(test, &[10, 15, 90], &policy, MIB);
}

#[test]
fn a_file_as_large_as_what_status_calls_free_is_stored() {
    let mut lab = Lab::manager_only(&[]);
    for (name, mib) in [("small", 10), ("medium", 15), ("large", 90)] {
        lab.lend(name, Lending { max: format!("{mib}MiB"), ..Lending::default() });
    }
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let free = free_by_status(&lab);
    assert!(free > 23 * MIB, "{free}");
    let (source, _) = file(lab.dir(), "source", 1, (free - MIB / 2) as usize);
    lab.cli.ok(&["cp", arg(&source), "pot://lab/f"]);
    assert!(lab.cli.is_safe("pot://lab/f"));
}
