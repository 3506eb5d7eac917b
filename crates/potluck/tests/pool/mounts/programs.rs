//! Tests programs that people use, in a mounted pool. Those that take long to install are tried by hand with the same
//! script.

use super::{Mount, mounted, skip};
use crate::pool::content::arg;
use crate::pool::workspace;
use std::process::Command;

/// Runs one of the small programs of `contrib/mount-programs/try.sh` in a pool of its own.
fn works_as_on_a_local_disk(program: &str) {
    let test = format!("{program}_works_in_mounts_as_on_a_local_disk");
    let Some((lab, mount)) = mounted(&test, 2, &["--copies", "2"], &[]) else { return };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    let mut command = Command::new(workspace::root().join("contrib/mount-programs/try.sh"));
    command.args([arg(&mount.dir), arg(&other.dir), program]).env("TMPDIR", lab.dir());
    let ran = command.output().expect("bash is there");
    let said = String::from_utf8_lossy(&ran.stdout);
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}{errors}");
    match said.trim() {
        missing if missing.starts_with("MISSING") => skip(&test, missing),
        tried => assert!(tried.starts_with("ok "), "{said}{errors}"),
    }
}

macro_rules! programs {
    ($($test:ident: $program:literal;)*) => {$(
        #[test]
        fn $test() {
            works_as_on_a_local_disk($program);
        }
    )*};
}
programs! {
    rsync_works_as_on_a_local_disk: "rsync";
    cp_a_works_as_on_a_local_disk: "cp-a";
    git_works_as_on_a_local_disk: "git";
    restic_works_as_on_a_local_disk: "restic";
    sqlite_works_as_on_a_local_disk: "sqlite";
    fsx_works_as_on_a_local_disk: "fsx";
    renames_and_exclusive_names_work_as_on_a_local_disk: "names";
}
