//! Tests `kill -9` of any role at any moment. Moments and victims are drawn by lot from a printed seed.

use super::content::{Lots, arg, assert_same, bytes, file};
use super::extent::cases;
use super::lab::{Cli, Lab};
use super::waiting::{DEADLINE, pause, wait_until};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The number of kills in the test of one role.
fn kills() -> usize {
    cases(8, 20)
}

#[test]
fn kill_9_of_the_client_loses_no_committed_byte() {
    let lab = Lab::with_options(2, &["--lease", "10s", "--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let mut lots = Lots::new("moments of death of the client", 11);
    let len = 6 << 20;
    let (input, mut kept) = file(lab.dir(), "input", 0, len);
    let usual = lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]).took;
    let (mut old, mut new) = (0, 0);
    // A commit that was on its way when its client died may be carried out after the next read.
    let mut on_its_way = Vec::new();
    for round in 1..=kills() {
        let (input, newer) = file(lab.dir(), "input", round as u64, len);
        let mut writer = lab.cli.start(&["cp", arg(&input), "pot://lab/f"]);
        pause(usual.mul_f64(lots.below(1100) as f64 / 1000.0));
        let done = writer.ended().is_some_and(|status| status.success());
        writer.kill_9();
        let found = lab.cli.cat("pot://lab/f");
        if found == newer {
            (kept, new) = (newer, new + 1);
            on_its_way.clear();
        } else {
            assert!(!done, "round {round}: cp had returned, and its file is not there");
            if found == on_its_way {
                kept = std::mem::take(&mut on_its_way);
            }
            on_its_way = newer;
            assert_same(&found, &kept, &format!("the version before, round {round}"));
            old += 1;
        }
    }
    println!("{old} died before their commit, {new} after");
    assert!(old > 0, "no client died before its commit");
    // Leases end, chunks that no file uses are reclaimed, and one file stays.
    lab.wait_settled();
    let stays = lab.cli.cat("pot://lab/f");
    let kept = if stays == on_its_way { on_its_way } else { kept };
    assert_same(&stays, &kept, "the file that stays");
    lab.cli.ok(&["rm", "pot://lab/f"]);
    lab.wait_clean(0);
}

/// The outcomes of a writer that stores one file after the other.
#[derive(Default)]
struct Written {
    stop: AtomicBool,
    /// The numbers of files whose `cp` returned 0.
    committed: Mutex<Vec<u64>>,
    /// The numbers and exit codes of the other files.
    refused: Mutex<Vec<(u64, i32)>>,
}

impl Written {
    fn written(&self) -> usize {
        self.committed.lock().expect("no holder panics").len()
    }

    /// Stores numbered files until told to stop.
    fn keep_writing(&self, cli: &Cli, dir: &Path, len: usize) {
        for number in 0.. {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let input = dir.join(format!("writer-{number}"));
            fs::write(&input, bytes(1000 + number, len)).expect("a file");
            let ran = cli.run(&["cp", arg(&input), &format!("pot://lab/{number}")]);
            let _ = fs::remove_file(input);
            match ran.code {
                0 => self.committed.lock().expect("no holder panics").push(number),
                code => {
                    println!("file {number}: exit code {code}: {}", ran.stderr);
                    self.refused.lock().expect("no holder panics").push((number, code));
                }
            }
        }
    }

    /// Checks that every committed file is there and right, and that every other is right or not there.
    fn check(&self, lab: &Lab, len: usize) {
        let committed = self.committed.lock().expect("no holder panics");
        for number in committed.iter() {
            let what = format!("committed file {number}");
            assert_same(
                &lab.cli.cat(&format!("pot://lab/{number}")),
                &bytes(1000 + number, len),
                &what,
            );
        }
        let mut late = 0;
        for (number, code) in self.refused.lock().expect("no holder panics").iter() {
            assert!(
                [5, 6].contains(code),
                "file {number}: exit code {code} is neither “try again” nor “no space”"
            );
            let ran = lab.cli.run(&["cat", &format!("pot://lab/{number}")]);
            if ran.code == 0 {
                assert_same(
                    &ran.stdout,
                    &bytes(1000 + number, len),
                    &format!("refused file {number}"),
                );
                late += 1;
            } else {
                assert_eq!(ran.code, 3, "file {number}: {}", ran.stderr);
            }
        }
        println!(
            "{} files committed; {late} of those refused are there all the same",
            committed.len()
        );
    }

    /// Waits for one more committed file.
    fn wait_for_progress(&self) {
        let before = self.written();
        wait_until("one more committed file", DEADLINE, || self.written() > before);
    }
}

/// A guard that stops the writer also when the test fails, because its thread is waited for.
struct StopAtEnd<'a>(&'a Written);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

#[test]
fn kill_9_of_a_donor_loses_no_committed_byte() {
    let mut lab = Lab::with_options(3, &["--lease", "10s", "--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let mut lots = Lots::new("donors and moments of their death", 12);
    let (written, len) = (Written::default(), 2 << 20);
    let (cli, dir) = (lab.cli.clone(), lab.dir().to_path_buf());
    std::thread::scope(|scope| {
        let stop = StopAtEnd(&written);
        scope.spawn(|| written.keep_writing(&cli, &dir, len));
        for _ in 0..kills() {
            // Each death must meet some work, also where a file takes longer than donors live.
            written.wait_for_progress();
            let victim = lab.any_donor(&mut lots);
            pause(Duration::from_millis(lots.below(400)));
            lab.kill_donor(&victim);
            pause(Duration::from_millis(lots.below(200)));
            lab.start_donor(&victim);
            lab.wait_back(&victim);
        }
        written.wait_for_progress();
        drop(stop);
    });
    lab.wait_live();
    written.check(&lab, len);
    for number in written.committed.lock().expect("no holder panics").iter() {
        let path = format!("pot://lab/{number}");
        // A death costs no copy that was promised: what was acknowledged is on the donor's disk.
        wait_until("both copies to be counted", DEADLINE, || {
            lab.cli.json(&["stat", &path])["live_copies"] == 2
        });
    }
    lab.wait_settled();
    lab.cli.ok(&["space", "rm", "-r", "-y", "lab"]);
    lab.wait_clean(0);
}

#[test]
fn kill_9_of_the_manager_loses_no_committed_byte() {
    let mut lab = Lab::with_options(2, &["--lease", "10s", "--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let mut lots = Lots::new("moments of death of the manager", 13);
    let (written, len) = (Written::default(), 1 << 20);
    let (cli, dir) = (lab.cli.clone(), lab.dir().to_path_buf());
    std::thread::scope(|scope| {
        let stop = StopAtEnd(&written);
        scope.spawn(|| written.keep_writing(&cli, &dir, len));
        for _ in 0..kills() {
            // Each run must see some work, and ends at any moment of it.
            written.wait_for_progress();
            pause(Duration::from_millis(lots.below(250)));
            lab.kill_manager();
            pause(Duration::from_millis(lots.below(50)));
            lab.start_manager();
        }
        written.wait_for_progress();
        drop(stop);
    });
    lab.wait_live();
    assert_eq!(lab.cli.status()["epoch"], kills() + 1);
    written.check(&lab, len);
    lab.wait_settled();
    lab.cli.ok(&["space", "rm", "-r", "-y", "lab"]);
    lab.wait_clean(0);
}

#[test]
fn kill_9_of_everything_at_once_loses_no_committed_byte() {
    let mut lab = Lab::with_options(2, &["--lease", "10s", "--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let mut lots = Lots::new("moments of a power cut", 14);
    let len = 3 << 20;
    let mut committed = Vec::new();
    for round in 0..cases(3, 6) as u64 {
        let (input, _) = file(lab.dir(), "whole", 2 * round, len);
        let path = format!("pot://lab/{round}");
        lab.cli.ok(&["cp", arg(&input), &path]);
        committed.push((path, bytes(2 * round, len)));
        let (input, partial) = file(lab.dir(), "partial", 2 * round + 1, len);
        let mut writer = lab.cli.start(&["cp", arg(&input), "pot://lab/partial"]);
        pause(Duration::from_millis(lots.below(250)));
        lab.kill_manager();
        for name in lab.donor_names() {
            lab.kill_donor(&name);
        }
        writer.kill_9();
        lab.start_manager();
        for name in lab.donor_names() {
            lab.start_donor(&name);
        }
        lab.wait_live();
        for (path, content) in &committed {
            assert_same(&lab.cli.cat(path), content, &format!("{path} after cut {round}"));
        }
        let ran = lab.cli.run(&["cat", "pot://lab/partial"]);
        if ran.code == 0 {
            assert_same(&ran.stdout, &partial, "the file that was being written");
            lab.cli.ok(&["rm", "pot://lab/partial"]);
        } else {
            assert_eq!(ran.code, 3, "{}", ran.stderr);
        }
    }
    lab.wait_settled();
    lab.cli.ok(&["space", "rm", "-r", "-y", "lab"]);
    lab.wait_clean(0);
}

#[test]
fn a_write_under_way_outlives_a_restart_of_the_manager() {
    use std::io::Write;
    let mut lab = Lab::with_options(2, &["--lease", "10s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let content = bytes(15, 4 << 20);
    let mut writer = lab.cli.start(&["cp", "-", "pot://lab/f"]);
    let mut input = writer.child().stdin.take().expect("a pipe");
    input.write_all(&content[..2 << 20]).expect("a writer that reads");
    wait_until("chunks to flow", DEADLINE, || lab.chunk_files() >= 20);
    lab.kill_manager();
    input.write_all(&content[2 << 20..]).expect("a writer that reads");
    drop(input);
    lab.start_manager();
    assert!(writer.end("the writer").success());
    lab.wait_live();
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
}
