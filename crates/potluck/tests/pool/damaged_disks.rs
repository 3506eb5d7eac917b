//! Tests damage on disks: flipped bits, chunk files that are cut, lost or exchanged, a disk that is pulled, and a
//! damaged catalog.

use super::content::{arg, assert_same, file};
use super::lab::Lab;
use super::lent::flip;
use super::waiting::{DEADLINE, wait_until};
use serde_json::Value;
use std::fs::File;
use std::path::Path;

#[test]
fn a_flipped_bit_is_found_reported_and_read_around() {
    let lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 12, 2 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let lent = lab.lent("donor-1");
    let damaged = lent.chunks();
    assert_eq!(damaged.len(), 32);
    damaged.iter().enumerate().for_each(|(number, path)| flip(path, 7 * number as u64));

    // Every read is right, and each finds some of the damage, as it happens to ask.
    wait_until("the damage to be found", DEADLINE, || {
        assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
        lab.cli.donor("donor-1")["bad"].as_u64() > Some(0)
    });
    wait_until("spoiled chunks to be quarantined", DEADLINE, || !lent.quarantine().is_empty());
    assert_eq!(lab.cli.donor("donor-2")["bad"], 0);
    assert_eq!(lab.cli.json(&["stat", "pot://lab/f"])["live_copies"], 1);
    wait_until("every file to be here or there", DEADLINE, || {
        lent.quarantine().len() + lent.chunks().len() == 32
    });
    // Storing the file again mends what was found; more may be found meanwhile.
    wait_until("both copies of all that was found", DEADLINE, || {
        lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
        lab.cli.json(&["stat", "pot://lab/f"])["live_copies"] == 2
    });
}

#[test]
fn damage_without_another_copy_is_an_integrity_error() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 13, 1 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    flip(&lab.lent("donor-1").chunks()[3], 60_000);
    let to = lab.dir().join("out");
    let refused = lab.cli.fails(7, &["cp", "pot://lab/f", arg(&to)]);
    assert_eq!(refused.code, "POT-E050", "{refused:?}");
    assert!(!to.exists(), "no wrong byte is left");
    // Bytes that were written to a pipe before the damage are right as far as they go.
    let ran = lab.cli.run(&["cat", "pot://lab/f"]);
    assert_ne!(ran.code, 0);
    assert_same(&ran.stdout, &content[..ran.stdout.len()], "the part before the damage");
    wait_until("the donor to report it", DEADLINE, || lab.cli.donor("donor-1")["bad"] == 1);
    // Storing the source again brings the file back.
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
}

#[test]
fn chunks_cut_lost_or_exchanged_are_read_around() {
    let mut lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 14, 1 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let mut chunks = lab.lent("donor-2").chunks();
    chunks.sort();
    let shorten = |path: &Path, len: u64| {
        let file = File::options().write(true).open(path).expect("a chunk file");
        file.set_len(len).expect("another length");
    };
    shorten(&chunks[0], 0);
    shorten(&chunks[1], 40_000);
    shorten(&chunks[2], 200_000);
    std::fs::remove_file(&chunks[3]).expect("removed");
    let saved = lab.dir().join("saved");
    std::fs::copy(&chunks[4], &saved).expect("a copy");
    std::fs::copy(&chunks[5], &chunks[4]).expect("another chunk's bytes");
    std::fs::copy(&saved, &chunks[5]).expect("another chunk's bytes");
    std::fs::write(&chunks[6], "").expect("an empty file");
    for _ in 0..3 {
        assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
    }
    // Read alone, the damaged donor gives right bytes or none, and each chunk's damage is found.
    lab.kill_donor("donor-1");
    for at in (0..content.len()).step_by(64 << 10) {
        let range = format!("{at}-{}", at + 99);
        let ran = lab.cli.run(&["cat", "pot://lab/f", "--range", &range]);
        let expected = if ran.code == 0 { &content[at..at + 100] } else { &[] };
        assert_same(&ran.stdout, expected, &range);
    }
    wait_until("all damage to be found", DEADLINE, || lab.cli.donor("donor-2")["bad"] == 7);
    lab.start_donor("donor-1");
    lab.wait_back("donor-1");
    // A restart looks at what is there without being confused by it.
    lab.kill_donor("donor-2");
    lab.start_donor("donor-2");
    lab.wait_back("donor-2");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
    // Storing the source again mends the file.
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    lab.kill_donor("donor-1");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file from the mended donor alone");
}

#[test]
fn pulled_disk_is_reported_repaired_and_taken_back() {
    let lab = Lab::with_options(3, &["--repair-grace", "4s"]);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 16, 1 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let lent = lab.lent("donor-1").0;
    let pulled = lent.with_extension("pulled");
    std::fs::rename(&lent, &pulled).expect("pulled");
    std::fs::create_dir(&lent).expect("the bare mount point");
    let named = |alarm: &Value| {
        let said = alarm.to_string();
        said.contains("donor-1 lends is gone") && said.contains("ount it")
    };
    // On a busy machine the donor may seem silent before that is found.
    let mut status = Value::Null;
    wait_until("it to be named", DEADLINE, || {
        status = lab.cli.json(&["status"]);
        status["alarms"].as_array().is_some_and(|alarms| alarms.iter().any(named))
    });
    assert_eq!(status["verdict"]["state"], "degraded", "{status}");
    wait_until("two copies elsewhere", DEADLINE, || {
        lab.cli.donor("donor-1")["state"] == "dead"
            && lab.cli.json(&["stat", "pot://lab/f"])["live_copies"] == 2
    });
    std::fs::remove_dir(&lent).expect("nothing was made there");
    std::fs::rename(&pulled, &lent).expect("mounted again");
    wait_until("it to be back", DEADLINE, || {
        let donor = lab.cli.donor("donor-1");
        donor["state"] == "live" && donor["room"].as_u64() > Some(0)
    });
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
}

#[test]
fn a_damaged_catalog_is_refused_and_never_served() {
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let (input, _) = file(lab.dir(), "input", 15, 1 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    super::lab::stop(lab.manager(), rustix::process::Signal::TERM);
    let catalog = lab.manager_dir().join("catalog.db");
    let log = std::fs::metadata(catalog.with_extension("db-wal")).map_or(0, |log| log.len());
    assert_eq!(log, 0, "the catalog of a manager that has stopped is one file");
    let whole = std::fs::read(&catalog).expect("the catalog");
    // The header is damaged, so that this is not a database any more.
    std::fs::write(&catalog, [&[0; 100][..], &whole[100..]].concat()).expect("damaged");
    let state = lab.manager_dir();
    let ran = lab.cli.run(&["manager", "--state", arg(&state), "--listen", "127.0.0.1:0"]);
    assert_ne!(ran.code, 0);
    assert!(ran.stderr.contains("catalog"), "{}", ran.stderr);
    assert_eq!(lab.lent("donor-1").chunks().len(), 1, "donors keep all meanwhile");
    std::fs::write(&catalog, whole).expect("restored");
    lab.start_manager();
    lab.wait_live();
    lab.cli.ok(&["cat", "pot://lab/f"]);
}
