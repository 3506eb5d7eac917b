//! Tests that an upload that was interrupted goes on where it was: the same command, started again, sends only what is
//! missing. The proof is in the bytes that went to the donors over the wire.

use super::content::{arg, assert_same, bytes, file};
use super::lab::{Lab, Lending};
use super::program::code_of;
use super::tap::Tap;
use super::waiting::{DEADLINE, wait_until};
use super::writer::Writer;
use rustix::process::Signal;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Duration;

const CHUNK: usize = 64 << 10;
/// A bound of the bytes that a put sends beside the missing ones: overhead, and chunks of which no donor had told when
/// the writer ended.
const BESIDE: u64 = 2 << 20;
/// The options of a manager that keeps interrupted uploads for longer than any test takes, with short leases.
const KEPT: &[&str] = &["--resume-window", "10m", "--lease", "10s", "--gc-delay", "1s"];

/// A pool whose clients' traffic with the donors is counted.
struct Counted {
    lab: Lab,
    taps: Vec<Tap>,
    /// The bytes that the pool said it keeps of the upload that was interrupted last.
    kept: Cell<u64>,
}

impl Counted {
    fn with_donors(count: usize, lends: &str, options: &[&str]) -> Self {
        let mut lab = Lab::manager_only(options);
        let tap = |number| {
            let (name, tap) = (format!("donor-{number}"), Tap::listening());
            let advertise = Some(tap.address());
            lab.lend(&name, Lending { advertise, max: lends.into(), ..Lending::default() });
            tap.aim(lab.donor_address(&name));
            tap
        };
        let taps = (1..=count).map(tap).collect();
        lab.wait_live();
        Self { lab, taps, kept: Cell::default() }
    }

    /// Returns the bytes that went over all wires so far.
    fn carried(&self) -> u64 {
        self.taps.iter().map(|tap| tap.count() as u64).sum()
    }

    /// Stores a file by a command that is interrupted when the first `part` bytes are at donors, and returns the whole
    /// file. For each chunk of it the space stores `halves` half ones.
    fn interrupted(
        &self,
        seed: u64,
        (len, part): (usize, usize),
        halves: usize,
        end: End,
    ) -> (PathBuf, Vec<u8>) {
        let (input, content) = file(self.lab.dir(), &format!("input-{seed}"), seed, len);
        let (before, stored) = (self.lab.chunk_files(), part * halves / 2);
        let mut writer = Writer::start(&self.lab.cli, "pot://lab/f", &[]);
        writer.feed(&content[..part]);
        wait_until("the first part to be stored", DEADLINE, || {
            self.lab.chunk_files() - before >= stored / CHUNK
        });
        end.befalls(&mut writer);
        wait_until("what was sent to be kept", DEADLINE, || {
            let status = self.lab.cli.status();
            self.kept.set(status["interrupted_bytes"].as_u64().unwrap_or_default());
            self.kept.get() >= stored as u64
                && status["interrupted_uploads"] == 1
                && status["sessions"] == 0
        });
        (input, content)
    }

    /// Stores the file again, and asserts that no more than `missing` bytes go over the wires.
    fn goes_on(&self, input: &Path, content: &[u8], missing: u64) {
        let before = self.carried();
        let report = self.lab.cli.json(&["cp", arg(input), "pot://lab/f"]);
        let sent = self.carried() - before;
        println!("{sent} bytes were sent for {missing} that were missing: {report}");
        assert!(sent <= missing + BESIDE, "{sent} bytes for {missing}: {report}");
        let went_on = report["resumed_copies_bytes"].as_u64().expect("bytes");
        let kept = self.kept.get();
        assert!((kept..=kept + BESIDE).contains(&went_on), "{kept} were kept: {report}");
        assert!(report["resumed_bytes"].as_u64() > Some(0), "{report}");
        assert_same(&self.lab.cli.cat("pot://lab/f"), content, "the file");
        assert_eq!(self.lab.cli.status()["interrupted_uploads"], 0, "nothing is left of it");
    }
}

/// A way in which a writer ends.
#[derive(Clone, Copy)]
enum End {
    Interrupted,
    Killed,
}

impl End {
    fn befalls(self, writer: &mut Writer) {
        match self {
            Self::Interrupted => {
                writer.running.signal(Signal::INT);
                assert_eq!(code_of(writer.running.end("the interrupted writer")), 130);
            }
            Self::Killed => drop(writer.running.kill_9()),
        }
    }
}

#[test]
fn resumed_upload_sends_only_missing_chunks() {
    let pool = Counted::with_donors(2, "1GiB", KEPT);
    pool.lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (input, content) = pool.interrupted(1, (24 << 20, 18 << 20), 2, End::Interrupted);
    pool.goes_on(&input, &content, 6 << 20);
}

#[test]
fn killed_upload_resumes_after_a_manager_restart() {
    let mut pool = Counted::with_donors(2, "1GiB", KEPT);
    pool.lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, content) = pool.interrupted(2, (16 << 20, 12 << 20), 4, End::Killed);
    pool.lab.kill_manager();
    pool.lab.start_manager();
    pool.goes_on(&input, &content, 2 * (4 << 20));
}

#[test]
fn an_erasure_coded_upload_goes_on() {
    let pool = Counted::with_donors(3, "1GiB", KEPT);
    pool.lab.cli.ok(&["space", "create", "lab", "--ec", "2+1", "--chunk-size", "64KiB"]);
    let (input, content) = pool.interrupted(3, (16 << 20, 12 << 20), 3, End::Interrupted);
    pool.goes_on(&input, &content, (4 << 20) * 3 / 2);
}

/// D2: an interrupted upload that nobody goes on with is gone when its time is over.
#[test]
fn an_interrupted_upload_that_nobody_takes_up_is_reclaimed_d2() {
    let options = ["--resume-window", "10s", "--lease", "10s", "--gc-delay", "1s"];
    let pool = Counted::with_donors(2, "1GiB", &options);
    pool.lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    pool.interrupted(4, (8 << 20, 6 << 20), 2, End::Killed);
    pool.lab.wait_clean(0);
    assert_eq!(pool.lab.cli.status()["interrupted_uploads"], 0);
    pool.lab.cli.fails(3, &["stat", "pot://lab/f"]);
}

/// Nobody can fill a pool with uploads that are never finished.
#[test]
fn interrupted_uploads_give_way_when_room_is_needed() {
    let pool = Counted::with_donors(2, "32MiB", KEPT);
    pool.lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    pool.interrupted(5, (40 << 20, 24 << 20), 2, End::Interrupted);
    let (other, content) = file(pool.lab.dir(), "other", 6, 48 << 20);
    pool.lab.cli.ok(&["cp", arg(&other), "pot://lab/other"]);
    assert_same(&pool.lab.cli.cat("pot://lab/other"), &content, "what needed the room");
    assert_eq!(pool.lab.cli.status()["interrupted_uploads"], 0);
}

/// Nothing is given up and nothing waited for, though the whole file has no room beside what is there of it, and nobody
/// has told the pool that its writer is dead.
#[test]
fn killed_upload_resumes_where_room_exists_only_once() {
    let mut lab = Lab::manager_only(&["--resume-window", "10m", "--lease", "60s"]);
    let tap = Tap::slow(2 << 20);
    let advertise = Some(tap.address());
    lab.lend("donor-1", Lending { advertise, max: "36MiB".into(), ..Lending::default() });
    tap.aim(lab.donor_address("donor-1"));
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 8, 32 << 20);
    let put = ["cp", arg(&input), "pot://lab/f"];
    let mut writer = lab.cli.start(&put);
    wait_until("six tenths to be stored", DEADLINE, || {
        lab.chunk_files() * CHUNK >= content.len() / 10 * 6
    });
    writer.kill_9();
    tap.hurry(true);
    let stored = (lab.chunk_files() * CHUNK) as u64;
    let ran = lab.cli.run(&[&["--json"], &put[..]].concat()).ok();
    let report = ran.json();
    assert!(report["resumed_bytes"].as_u64() >= Some(stored - 2 * BESIDE), "{stored}: {report}");
    assert!(ran.took < Duration::from_secs(20), "it waited for the lease: {:?}", ran.took);
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
}

/// A session outlives its lease: its client was away and goes on.
#[test]
fn a_writer_that_was_away_for_longer_than_its_lease_goes_on() {
    let pool = Counted::with_donors(2, "1GiB", KEPT);
    pool.lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let content = bytes(7, 16 << 20);
    let mut writer = Writer::start(&pool.lab.cli, "pot://lab/f", &[]);
    let (first, rest) = content.split_at(12 << 20);
    writer.feed(first);
    wait_until("the first part to be stored", DEADLINE, || pool.lab.chunk_files() >= 12 * 16);
    let before = pool.carried();
    writer.running.signal(Signal::STOP);
    wait_until("its lease to end", DEADLINE, || pool.lab.cli.status()["interrupted_uploads"] == 1);
    writer.running.signal(Signal::CONT);
    writer.feed(rest);
    assert_eq!(writer.finish(), 0);
    let sent = pool.carried() - before;
    assert!(sent <= rest.len() as u64 + BESIDE, "{sent} bytes were sent for {}", rest.len());
    assert_same(&pool.lab.cli.cat("pot://lab/f"), &content, "the file");
    assert_eq!(pool.lab.cli.status()["interrupted_uploads"], 0);
}
