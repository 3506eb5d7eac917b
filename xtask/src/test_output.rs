//! Passes the tests' output on while counting what it says.
//!
//! A test that cannot run here says so by writing `SKIPPED <name>: <reason>` on a line of standard
//! output (through `std::io::stdout()`, because `println!` of a passing test is captured).

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// Sums over all test executables.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    executables: u64,
    passed: u64,
    failed: u64,
    ignored: u64,
    skipped: Vec<String>,
}

impl Tally {
    /// Learns from one line of output.
    fn line(&mut self, line: &str) {
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
    }

    /// Names again what was skipped: in the middle of the output nobody sees it.
    pub fn print_skipped(&self) {
        for skipped in &self.skipped {
            println!("skipped: {skipped}");
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

/// Runs `command`, passes its standard output on to `out` line by line and counts.
pub fn relay(command: &mut Command, out: &mut impl Write) -> (Result<String, String>, Tally) {
    let mut tally = Tally::default();
    let outcome = read_through(command, out, &mut tally).map_err(|error| error.to_string());
    let outcome = match outcome {
        Ok(true) => Ok(tally.to_string()),
        Ok(false) => Err(tally.to_string()),
        Err(error) => Err(error),
    };
    (outcome, tally)
}

fn read_through(
    command: &mut Command,
    out: &mut impl Write,
    tally: &mut Tally,
) -> std::io::Result<bool> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    if let Some(pipe) = child.stdout.take() {
        let mut pipe = BufReader::new(pipe);
        let mut bytes = Vec::new();
        // Lines are bytes: what a failing test prints need not be UTF-8.
        while pipe.read_until(b'\n', &mut bytes)? > 0 {
            out.write_all(&bytes)?;
            tally.line(&String::from_utf8_lossy(&bytes));
            bytes.clear();
        }
    }
    Ok(child.wait()?.success())
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
    fn a_failing_program_is_reported_and_its_lines_counted() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'test result: ok. 1 passed; 0 failed'; exit 3"]);
        let mut out = Vec::new();
        let (outcome, tally) = relay(&mut command, &mut out);
        assert!(outcome.is_err());
        assert_eq!((tally.passed, out.is_empty()), (1, false));
    }
}
