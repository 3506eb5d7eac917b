//! Tests of write sessions: what they promise, hold and release, and how they end.

use super::content::{arg, assert_same, bytes, file};
use super::lab::{Cli, Lab};
use super::program::code_of;
use super::waiting::{DEADLINE, wait_until};
use super::writer::Writer;
use serde_json::Value;
use std::io::Write;

fn promised(cli: &Cli) -> u64 {
    let status = cli.status();
    let donors = status["donors"].as_array().expect("donors").iter();
    donors.filter_map(|donor| donor["promised"].as_u64()).sum()
}

fn small_chunks(options: &[&str]) -> Lab {
    let lab = Lab::with_options(2, options);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    lab
}

/// Waits until chunks of an open session lie on donors.
fn wait_for_chunks(lab: &Lab, at_least: usize) {
    wait_until("chunks to reach the donors", DEADLINE, || lab.chunk_files() >= at_least);
}

#[test]
fn nothing_is_visible_before_commit() {
    let lab = small_chunks(&[]);
    let content = bytes(5, 4 << 20);
    let mut writer = Writer::start(&lab.cli, "pot://lab/new/f", &[]);
    writer.feed(&content);
    wait_for_chunks(&lab, 20);
    assert_eq!(lab.cli.status()["sessions"], 1);
    assert_eq!(lab.cli.fails(3, &["stat", "pot://lab/new/f"]).code, "POT-E010");
    assert_eq!(lab.cli.json(&["ls", "-r", "pot://lab"])["entries"], Value::Array(Vec::new()));
    assert_eq!(lab.cli.status()["files"], 0);
    assert_eq!(writer.finish(), 0);
    assert_same(&lab.cli.cat("pot://lab/new/f"), &content, "the file after its commit");

    // The old version stays whole until the new one is there.
    let newer = bytes(6, 4 << 20);
    let mut writer = Writer::start(&lab.cli, "pot://lab/new/f", &[]);
    writer.feed(&newer);
    wait_for_chunks(&lab, 84);
    assert_same(&lab.cli.cat("pot://lab/new/f"), &content, "the old version");
    assert_eq!(writer.finish(), 0);
    assert_same(&lab.cli.cat("pot://lab/new/f"), &newer, "the new version");
    assert_eq!((&lab.cli.status()["sessions"], promised(&lab.cli)), (&0.into(), 0));
}

#[test]
fn chunks_go_straight_to_donors_while_the_input_still_flows() {
    let lab = small_chunks(&[]);
    let mut writer = Writer::start(&lab.cli, "pot://lab/f", &["--chunk-size", "64KiB"]);
    let mut fed = 0;
    // Each part must arrive before the next is offered: nothing waits for the end of the file.
    for part in 0..4 {
        writer.feed(&bytes(part, 2 << 20));
        fed += 32;
        wait_for_chunks(&lab, fed - 1);
    }
    assert_eq!(writer.finish(), 0);
    assert_eq!(lab.cli.json(&["stat", "pot://lab/f"])["chunks"], fed);
}

#[test]
fn a_reservation_grows_ahead_of_a_stream() {
    let lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "1MiB"]);
    let mut writer = Writer::start(&lab.cli, "pot://lab/f", &[]);
    writer.feed(&[1]);
    wait_until("a reservation", DEADLINE, || promised(&lab.cli) > 0);
    let first = promised(&lab.cli);
    // This is longer than any first promise. One part is fed again and again, for its content does not matter.
    let part = bytes(55, 8 << 20);
    (0..10).for_each(|_| writer.feed(&part));
    wait_until("the reservation to grow", DEADLINE, || promised(&lab.cli) > first);
    assert_eq!(writer.finish(), 0);
    let expected: Vec<u8> =
        std::iter::once(1).chain(part.iter().copied().cycle().take(10 * part.len())).collect();
    assert_same(&lab.cli.cat("pot://lab/f"), &expected, "the stream");
    assert_eq!(promised(&lab.cli), 0, "a commit gives the rest back");
}

#[test]
fn a_dead_clients_reservation_and_orphans_are_reclaimed() {
    let lab = small_chunks(&["--lease", "10s", "--gc-delay", "1s"]);
    let (kept, content) = file(lab.dir(), "kept", 7, 1 << 20);
    lab.cli.ok(&["cp", arg(&kept), "pot://lab/kept"]);
    let mut writer = Writer::start(&lab.cli, "pot://lab/lost", &[]);
    // Half of it is content that a file has, and that half must stay.
    writer.feed(&content);
    writer.feed(&bytes(8, 2 << 20));
    wait_for_chunks(&lab, 40);
    assert!(promised(&lab.cli) > 0);
    writer.running.kill_9();
    lab.wait_left(16);
    assert_same(&lab.cli.cat("pot://lab/kept"), &content, "the file that shares chunks");
    lab.cli.fails(3, &["stat", "pot://lab/lost"]);
}

#[test]
fn a_slow_writer_keeps_its_lease() {
    let lab = small_chunks(&["--lease", "10s", "--gc-delay", "1s"]);
    let content = bytes(9, 1 << 20);
    let mut writer = Writer::start(&lab.cli, "pot://lab/slow", &[]);
    writer.feed(&content);
    wait_for_chunks(&lab, 10);
    // For longer than two leases nothing is fed, and the writer must keep its session by itself.
    super::waiting::pause(std::time::Duration::from_secs(22));
    assert_eq!(lab.cli.status()["sessions"], 1);
    assert_eq!(writer.finish(), 0);
    assert_same(&lab.cli.cat("pot://lab/slow"), &content, "the slow writer's file");
}

#[test]
fn an_interrupted_writer_gives_its_reservation_back_at_once() {
    let lab = small_chunks(&["--lease", "10m", "--gc-delay", "1s"]);
    let mut writer = Writer::start(&lab.cli, "pot://lab/f", &[]);
    writer.feed(&bytes(10, 2 << 20));
    wait_for_chunks(&lab, 10);
    writer.running.signal(rustix::process::Signal::INT);
    assert_eq!(code_of(writer.running.end("the interrupted writer")), 130);
    lab.wait_clean(0); // long before the lease
}

#[test]
fn later_commit_wins_whole() {
    let lab = small_chunks(&["--gc-delay", "1s"]);
    let contents = [bytes(11, 3 << 20), bytes(12, 2 << 20)];
    for (first, second) in [(0, 1), (1, 0)] {
        let mut writers = [0, 1].map(|number: usize| {
            let mut writer = Writer::start(&lab.cli, "pot://lab/f", &[]);
            writer.feed(&contents[number]);
            Some(writer)
        });
        wait_until("both sessions", DEADLINE, || lab.cli.status()["sessions"] == 2);
        assert_eq!(writers[first].take().expect("a writer").finish(), 0);
        assert_same(&lab.cli.cat("pot://lab/f"), &contents[first], "the first to commit");
        let before = lab.cli.json(&["stat", "pot://lab/f"])["entry"]["version"].as_u64();
        assert_eq!(writers[second].take().expect("a writer").finish(), 0);
        assert_same(&lab.cli.cat("pot://lab/f"), &contents[second], "the later commit");
        assert!(lab.cli.json(&["stat", "pot://lab/f"])["entry"]["version"].as_u64() > before);
    }
    // The file is removed before chunks are counted, for its chunks may lie on both donors for having been sent twice.
    lab.cli.ok(&["rm", "pot://lab/f"]);
    lab.wait_clean(0);
}

#[test]
fn if_absent_and_if_version_conflict_with_exit_10() {
    let lab = small_chunks(&["--gc-delay", "1s"]);
    let (input, content) = file(lab.dir(), "input", 13, 200_000);
    let report = lab.cli.json(&["cp", arg(&input), "pot://lab/f", "--if-absent"]);
    let version = report["versions"][0]["version"].as_u64().expect("a version");
    let refused = lab.cli.fails(10, &["cp", arg(&input), "pot://lab/f", "--if-absent"]);
    assert_eq!(refused.code, "POT-E020", "{refused:?}");

    let (other, newer) = file(lab.dir(), "other", 14, 100_000);
    let wrong = (version + 1000).to_string();
    let refused = lab.cli.fails(10, &["cp", arg(&other), "pot://lab/f", "--if-version", &wrong]);
    assert_eq!(refused.code, "POT-E021", "{refused:?}");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file after refused writes");
    lab.cli.ok(&["cp", arg(&other), "pot://lab/f", "--if-version", &version.to_string()]);
    assert_same(&lab.cli.cat("pot://lab/f"), &newer, "the file after the right version");
    let refused = lab
        .cli
        .fails(10, &["cp", arg(&other), "pot://lab/f", "--if-version", &version.to_string()]);
    assert_eq!(refused.code, "POT-E021", "{refused:?}");
    lab.cli.fails(10, &["cp", arg(&other), "pot://lab/none", "--if-version", "1"]);
    lab.wait_left(2);
}

#[test]
fn first_commit_wins_among_if_absent_writers() {
    let lab = small_chunks(&["--gc-delay", "1s"]);
    let contents = [bytes(15, 1 << 20), bytes(16, 1 << 20)];
    let [first, second] = [0, 1].map(|number: usize| {
        let mut writer = Writer::start(&lab.cli, "pot://lab/f", &["--if-absent"]);
        writer.feed(&contents[number]);
        writer
    });
    // Both writers found nothing there and have sent their chunks.
    wait_for_chunks(&lab, 28);
    assert_eq!(lab.cli.status()["sessions"], 2);
    assert_eq!(second.finish(), 0);
    assert_eq!(first.finish(), 10, "checked again at commit");
    assert_same(&lab.cli.cat("pot://lab/f"), &contents[1], "the winner's file");
    lab.wait_left(16);
}

#[test]
fn a_space_that_is_removed_under_a_writer_takes_nothing() {
    let lab = small_chunks(&["--gc-delay", "1s"]);
    let mut writer = Writer::start(&lab.cli, "pot://lab/f", &[]);
    writer.feed(&bytes(17, 1 << 20));
    wait_for_chunks(&lab, 10);
    lab.cli.ok(&["space", "rm", "-r", "-y", "lab"]);
    assert_ne!(writer.finish(), 0);
    lab.wait_clean(0);
}

#[test]
fn stream_over_quota_is_refused_early() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    lab.cli.ok(&["quota", "set", "pot://lab", "--bytes", "20MiB"]);
    let mut upload = lab.cli.start(&["--json", "cp", "-", "pot://lab/f"]);
    let mut pipe = upload.child().stdin.take().expect("a pipe");
    let mut sent = 0;
    for piece in 0..400 {
        // The pipe ends when the command does.
        match pipe.write_all(&bytes(piece, 1 << 20)) {
            Ok(()) => sent += 1,
            Err(_) => break,
        }
    }
    drop(pipe);
    assert_eq!(code_of(upload.end("the upload")), 6);
    assert!(lab.cli.said_by_the_last().contains("POT-E035"), "{}", lab.cli.said_by_the_last());
    assert!((20..200).contains(&sent), "{sent} MiB of 400 were sent");
    // What fits streams as before, also over a file that is there.
    for piece in [1, 2] {
        let mut writer = Writer::start(&lab.cli, "pot://lab/f", &[]);
        writer.feed(&bytes(piece, 15 << 20));
        assert_eq!(writer.finish(), 0);
    }
}
