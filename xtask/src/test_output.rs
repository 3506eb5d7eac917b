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
    /// What failing tests printed, with the lines by which the harness names them.
    failures: Vec<String>,
    /// Lines that may follow of what a failing test printed; 0 elsewhere in the output.
    lines_of_failure: usize,
    /// Tests of which the harness said that they take long, and did not say how they ended.
    slow: BTreeSet<String>,
}

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
            } else if let Some((test, _)) = about.split_once(" ... ") {
                self.slow.remove(test);
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
        self.failures.extend(other.failures);
    }

    /// Notes that the tests were ended, which took longer than `limit`.
    fn overran(&mut self, limit: Duration) {
        self.failed += self.slow.len().max(1) as u64;
        self.failures.push(format!("---- ended after {} min ----", limit.as_secs() / 60));
        let slow = std::mem::take(&mut self.slow);
        self.failures.extend(slow.into_iter().map(|test| format!("{test} did not end")));
    }

    /// Names again what was skipped: in the middle of the output nobody sees it.
    pub fn print_skipped(&self) {
        for skipped in &self.skipped {
            println!("skipped: {skipped}");
        }
    }

    /// Says again what failing tests said: whoever reads the end of a long output finds it there.
    pub fn print_failures(&self) {
        for line in &self.failures {
            println!("{line}");
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
    fn what_a_failing_test_printed_is_kept_and_nothing_else() {
        let mut tally = Tally::default();
        let printed = "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\n\npanicked at 'x'\nleft: 1\n\n\
                       failures:\n    a\n\ntest result: FAILED. 2 passed; 1 failed\ntest b ... ok\n";
        printed.lines().for_each(|line| tally.line(line));
        assert_eq!(tally.failures, ["---- a stdout ----", "panicked at 'x'", "left: 1"]);
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
