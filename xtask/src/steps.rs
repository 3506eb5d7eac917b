//! Steps run one after the other, are timed, and end in a table.

use std::env;
use std::fmt::Display;
use std::io::{IsTerminal, stdout};
use std::process::Command;
use std::time::{Duration, Instant};

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    Failed,
    /// Left out because what it needs had failed.
    NotRun,
}

struct Row {
    name: &'static str,
    outcome: Outcome,
    took: Duration,
    remark: String,
}

/// What was run so far.
#[derive(Default)]
pub struct Steps {
    rows: Vec<Row>,
}

impl Steps {
    /// Runs `step` under a headline. Its text, good or bad, becomes the remark in the table.
    pub fn run(
        &mut self,
        name: &'static str,
        step: impl FnOnce() -> Result<String, String>,
    ) -> bool {
        println!("\n{}", paint("1", format_args!("==> {name}")));
        let start = Instant::now();
        let (outcome, remark) = match step() {
            Ok(remark) => (Outcome::Ok, remark),
            Err(remark) => (Outcome::Failed, remark),
        };
        self.rows.push(Row { name, outcome, took: start.elapsed(), remark });
        outcome == Outcome::Ok
    }

    /// Notes that a step was left out and why.
    pub fn not_run(&mut self, name: &'static str, why: &str) {
        let (outcome, took) = (Outcome::NotRun, Duration::ZERO);
        self.rows.push(Row { name, outcome, took, remark: why.to_owned() });
    }

    /// Prints the table and the last line; true when every step was fine.
    pub fn summarise(&self, command: &str, totals: &str) -> bool {
        println!("\n{}", paint("1", "==> summary"));
        for row in &self.rows {
            let (colour, word) = match row.outcome {
                Outcome::Ok => ("32", "ok"),
                Outcome::Failed => ("31;1", "FAILED"),
                Outcome::NotRun => ("33", "not run"),
            };
            // Padded before it is painted: escape codes count as width.
            let word = paint(colour, format_args!("{word:<7}"));
            let took = row.took.as_secs_f64();
            println!("{:<8} {word} {took:>8.1} s  {}", row.name, row.remark);
        }
        let good = self.rows.iter().filter(|row| row.outcome == Outcome::Ok).count();
        let all_good = good == self.rows.len();
        let verdict = if all_good { paint("32", "ok") } else { paint("31;1", "FAILED") };
        let took: Duration = self.rows.iter().map(|row| row.took).sum();
        println!(
            "{command}: {verdict}. {good} of {} steps ok; {totals}; {:.1} s",
            self.rows.len(),
            took.as_secs_f64()
        );
        all_good
    }
}

/// Runs a command with our own input and output; the error says how it ended.
pub fn run_command(command: &mut Command) -> Result<String, String> {
    match command.status() {
        Ok(status) if status.success() => Ok(String::new()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(format!("{}: {error}", command.get_program().display())),
    }
}

/// Whether the reader is a person at a terminal who did not ask for plain text.
pub fn colours() -> bool {
    stdout().is_terminal() && env::var_os("CI").is_none() && env::var_os("NO_COLOR").is_none()
}

fn paint(code: &str, text: impl Display) -> String {
    if colours() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_fails_the_whole_and_the_rest_still_runs() {
        let mut steps = Steps::default();
        assert!(!steps.run("bad", || Err("broken".into())));
        assert!(steps.run("good", || Ok(String::new())));
        assert!(!steps.summarise("test", "no tests"));
    }

    #[test]
    fn a_step_left_out_is_no_success() {
        let mut steps = Steps::default();
        steps.not_run("test", "the build failed");
        assert!(!steps.summarise("test", "no tests"));
    }
}
