//! Tests that writes go on while machines are away: below policy, and never so that one more death loses something.

use super::content::{arg, assert_same, bytes, file};
use super::lab::Lab;
use super::waiting::{DEADLINE, wait_until};
use super::writer::Writer;
use std::path::Path;

/// Kills donors, and waits until the manager knows.
fn away(lab: &mut Lab, names: &[&str]) {
    lab.kill_donors(names);
    wait_until("the dead donors to be noticed", DEADLINE, || {
        !lab.cli.live_donors().iter().any(|live| names.contains(&live.as_str()))
    });
}

fn put<'a>(input: &'a Path, to: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["cp", arg(input), to], more].concat()
}

/// D3: one donor of six is away, then another dies: what was written meanwhile is read back, and is
/// completed when they return.
#[test]
fn short_group_is_completed_when_the_donor_returns() {
    let mut lab = Lab::with_donors(6);
    lab.cli.ok(&["space", "create", "lab", "--ec", "4+2", "--chunk-size", "64KiB"]);
    lab.cli.ok(&["mkdir", "pot://lab/strict", "--strict"]);
    let (input, content) = file(lab.dir(), "input", 1, (13 << 18) + 100_001);
    away(&mut lab, &["donor-6"]);
    let stored = lab.cli.run(&["cp", arg(&input), "pot://lab/f"]).exits(0);
    assert!(stored.stderr.contains("below policy: 1 file is stored"), "{}", stored.stderr);
    let stored = lab.cli.json(&["cp", arg(&input), "pot://lab/g"]);
    assert_eq!(stored["below_policy"], 1, "{stored}");

    // All commands tell that it is below policy.
    for path in ["pot://lab/f", "pot://lab/g"] {
        let health = lab.cli.health(path);
        assert_eq!(health["below_policy"], true, "{health}");
        assert_eq!((&health["tolerates"], &health["promised"]), (&1.into(), &2.into()), "{health}");
    }
    let stated = lab.cli.ok(&["stat", "pot://lab/f"]).text();
    assert!(stated.contains("below policy, which promises 2"), "{stated}");
    wait_until("the pool to call itself degraded", DEADLINE, || {
        let verdict = &lab.cli.status()["verdict"];
        verdict["state"] == "degraded"
            && verdict["reason"].as_str().is_some_and(|why| why.contains("below policy"))
    });

    // A write that asks for all redundancy is refused, as is what one more death would lose.
    for (more, to) in [(&["--strict"][..], "pot://lab/h"), (&[], "pot://lab/strict/h")] {
        let refused = lab.cli.fails(5, &put(&input, to, more));
        assert_eq!(refused.code, "POT-E033", "{refused:?}");
        assert!(refused.hint.contains("--strict=false"), "{refused:?}");
    }
    lab.cli.ok(&put(&input, "pot://lab/strict/h", &["--strict=false"]));
    // A user who follows the hint is told what it comes to, and no question is asked.
    let made = lab.cli.ok(&["space", "create", "six", "--copies", "6"]);
    assert!(
        made.stderr.contains("5 can be written to now: files are stored below"),
        "{}",
        made.stderr
    );
    lab.cli.ok(&["mkdir", "pot://six/strict", "--strict"]);
    let set = lab.cli.ok(&["policy", "set", "pot://six/strict", "--strict=false"]).text();
    assert!(set.contains("files are stored below policy"), "{set}");
    // A tree is written as its root says; each directory says what must be whole.
    lab.cli.ok(&["mkdir", "-p", "pot://lab/tree/strict", "--strict"]);
    let tree = lab.dir().join("tree");
    std::fs::create_dir_all(tree.join("strict/new")).expect("made");
    for file in ["a", "strict/b", "strict/new/c"] {
        std::fs::copy(&input, tree.join(file)).expect("copied");
    }
    let written = lab.cli.run(&["cp", "-r", arg(&tree), "pot://lab/"]).exits(4);
    assert!(written.stderr.contains("--strict=false"), "{}", written.stderr);
    assert_eq!(lab.cli.health("pot://lab/tree/a")["below_policy"], true);
    for file in ["pot://lab/tree/strict/b", "pot://lab/tree/strict/new/c"] {
        lab.cli.fails(3, &["stat", file]);
    }
    away(&mut lab, &["donor-1"]);
    for path in ["pot://lab/f", "pot://lab/g", "pot://lab/strict/h"] {
        assert_same(&lab.cli.cat(path), &content, path);
    }
    let refused = lab.cli.fails(5, &put(&input, "pot://lab/i", &[]));
    assert_eq!(refused.code, "POT-E033", "{refused:?}");
    assert!(refused.message.contains("5 donors would do"), "{refused:?}");

    lab.bring_back(&["donor-1", "donor-6"]);
    for path in ["pot://lab/f", "pot://lab/g", "pot://lab/strict/h"] {
        lab.cli.wait_safe(path);
        assert_eq!(lab.cli.health(path)["below_policy"], false);
        assert_eq!(Vec::from_iter(lab.cli.shares(path).values()), [&14; 6]);
    }
    wait_until("the pool to call itself healthy", DEADLINE, || {
        lab.cli.status()["verdict"]["state"] == "healthy"
    });
    lab.cli.ok(&put(&input, "pot://lab/strict/i", &[]));
}

/// D1, D3: a donor is killed in the middle of writes of copies and of groups.
#[test]
fn a_donor_that_dies_during_a_write_is_left_to_repair() {
    let mut lab = Lab::with_donors(4);
    let content = bytes(7, 24 << 20);
    let written = [("copies", ["--copies", "4"]), ("coded", ["--ec", "2+2"])];
    for (space, kept) in &written {
        lab.cli.ok(&[&["space", "create", space, "--chunk-size", "256KiB"], &kept[..]].concat());
    }
    let start = |(space, _): &(&str, _)| Writer::start(&lab.cli, &format!("pot://{space}/f"), &[]);
    let mut writers = written.each_ref().map(start);
    writers.iter_mut().for_each(|writer| writer.feed(&content[..16 << 20]));
    lab.kill_donor("donor-2");
    writers.iter_mut().for_each(|writer| writer.feed(&content[16 << 20..]));
    for writer in writers {
        assert_eq!(writer.finish(), 0);
    }
    away(&mut lab, &["donor-3"]);
    for (space, _) in &written {
        let path = format!("pot://{space}/f");
        assert_eq!(lab.cli.health(&path)["below_policy"], true, "{space}");
        assert_same(&lab.cli.cat(&path), &content, space);
    }
    lab.bring_back(&["donor-2", "donor-3"]);
    for (space, _) in &written {
        lab.cli.wait_safe(&format!("pot://{space}/f"));
    }
}

/// Two copies survive one death, and so are never written as one.
#[test]
fn two_copies_are_not_written_to_one_donor_and_three_are_to_two() {
    let mut lab = Lab::with_donors(3);
    let (input, content) = file(lab.dir(), "input", 3, 3 << 20);
    for copies in ["1", "2", "3"] {
        lab.cli.ok(&["space", "create", &format!("keeps-{copies}"), "--copies", copies]);
    }
    away(&mut lab, &["donor-1"]);
    for (copies, below) in [(1, 0), (2, 0), (3, 1)] {
        let stored = lab.cli.json(&["cp", arg(&input), &format!("pot://keeps-{copies}/f")]);
        assert_eq!(stored["below_policy"], below, "{stored}");
    }
    let of = ["--copies", "3", "--mirror", "client-async"];
    lab.cli.ok(&[&["space", "create", "unhurried", "--chunk-size", "1MiB"], &of[..]].concat());
    let stored = lab.cli.json(&["cp", arg(&input), "pot://unhurried/f"]);
    assert_eq!(stored["pending_copies"], 3, "one of each chunk: {stored}");
    assert_eq!((&stored["below_policy"], &stored["at_risk"]), (&1.into(), &0.into()), "{stored}");
    // A file that has two copies already is at no risk, whoever makes the third.
    let known = ["cp", arg(&input), "pot://unhurried/g", "--mirror", "server-async"];
    let stored = lab.cli.run(&known).exits(0).stderr;
    assert!(stored.contains("death of one donor loses nothing"), "{stored}");
    assert!(stored.contains("below policy: 1 file is stored"), "{stored}");
    away(&mut lab, &["donor-2"]);
    assert_same(&lab.cli.cat("pot://keeps-3/f"), &content, "three copies");
    let (other, _) = file(lab.dir(), "other", 4, 3 << 20);
    for copies in [2, 3] {
        let refused = lab.cli.fails(5, &["cp", arg(&other), &format!("pot://keeps-{copies}/g")]);
        assert_eq!(refused.code, "POT-E033", "{refused:?}");
    }
    let stored = lab.cli.json(&["cp", arg(&other), "pot://keeps-1/g"]);
    assert_eq!(stored["below_policy"], 0, "one copy is all that is asked for");
}

/// D3: a donor that dies between its last receipt and the commit is not the death that a write survives. What it
/// took is read from the other donors and sent on, however long the file is: copies, and groups that are rebuilt.
#[test]
fn chunks_of_a_donor_that_died_are_resent_before_the_ack() {
    let mut lab = Lab::with_donors(5);
    let content = bytes(9, (40 << 20) + 1000);
    // Half of it the pool holds already.
    let known = lab.dir().join("known");
    std::fs::write(&known, &content[..20 << 20]).expect("written");
    let written = [("copies", ["--copies", "2"]), ("coded", ["--ec", "2+1"])];
    for (space, kept) in &written {
        let kept = [&kept[..], &["--seal", "--chunk-size", "256KiB"]].concat();
        lab.cli.ok(&[&["space", "create", space], &kept[..]].concat());
        lab.cli.ok(&["cp", arg(&known), &format!("pot://{space}/known")]);
    }
    let used = |lab: &Lab| {
        let status = lab.cli.status();
        let donors = status["donors"].as_array().expect("donors");
        donors.iter().filter_map(|donor| donor["used"].as_u64()).sum::<u64>()
    };
    let start = |(space, _): &(&str, _)| Writer::start(&lab.cli, &format!("pot://{space}/f"), &[]);
    let mut writers = written.each_ref().map(start);
    writers.iter_mut().for_each(|writer| writer.feed(&content));
    wait_until("all whole chunks and groups to be at donors", DEADLINE, || {
        used(&lab) >= (2 * (40 << 20)) + (40 << 20) * 3 / 2
    });
    lab.kill_donor("donor-2");
    for writer in writers {
        assert_eq!(writer.finish(), 0);
    }
    lab.kill_donor("donor-3");
    for (space, _) in &written {
        assert_same(&lab.cli.cat(&format!("pot://{space}/f")), &content, space);
    }
}

/// D3 for copies inside the pool: they are acknowledged as writes are, by the donors that are there.
#[test]
fn pool_copy_survives_one_death_or_is_stored_anew() {
    let mut lab = Lab::with_options(6, &["--repair-grace", "10min"]);
    for (space, redundancy) in [("pairs", ["--copies", "2"]), ("coded", ["--ec", "2+2"])] {
        lab.cli
            .ok(&[&["space", "create", space, "--chunk-size", "64KiB"], &redundancy[..]].concat());
        lab.cli.ok(&["mkdir", &format!("pot://{space}/strict"), "--strict"]);
    }
    let from = lab.dir().join("from");
    std::fs::create_dir_all(from.join("sub")).expect("made");
    let content: Vec<_> = (1..=6)
        .map(|number| file(&from, &format!("f{number}"), number, 700_001).1)
        .chain([file(&from.join("sub"), "g", 7, 70_000).1])
        .collect();
    for space in ["pairs", "coded"] {
        lab.cli.ok(&["cp", "-r", arg(&from), &format!("pot://{space}/")]);
    }
    away(&mut lab, &["donor-1"]);
    let copied = lab.cli.json(&["cp", "-r", "pot://pairs/from", "pot://pairs/copy"]);
    assert_eq!(copied["files"], 7, "{copied}");
    assert!(
        copied["sent_bytes"].as_u64() > Some(0),
        "what lacks a copy is sent to others: {copied}"
    );
    assert_eq!(copied["below_policy"], 0, "five donors are enough: {copied}");
    // A group of 2+2 that lost one chunk survives the next death: it moves no byte, and is said to be below policy.
    let copied = lab.cli.json(&["cp", "-r", "pot://coded/from", "pot://coded/copy"]);
    assert_eq!((&copied["without_moving"], &copied["files"]), (&7.into(), &7.into()), "{copied}");
    assert!(copied["below_policy"].as_u64() > Some(0), "{copied}");
    // Where all redundancy is asked for, it is there from the start.
    let copied = lab.cli.json(&["cp", "-r", "pot://coded/from", "pot://coded/strict/copy"]);
    assert_eq!((&copied["files"], &copied["below_policy"]), (&7.into(), &0.into()), "{copied}");
    away(&mut lab, &["donor-2"]);
    for copy in ["pairs/copy", "coded/copy", "coded/strict/copy"] {
        for (number, content) in (1..).zip(&content[..6]) {
            let path = format!("pot://{copy}/f{number}");
            assert_same(&lab.cli.cat(&path), content, &path);
        }
        assert_same(&lab.cli.cat(&format!("pot://{copy}/sub/g")), &content[6], copy);
    }
    for donors in [&["donor-3"][..], &["donor-4", "donor-5"]] {
        away(&mut lab, donors);
    }
    // One donor is left: no copy of anything would survive its death, and nothing is acknowledged.
    let refused = lab.cli.run(&[
        "--json",
        "cp",
        "pot://pairs/from/f1",
        "pot://pairs/late",
        "--retry-for",
        "1s",
    ]);
    assert_ne!(refused.code, 0, "{refused:?}");
    lab.cli.fails(3, &["stat", "pot://pairs/late"]);
}

/// D3: a copy inside the pool is acknowledged only for what its directory promises.
#[test]
fn copy_into_ack_disk_restores_memory_acked_chunks() {
    let lab = Lab::with_options(2, &[]);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--ack", "memory"]);
    lab.cli.ok(&["mkdir", "pot://lab/durable", "--ack", "disk"]);
    let (local, content) = file(lab.dir(), "f", 1, 700_001);
    lab.cli.ok(&["cp", arg(&local), "pot://lab/f"]);
    let copied = lab.cli.json(&["cp", "pot://lab/f", "pot://lab/durable/f"]);
    assert_eq!(copied["without_moving"], 0, "{copied}");
    assert!(copied["sent_bytes"].as_u64() > Some(0), "{copied}");
    let copied = lab.cli.json(&["cp", "pot://lab/durable/f", "pot://lab/durable/again"]);
    assert_eq!(copied["without_moving"], 1, "it is on disks now: {copied}");
    assert_same(&lab.cli.cat("pot://lab/durable/again"), &content, "again");
}
