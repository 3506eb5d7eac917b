//! Tests where a donor writes, by the system calls that it makes.

use super::content::{arg, file};
use super::lab::Lab;
use super::trace::Trace;
use super::waiting::{DEADLINE, has_program, skip, wait_until};
use std::path::{Path, PathBuf};

/// The beginnings of the system calls that change a file or directory, or may.
const WRITES: [&str; 16] = [
    "openat(", "open(", "creat(", "mkdir", "rename", "unlink", "rmdir", "link", "symlink",
    "truncate", "chmod", "fchmodat", "chown", "utime", "mknod", "setxattr",
];

/// Returns the files that a call which succeeded may have changed. Strace tells a directory that a path starts from
/// before the path: `openat(5</tmp/lent>, "ab/cd", O_WRONLY) = 6`.
fn changed(call: &str) -> Vec<PathBuf> {
    let call = call.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
    let fails = call.contains(" = -1 ") || !call.contains(" = ");
    let reads = call.starts_with("open")
        && !["O_WRONLY", "O_RDWR", "O_CREAT"].iter().any(|flag| call.contains(flag));
    if fails || reads || !WRITES.iter().any(|name| call.starts_with(name)) {
        return Vec::new();
    }
    let mut from = PathBuf::new();
    let mut paths = Vec::new();
    for (at, part) in call.split('"').enumerate() {
        match at % 2 {
            0 => {
                if let Some((_, dir)) = part.rsplit_once('<') {
                    from = dir.split('>').next().unwrap_or_default().into();
                }
            }
            _ => paths.push(from.join(part)),
        }
    }
    paths
}

#[test]
fn the_paths_that_a_call_changes_are_understood() {
    let paths =
        |call| changed(call).iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
    assert_eq!(
        paths(r#"12 openat(AT_FDCWD</a>, "/b/c", O_RDWR|O_CREAT, 0600) = 5</b/c>"#),
        ["/b/c"]
    );
    assert_eq!(paths(r#"12 renameat(5</a>, "b", 6</c>, "d") = 0"#), ["/a/b", "/c/d"]);
    assert_eq!(paths(r#"12 openat(AT_FDCWD</a>, "b", O_RDONLY|O_CLOEXEC) = 5</a/b>"#), [""; 0]);
    assert_eq!(paths(r#"12 mkdir("/a", 0777) = -1 EEXIST (File exists)"#), [""; 0]);
}

/// X4: whatever its peers ask for, nothing outside the lent directory and the donor's own state is touched.
#[test]
fn a_donor_writes_only_below_its_store_and_its_own_state_x4() {
    const NAME: &str = "a_donor_writes_only_below_its_store";
    if !has_program("strace") {
        return skip(NAME, "no strace");
    }
    let mut lab = Lab::with_options(2, &["--gc-delay", "1s"]);
    let Some(trace) = Trace::attach(&mut lab, "donor-1", "%file") else {
        return skip(NAME, "strace may not attach here");
    };
    lab.cli.ok(&[
        "space",
        "create",
        "lab",
        "--copies",
        "2",
        "--chunk-size",
        "64KiB",
        "--ack",
        "disk",
    ]);
    for (number, name) in ["a", "b", "..%2f..%2fetc", "sp ace"].iter().enumerate() {
        let (input, _) = file(lab.dir(), "input", number as u64, 1 << 20);
        lab.cli.ok(&["cp", arg(&input), &format!("pot://lab/{name}")]);
    }
    lab.cli.cat("pot://lab/b");
    lab.cli.ok(&["mv", "pot://lab/a", "pot://lab/c"]);
    lab.cli.ok(&["rm", "pot://lab/b"]);
    wait_until("what was removed to be deleted", DEADLINE, || lab.chunk_files() <= 2 * 3 * 16);
    let calls = trace.end();
    let own = [lab.lent("donor-1").0, lab.donor_state("donor-1")];
    let paths: Vec<PathBuf> = calls.iter().flat_map(|call| changed(call)).collect();
    let in_store = paths.iter().filter(|path| path.starts_with(&own[0])).count();
    assert!(in_store >= 4 * 16, "{in_store} changes of the store were seen");
    let is_own = |path: &&PathBuf| {
        own.iter().any(|own| path.starts_with(own)) || *path == Path::new("/dev/null")
    };
    let others: Vec<_> = paths.iter().filter(|path| !is_own(path)).collect();
    assert!(others.is_empty(), "{others:?}");
}
