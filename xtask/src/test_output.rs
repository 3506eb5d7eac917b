//! Passes the tests' output on while counting what it says.
//!
//! A test that cannot run here says so by writing `SKIPPED <name>: <reason>` on a line of standard
//! output (through `std::io::stdout()`, because `println!` of a passing test is captured).

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Sums over all test executables.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    executables: u64,
    passed: u64,
    failed: u64,
    ignored: u64,
    skipped: Vec<String>,
    /// Tests that failed, by name.
    failed_tests: Vec<String>,
    /// Tests that failed, and passed when they were run again.
    flaky: Vec<String>,
    /// What failing tests printed, with the lines by which the harness names them.
    failures: Vec<String>,
    /// Lines that may follow of what a failing test printed; 0 elsewhere in the output.
    lines_of_failure: usize,
    /// Tests of which the harness said that they take long, and did not say how they ended.
    slow: BTreeSet<String>,
}

/// More failures than this are no coincidence, and nothing is run again.
const FLAKY_AT_ONCE: usize = 3;

/// Lines that are said again of each failing test.
const LINES_OF_FAILURE: usize = 25;

impl Tally {
    /// Learns from one line of output.
    fn line(&mut self, line: &str) {
        if line.starts_with("---- ") {
            self.lines_of_failure = LINES_OF_FAILURE;
        } else if line.starts_with("failures:") {
            self.lines_of_failure = 0;
        }
        if self.lines_of_failure > 0 && !line.trim().is_empty() {
            self.failures.push(line.trim_end().to_owned());
            self.lines_of_failure -= 1;
        }
        if let Some(about) = line.strip_prefix("test ") {
            if let Some((test, _)) = about.split_once(" has been running for over ") {
                self.slow.insert(test.to_owned());
            } else if let Some((test, ended)) = about.split_once(" ... ") {
                self.slow.remove(test);
                if ended.trim() == "FAILED" {
                    self.failed_tests.push(test.to_owned());
                }
            }
        }
        if let Some((_, skipped)) = line.split_once("SKIPPED ") {
            self.skipped.push(skipped.trim().to_owned());
        }
        let Some(counts) = line.strip_prefix("test result: ") else { return };
        self.executables += 1;
        for part in counts.split(['.', ';']) {
            let mut words = part.split_whitespace();
            let Some(Ok(count)) = words.next().map(str::parse::<u64>) else { continue };
            match words.next() {
                Some("passed") => self.passed += count,
                Some("failed") => self.failed += count,
                Some("ignored") => self.ignored += count,
                _ => {}
            }
        }
    }

    /// Adds what another run counted.
    pub fn add(&mut self, other: Self) {
        self.executables += other.executables;
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.skipped.extend(other.skipped);
        self.failed_tests.extend(other.failed_tests);
        self.flaky.extend(other.flaky);
        self.failures.extend(other.failures);
    }

    /// Notes that the tests were ended, which took longer than `limit`.
    fn overran(&mut self, limit: Duration) {
        self.failed += self.slow.len().max(1) as u64;
        self.failures.push(format!("---- ended after {} min ----", limit.as_secs() / 60));
        let slow = std::mem::take(&mut self.slow);
        self.failures.extend(slow.into_iter().map(|test| format!("{test} did not end")));
    }

    /// Names the tests that are worth a second try: all that failed, where they are few and all are known.
    pub fn to_run_again(&self) -> Option<&[String]> {
        let failed = self.failed_tests.len();
        ((1..=FLAKY_AT_ONCE).contains(&failed) && self.failed == failed as u64)
            .then_some(&*self.failed_tests)
    }

    /// Takes the failed tests for flaky ones if `again`, a run of them alone, passed them all.
    pub fn ran_again(&mut self, again: &Self) -> bool {
        let failed = self.failed_tests.len() as u64;
        let passed = again.failed == 0 && again.passed >= failed;
        if passed {
            self.passed += failed;
            self.failed = 0;
            self.flaky.append(&mut self.failed_tests);
        } else {
            self.failures.extend_from_slice(&again.failures);
        }
        passed
    }

    /// Names again what was skipped: in the middle of the output nobody sees it.
    pub fn print_skipped(&self) {
        for skipped in &self.skipped {
            println!("skipped: {skipped}");
        }
    }

    /// Says again what failing tests said, and which of them passed later: whoever reads the end of a long output finds it there.
    pub fn print_failures(&self) {
        for line in &self.failures {
            println!("{line}");
        }
        for test in &self.flaky {
            println!("flaky: {test} failed, and passed when it was run again by itself");
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.executables == 0 {
            return write!(f, "no tests run");
        }
        // A skipped test returns early, so the harness counts it as passed; we don't.
        let skipped = self.skipped.len() as u64;
        let passed = self.passed.saturating_sub(skipped);
        write!(f, "tests: {passed} passed, {} failed, {skipped} skipped", self.failed)?;
        if self.ignored > 0 {
            write!(f, ", {} ignored", self.ignored)?;
        }
        if !self.flaky.is_empty() {
            write!(f, ", {} flaky", self.flaky.len())?;
        }
        Ok(())
    }
}

/// Runs `command` for at most `limit`, passes its standard output on to `out` line by line and counts.
pub fn relay(
    command: &mut Command,
    limit: Duration,
    out: &mut impl Write,
) -> (Result<String, String>, Tally) {
    let mut tally = Tally::default();
    let outcome = read_through(command, limit, out, &mut tally).map_err(|error| error.to_string());
    let outcome = match outcome {
        Ok(true) => Ok(tally.to_string()),
        Ok(false) => Err(tally.to_string()),
        Err(error) => Err(error),
    };
    (outcome, tally)
}

fn read_through(
    command: &mut Command,
    limit: Duration,
    out: &mut impl Write,
    tally: &mut Tally,
) -> io::Result<bool> {
    let until = Instant::now() + limit;
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let pipe = child.stdout.take().expect("it is piped");
    let (sender, lines) = sync_channel(0);
    thread::spawn(move || send_lines(BufReader::new(pipe), &sender));
    loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                let line = line?;
                out.write_all(&line)?;
                tally.line(&String::from_utf8_lossy(&line));
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(child.wait()?.success()),
            Err(RecvTimeoutError::Timeout) => {
                tally.overran(limit);
                return end(&mut child).map(|()| false);
            }
        }
    }
}

/// Passes lines on until nobody takes them. Lines are bytes: what a failing test prints need not be UTF-8.
fn send_lines(mut pipe: impl BufRead, lines: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut line = Vec::new();
        let read = pipe.read_until(b'\n', &mut line);
        if matches!(read, Ok(0)) || lines.send(read.map(|_| line)).is_err() {
            return;
        }
    }
}

/// Ends cargo and the tests that it runs. A test's own processes may live on, and what they have of the pipe is left.
fn end(cargo: &mut Child) -> io::Result<()> {
    Command::new("pkill").args(["-KILL", "-P", &cargo.id().to_string()]).status()?;
    cargo.kill()?;
    cargo.wait().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_executables_are_summed() {
        let mut tally = Tally::default();
        tally.line("test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out");
        tally.line("test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured");
        tally.line("test a ... SKIPPED a_full_disk: needs root\n");
        assert_eq!(tally.to_string(), "tests: 6 passed, 3 failed, 1 skipped, 1 ignored");
        assert_eq!(tally.skipped, ["a_full_disk: needs root"]);
    }

    #[test]
    fn only_output_of_failing_tests_is_kept() {
        let mut tally = Tally::default();
        let printed = "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\n\npanicked at 'x'\nleft: 1\n\n\
                       failures:\n    a\n\ntest result: FAILED. 2 passed; 1 failed\ntest b ... ok\n";
        printed.lines().for_each(|line| tally.line(line));
        assert_eq!(tally.failures, ["---- a stdout ----", "panicked at 'x'", "left: 1"]);
    }

    #[test]
    fn a_test_that_passes_when_it_is_run_again_is_named_as_flaky() {
        let mut first = Tally::default();
        for line in
            ["test a ... ok", "test b ... FAILED", "test result: FAILED. 1 passed; 1 failed"]
        {
            first.line(line);
        }
        assert_eq!(first.to_run_again(), Some(&["b".to_owned()][..]));
        let mut again = Tally::default();
        again.line("test result: FAILED. 0 passed; 1 failed");
        assert!(!first.ran_again(&again));
        assert_eq!(first.to_string(), "tests: 1 passed, 1 failed, 0 skipped");

        let mut again = Tally::default();
        again.line("test result: ok. 0 passed; 0 failed");
        assert!(!first.ran_again(&again), "it was not run");
        again.line("test result: ok. 1 passed; 0 failed");
        assert!(first.ran_again(&again));
        assert_eq!(first.to_string(), "tests: 2 passed, 0 failed, 0 skipped, 1 flaky");
        assert_eq!(first.to_run_again(), None);
    }

    #[test]
    fn many_failures_or_one_without_a_name_are_not_run_again() {
        let mut tally = Tally::default();
        (0..4).for_each(|number| tally.line(&format!("test t{number} ... FAILED")));
        tally.line("test result: FAILED. 1 passed; 4 failed");
        assert_eq!(tally.to_run_again(), None);
        let mut tally = Tally::default();
        tally.line("test a ... FAILED");
        tally.line("test result: FAILED. 1 passed; 2 failed");
        assert_eq!(tally.to_run_again(), None);
    }

    #[test]
    fn a_failing_program_is_reported_and_its_lines_counted() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'test result: ok. 1 passed; 0 failed'; exit 3"]);
        let mut out = Vec::new();
        let (outcome, tally) = relay(&mut command, Duration::from_mins(1), &mut out);
        assert!(outcome.is_err());
        assert_eq!((tally.passed, out.is_empty()), (1, false));
    }

    #[test]
    fn tests_that_do_not_end_are_ended_and_named() {
        let said = "test a has been running for over 60 seconds\ntest b has been running for over 60 seconds\n\
                    test b ... ok";
        let mut command = Command::new("sh");
        command.args(["-c", &format!("echo '{said}'; sleep 600; :")]);
        let (outcome, tally) = relay(&mut command, Duration::from_secs(1), &mut Vec::new());
        assert!(outcome.is_err());
        assert_eq!(tally.failures, ["---- ended after 0 min ----", "a did not end"]);
        assert_eq!(tally.failed, 1);
    }
}
