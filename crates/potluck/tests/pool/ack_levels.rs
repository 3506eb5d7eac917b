//! Tests, by the system calls that a donor makes, that each ack level is what it says.

use super::content::{arg, file};
use super::lab::Lab;
use super::trace::Trace;
use super::waiting::{has_program, skip};

/// The calls by which a file gets its name, and reaches the disk.
const CALLS: &str = "fsync,fdatasync,rename,renameat,renameat2";

/// Returns where the first call from `from` on is that contains all `parts`.
fn find(calls: &[String], from: usize, parts: &[&str]) -> Option<usize> {
    let found = calls[from..].iter().position(|call| parts.iter().all(|part| call.contains(part)));
    found.map(|at| from + at)
}

#[test]
fn ack_disk_fsyncs_chunk_before_and_directory_after_rename() {
    const NAME: &str = "ack_disk_fsyncs";
    if !has_program("strace") {
        return skip(NAME, "no strace");
    }
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB", "--ack", "disk"]);
    let (input, _) = file(lab.dir(), "input", 11, 1 << 20);
    let Some(trace) = Trace::attach(&mut lab, "donor-1", CALLS) else {
        return skip(NAME, "strace may not attach here");
    };
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let calls = trace.end();
    let chunks = lab.lent("donor-1").chunks();
    assert_eq!(chunks.len(), 16, "{calls:#?}");
    for chunk in chunks {
        let name = arg(&chunk);
        let renamed =
            find(&calls, 0, &["rename", name]).unwrap_or_else(|| panic!("no rename to {name}"));
        let temp = calls[renamed].split('"').nth(1).expect("its temporary name").to_owned();
        let synced = find(&calls, 0, &["sync(", &temp]);
        assert!(synced.is_some_and(|at| at < renamed), "{name} was named before it was synced");
        let dir = arg(chunk.parent().expect("a bucket")).to_owned();
        let after = find(&calls, renamed, &["sync(", &format!("{dir}>")]);
        assert!(after.is_some(), "the directory of {name} was not synced after its rename");
    }
}

#[test]
fn repeated_put_may_raise_the_ack_level() {
    const NAME: &str = "ack_memory_waits_for_no_disk";
    if !has_program("strace") {
        return skip(NAME, "no strace");
    }
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB", "--ack", "memory"]);
    let (input, _) = file(lab.dir(), "input", 12, 1 << 20);
    let Some(trace) = Trace::attach(&mut lab, "donor-1", CALLS) else {
        return skip(NAME, "strace may not attach here");
    };
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let calls = trace.end();
    let syncs =
        calls.iter().filter(|call| call.contains("sync(") && call.contains("/lent")).count();
    assert_eq!(syncs, 0, "{calls:#?}");
    let placed = calls.iter().filter(|call| call.contains("rename") && call.contains("/chunks/"));
    assert_eq!(placed.count(), 16, "{calls:#?}");

    // The same chunks are put again at a higher level: their files are there, and have to be on the disk now.
    let trace = Trace::attach(&mut lab, "donor-1", CALLS).expect("it attached before");
    lab.cli.ok(&["cp", arg(&input), "pot://lab/g", "--ack", "disk"]);
    let calls = trace.end();
    let chunks = lab.lent("donor-1").chunks();
    assert_eq!(chunks.len(), 16, "{calls:#?}");
    for chunk in chunks {
        let (name, dir) = (arg(&chunk), arg(chunk.parent().expect("a bucket")));
        for synced in [name, dir] {
            let call = find(&calls, 0, &["sync(", &format!("{synced}>")]);
            assert!(call.is_some(), "{synced} was not synced: {calls:#?}");
        }
    }
}
