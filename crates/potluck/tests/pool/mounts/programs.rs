//! Tests programs that people use, in a mounted pool. Those that take long to install are tried by hand with the same
//! script.

use super::{Mount, mounted, skip};
use crate::pool::content::arg;
use crate::pool::workspace;
use std::process::Command;

/// The small programs of `contrib/mount-programs/try.sh`.
const PROGRAMS: [&str; 7] = ["rsync", "cp-a", "git", "restic", "sqlite", "fsx", "names"];

#[test]
fn programs_that_people_use_work_in_mounts_as_on_a_local_disk() {
    let test = "programs_that_people_use_work_in_mounts";
    let Some((lab, mount)) = mounted(test, 2, &["--copies", "2"], &[]) else { return };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    let mut command = Command::new(workspace::root().join("contrib/mount-programs/try.sh"));
    command.args([arg(&mount.dir), arg(&other.dir)]).args(PROGRAMS).env("TMPDIR", lab.dir());
    let ran = command.output().expect("bash is there");
    let said = String::from_utf8_lossy(&ran.stdout);
    let errors = String::from_utf8_lossy(&ran.stderr);
    println!("{said}");
    assert!(ran.status.success(), "{said}{errors}");
    let worked = said.lines().filter(|line| line.starts_with("ok ")).count();
    for line in said.lines().filter(|line| !line.starts_with("ok ")) {
        skip(test, line);
    }
    assert!(worked >= 3, "{said}{errors}");
}
