//! Tests shared files where local files change, writers die or find no room, managers are started again, answers are
//! late, and numbers are too large or do not divide others.

use super::super::content::{arg, assert_same, file};
use super::super::lab::Lab;
use super::super::member::Member;
use super::super::waiting::{DEADLINE, wait_until};
use super::{OUT, client, join, out, states};
use potluck_client::{Attributes, Pool, PutOptions, SharedOutcome};
use potluck_core::ids::SharedWriterId;
use potluck_wire::control::{
    CLAIM_LEASE, SharedClaim, SharedClaimed, SharedLeave, SharedLeft, SharedTurn, SharedTurnOver,
    SharedTurnTaken, SharedWriters,
};
use potluck_wire::error::code;
use rustix::process::Signal;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};

#[test]
fn a_local_file_that_became_shorter_makes_no_version() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--plain"]);
    let runtime = Runtime::new().expect("a runtime");
    let pool = client(&lab);
    let (path, content) = file(lab.dir(), "local", 1, 12 << 20);
    let local = Arc::new(File::open(&path).expect("it is there"));
    let mut writer = runtime.block_on(join(&pool, "a")).expect("joined");
    let writable = OpenOptions::new().write(true).open(&path).expect("it is there");
    writable.set_len(10 << 20).expect("shorter");
    let short = runtime.block_on(writer.write_file(5, &local, 0..12 << 20));
    assert_eq!(short.expect_err("not all is there").code, code::LOCAL_IO);
    runtime.block_on(async { drop(writer) });
    // Another writer takes its place, and writes what is there.
    let mut writer = runtime.block_on(async {
        loop {
            match join(&pool, "a").await {
                Err(failure) if failure.code == code::CLAIMED => tokio::task::yield_now().await,
                joined => break joined.expect("the one of that name has left"),
            }
        }
    });
    runtime.block_on(writer.write_file(5, &local, 0..10 << 20)).expect("all is there");
    assert_eq!(runtime.block_on(writer.finish()).expect("stored"), SharedOutcome::Published);
    let expected = [&[0; 5], &content[..10 << 20]].concat();
    assert_same(&lab.cli.cat(OUT), &expected, "what was there");
}

/// What was hashed is sent from the file itself, so it has to be noticed when that changes in between.
#[test]
fn a_local_file_that_changes_before_it_is_sent_makes_no_version() {
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--plain"]);
    let runtime = Runtime::new().expect("a runtime");
    let pool = client(&lab);
    let (path, content) = file(lab.dir(), "local", 2, 6 << 20);
    let local = Arc::new(File::open(&path).expect("it is there"));
    let mut writer = runtime.block_on(join(&pool, "a")).expect("joined");
    let donor = lab.donor_names().remove(0);
    lab.donor(&donor).signal(Signal::STOP);
    runtime.block_on(writer.write_file(0, &local, 0..6 << 20)).expect("it is taken");
    let changed: Vec<u8> = content.iter().map(|byte| byte ^ 1).collect();
    let writable = OpenOptions::new().write(true).open(&path).expect("it is there");
    writable.write_all_at(&changed, 0).expect("changed in place");
    lab.donor(&donor).signal(Signal::CONT);
    let failure = runtime.block_on(writer.finish()).expect_err("it is not what was hashed");
    assert!(failure.message.contains("changed while it was read"), "{failure}");
    assert_eq!(lab.cli.fails(10, &["write-shared", "commit", OUT]).code, code::NOT_TOGETHER);
    lab.cli.fails(3, &["stat", OUT]);
}

#[test]
fn shared_writer_without_room_blocks_nobody() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let (one, other) = (client(&lab), client(&lab));
        let mut writer = join(&one, "a").await.expect("joined");
        writer.write_at(0, &[1; 1000]).await.expect("free");
        let (path, options) = (out(), PutOptions { bytes: Some(1 << 40), ..PutOptions::default() });
        let large = other.shared_writer(&path, Some("large"), &options, Attributes::default());
        let refused = large.await.err().expect("donors lend less");
        assert_eq!(refused.code, code::FULL, "{refused}");
        assert_eq!(writer.finish().await.expect("stored"), SharedOutcome::Published);
    });
    assert_eq!(lab.cli.cat(OUT), [1; 1000]);
}

/// A part of the writer's contribution has 1024 chunks, which three do not divide, so that it ends within a row.
#[test]
fn multipart_shared_file_is_byte_exact_with_any_code() {
    let lab = Lab::with_donors(4);
    lab.cli.ok(&["space", "create", "lab", "--ec", "3+1", "--chunk-size", "64KiB"]);
    let (part, content) = file(lab.dir(), "part", 3, (66 << 20) + 777);
    lab.cli.ok(&["write-shared", "write", arg(&part), OUT, "--at", "100"]);
    assert_same(&lab.cli.cat(OUT), &[&[0; 100], &content[..]].concat(), "what was written");
}

#[test]
fn impossible_ranges_are_refused() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let runtime = Runtime::new().expect("a runtime");
    let pool = client(&lab);
    let far = 1 << 63;
    let mut writer = runtime.block_on(join(&pool, "a")).expect("joined");
    let refused = [
        runtime.block_on(writer.claim(far..far + 1)),
        runtime.block_on(writer.write_at(far, &[1])),
        runtime.block_on(writer.write_at(u64::MAX, &[1, 2])),
        writer.extend(far),
    ];
    for refused in refused {
        assert_eq!(refused.expect_err("no file has them").code, code::BAD_REQUEST);
    }
    runtime.block_on(writer.write_at(0, &[1])).expect("the writer goes on");
    let member = Member::load(&lab.manager_dir().join("admin"));
    let claim = SharedClaim {
        path: out(),
        writer: SharedWriterId([7; 16]),
        name: "b".into(),
        ranges: std::iter::once(far..far + 1).collect(),
        is_first: true,
        is_all: false,
    };
    assert_eq!(member.call(&claim).expect_err("refused").code, code::BAD_REQUEST);
    assert_eq!(runtime.block_on(writer.finish()).expect("stored"), SharedOutcome::Published);
    assert_eq!(lab.cli.cat(OUT), [1]);
}

/// While a writer waits for more bytes, nothing else of it tells the manager what it has.
#[test]
fn shared_writer_reclaims_after_a_manager_restart() {
    let mut lab = Lab::with_options(1, &["--resume-window", "1h"]);
    lab.cli.ok(&["space", "create", "lab"]);
    let runtime = Runtime::new().expect("a runtime");
    let pool = client(&lab);
    let mut writer = runtime.block_on(join(&pool, "a")).expect("joined");
    runtime.block_on(writer.write_at(0, &[1; 1000])).expect("free");
    lab.kill_manager();
    let writing = runtime.spawn(async move {
        writer.write_at(1000, &[2; 1000]).await.expect("free");
        writer
    });
    lab.start_manager();
    // Whoever else waits until claims are granted again must not be given these bytes.
    wait_until("the manager to know what it has", CLAIM_LEASE / 2, || {
        lab.cli.json(&["write-shared", "ls", OUT])["writers"][0]["claimed"] == 1000
    });
    let writer = runtime.block_on(writing).expect("it did not panic");
    assert_eq!(runtime.block_on(writer.finish()).expect("stored"), SharedOutcome::Published);
    assert_same(&lab.cli.cat(OUT), &[[1; 1000], [2; 1000]].concat(), "what it wrote");
}

#[test]
fn rename_cleans_up_writers_finished_before_a_restart() {
    let mut lab = Lab::with_options(1, &["--resume-window", "1h"]);
    lab.cli.ok(&["space", "create", "lab"]);
    lab.cli.ok(&["mkdir", "pot://lab/a"]);
    let (part, content) = file(lab.dir(), "part", 4, 1 << 20);
    lab.cli.ok(&["write-shared", "begin", "pot://lab/a/out"]);
    lab.cli.ok(&["write-shared", "write", arg(&part), "pot://lab/a/out"]);
    lab.kill_manager();
    lab.start_manager();
    let refused = lab.cli.fails(10, &["mv", "pot://lab/a", "pot://lab/b"]);
    assert_eq!(refused.code, code::CLAIMED, "{refused:?}");
    lab.cli.ok(&["write-shared", "commit", "pot://lab/a/out"]);
    lab.cli.ok(&["mv", "pot://lab/a", "pot://lab/b"]);
    assert_same(&lab.cli.cat("pot://lab/b/out"), &content, "what was written");
}

#[test]
fn waiting_shared_writer_hears_of_a_published_version() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    // This writer says nothing while its runtime does not run, like one that died.
    let asleep = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let awake = Runtime::new().expect("a runtime");
    let (one, other) = (client(&lab), client(&lab));
    let mut waits = awake.block_on(join(&one, "waits")).expect("joined");
    awake.block_on(waits.write_at(0, &[1; 1000])).expect("free");
    let mut dead = asleep.block_on(join(&other, "dead")).expect("joined");
    asleep.block_on(dead.write_at(1000, &[2; 1000])).expect("free");
    let finishing = awake.spawn(waits.finish());
    wait_until("it to have finished", DEADLINE, || {
        states(&lab.cli).contains(&"waits finished".to_owned())
    });
    lab.cli.ok(&["write-shared", "commit", OUT, "--leave-out", "dead"]);
    let outcome = awake.block_on(finishing).expect("it did not panic");
    assert_eq!(outcome.expect("it is in the version"), SharedOutcome::Waiting);
    asleep.block_on(async { drop(dead) });
    assert_eq!(lab.cli.cat(OUT), [1; 1000]);
}

#[test]
fn late_joiner_takes_over_composition() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let runtime = Runtime::new().expect("a runtime");
    let (pool, member) = (client(&lab), Member::load(&lab.manager_dir().join("admin")));
    for has_mark in [false, true] {
        let mut last = runtime.block_on(join(&pool, "last")).expect("joined");
        runtime.block_on(last.write_at(0, &[1; 1000])).expect("free");
        // While somebody else has the turn, the last one waits with a version that it is to make.
        let turn = SharedTurn { path: out(), writer: SharedWriterId([7; 16]), over: None };
        assert_eq!(member.call(&turn).expect("shared"), SharedTurnTaken::Own);
        let finishing = runtime.spawn(last.finish());
        wait_until("it to be the last", DEADLINE, || states(&lab.cli) == ["last finished"]);
        let late = SharedClaim {
            path: out(),
            writer: SharedWriterId([8; 16]),
            name: "late".into(),
            ranges: Vec::new(),
            is_first: false,
            is_all: true, // as if it had joined before the turn
        };
        assert_eq!(member.call(&late).expect("shared"), SharedClaimed::Granted);
        if has_mark {
            let staging = member.call(&SharedWriters { path: out() }).expect("told").staging;
            let mark = staging.expect("shared").join_all(["open", "w-late"]).expect("a path");
            runtime.block_on(async {
                let (options, attributes) = (PutOptions::default(), Attributes::default());
                let writer = pool.create(&mark, &options, attributes).await.expect("begun");
                writer.finish().await.expect("marked");
            });
        }
        let over = SharedTurn { over: Some(SharedTurnOver::default()), ..turn };
        member.call(&over).expect("given back");
        let outcome = runtime.block_on(finishing).expect("it did not panic");
        let outcome = outcome.expect("the late one makes the version");
        assert_eq!(outcome, SharedOutcome::Waiting, "mark: {has_mark}");
        lab.cli.ok(&["write-shared", "commit", OUT, "--leave-out", "late"]);
        assert_eq!(lab.cli.cat(OUT), [1; 1000]);
    }
}

#[test]
fn shared_commit_waits_for_finish_of_every_writer() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    lab.cli.ok(&["write-shared", "begin", OUT]);
    let runtime = Runtime::new().expect("a runtime");
    let (pool, member) = (client(&lab), Member::load(&lab.manager_dir().join("admin")));
    let writer = SharedWriterId([7; 16]);
    let claim = SharedClaim {
        path: out(),
        writer,
        name: "slow".into(),
        ranges: Vec::new(),
        is_first: true,
        is_all: false,
    };
    assert_eq!(member.call(&claim).expect("shared"), SharedClaimed::Granted);
    let staging = member.call(&SharedWriters { path: out() }).expect("told").staging;
    let place = staging.expect("shared").join_all(["open", "w-slow"]).expect("a path");
    // Its contribution: no bytes, and a size of ten (docs/format/contribution.md).
    let ten = [&[0; 8][..], &[10, 0, 0, 0, 0, 0, 0, 0], b"POTCONT1"].concat();
    runtime.block_on(async {
        let (options, attributes) = (PutOptions::default(), Attributes::default());
        let mut stored = pool.create(&place, &options, attributes).await.expect("begun");
        stored.write(&ten).await.expect("taken");
        stored.finish().await.expect("stored");
    });
    let refused = lab.cli.fails(10, &["write-shared", "commit", OUT]);
    assert_eq!(refused.code, code::NOT_TOGETHER, "{refused:?}");
    assert!(refused.message.contains("slow"), "{refused:?}");
    let leave = SharedLeave { path: out(), writer, has_finished: true, waited_ms: 0 };
    assert_eq!(member.call(&leave).expect("heard"), SharedLeft::Last);
    lab.cli.ok(&["write-shared", "commit", OUT]);
    assert_eq!(member.call(&leave).expect("heard"), SharedLeft::Published);
    assert_eq!(lab.cli.cat(OUT), [0; 10]);
}

/// Has the writers `a` and `b` finish, each with 10 000 bytes of a file whose version is kept back.
async fn finish_two(pool: &Pool) {
    pool.share(&out(), true).await.expect("shared");
    for (name, at) in [("a", 0), ("b", 10_000)] {
        let mut writer = join(pool, name).await.expect("joined");
        writer.write_at(at, &[at as u8 + 1; 10_000]).await.expect("free");
        assert_eq!(writer.finish().await.expect("stored"), SharedOutcome::Waiting);
    }
}

#[test]
fn excluded_writer_is_in_no_later_version() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let runtime = Runtime::new().expect("a runtime");
    let (pool, member) = (client(&lab), Member::load(&lab.manager_dir().join("admin")));
    runtime.block_on(finish_two(&pool));
    // Whoever composed this version died before it was moved to its place.
    let staging = member.call(&SharedWriters { path: out() }).expect("told").staging;
    let staging = staging.expect("shared");
    let at = |names: &[&str]| staging.join_all(names.iter().copied()).expect("a path");
    runtime.block_on(async {
        pool.make_dir(&at(&["closed-1"]), true).await.expect("made");
        let composed = at(&["closed-1", "composed-over-"]);
        pool.rename(&at(&["open"]), &composed, true).await.expect("renamed");
        let (whole, options) = (at(&["closed-1", "whole"]), PutOptions::default());
        let mut writer = pool.create(&whole, &options, Attributes::default()).await.expect("begun");
        writer.write(&[9; 20_000]).await.expect("taken");
        writer.finish().await.expect("stored");
    });
    lab.cli.ok(&["write-shared", "commit", OUT, "--leave-out", "b"]);
    assert_eq!(lab.cli.cat(OUT), [1; 10_000]);
}

#[test]
fn resumed_composition_keeps_the_exclusions_of_its_first_writer() {
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(finish_two(&client(&lab)));
    // What they wrote cannot be read, so that the commit fails in the middle.
    let donor = lab.donor_names().remove(0);
    lab.kill_donor(&donor);
    let failed =
        lab.cli.run(&["--retry-for", "1s", "write-shared", "commit", OUT, "--leave-out", "b"]);
    assert_ne!(failed.code, 0, "no donor is there");
    lab.start_donor(&donor);
    wait_until("the donor to be there", DEADLINE, || {
        lab.cli.run(&["--retry-for", "1s", "write-shared", "commit", OUT]).code == 0
    });
    assert_eq!(lab.cli.cat(OUT), [1; 10_000]);
}

#[test]
fn large_sparse_shared_file_is_byte_exact() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let (one, other) = (client(&lab), client(&lab));
        let mut a = join(&one, "a").await.expect("joined");
        let mut b = join(&other, "b").await.expect("joined");
        let far = (1100 << 20) + 17;
        a.write_at(3, b"near").await.expect("free");
        b.write_at(far, b"far").await.expect("free");
        a.extend(far + 100).expect("a size that files have");
        assert_eq!(a.finish().await.expect("stored"), SharedOutcome::Waiting);
        assert_eq!(b.finish().await.expect("stored"), SharedOutcome::Published);
        let file = one.open(&out()).await.expect("it is there");
        assert_eq!(file.size(), far + 100);
        let near = file.read_at(0, 10).await.expect("read");
        assert_eq!(&near[..], b"\0\0\0near\0\0\0");
        let end = file.read_at(far - 2, 200).await.expect("read");
        assert_eq!(&end[..], &[&b"\0\0far"[..], &[0; 97]].concat()[..]);
        let middle = file.read_at(600 << 20, 5 << 20).await.expect("read");
        assert!(middle.len() == 5 << 20 && middle.iter().all(|byte| *byte == 0));
    });
}
