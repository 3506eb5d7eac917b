//! Steps that run one after the other, or beside others, are timed and shown in a table at the end.

use std::env;
use std::fmt::Display;
use std::io::{IsTerminal, stdout};
use std::process::Command;
use std::time::{Duration, Instant};

/// The ways in which a step can end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    Failed,
    /// The step was left out because something that it needs had failed.
    NotRun,
}

struct Row {
    name: &'static str,
    outcome: Outcome,
    took: Duration,
    remark: String,
}

/// The steps that were run so far.
pub struct Steps {
    rows: Vec<Row>,
    started: Instant,
}

/// The outcome of a step that ran beside others, with its output, which is printed when the turn of the step comes.
pub struct Beside {
    pub outcome: Result<String, String>,
    pub took: Duration,
    pub printed: Vec<u8>,
}

impl Steps {
    pub fn new() -> Self {
        Self { rows: Vec::new(), started: Instant::now() }
    }

    /// Runs `step` under a headline, and returns whether it was fine. Its text, good or bad, becomes the remark in
    /// the table.
    pub fn run(
        &mut self,
        name: &'static str,
        step: impl FnOnce() -> Result<String, String>,
    ) -> bool {
        headline(name);
        let start = Instant::now();
        let outcome = step();
        self.note(name, outcome, start.elapsed())
    }

    /// Notes a step that ran beside others, prints its output, and returns whether it was fine.
    pub fn ran_beside(&mut self, name: &'static str, ran: Beside) -> bool {
        headline(name);
        print!("{}", String::from_utf8_lossy(&ran.printed));
        self.note(name, ran.outcome, ran.took)
    }

    /// Adds a step to the table and returns whether it was fine.
    fn note(
        &mut self,
        name: &'static str,
        outcome: Result<String, String>,
        took: Duration,
    ) -> bool {
        let (outcome, remark) = match outcome {
            Ok(remark) => (Outcome::Ok, remark),
            Err(remark) => (Outcome::Failed, remark),
        };
        self.rows.push(Row { name, outcome, took, remark });
        outcome == Outcome::Ok
    }

    /// Notes that a step was left out, and why.
    pub fn not_run(&mut self, name: &'static str, why: &str) {
        let (outcome, took) = (Outcome::NotRun, Duration::ZERO);
        self.rows.push(Row { name, outcome, took, remark: why.to_owned() });
    }

    /// Prints the table and the last line, and returns whether every step was fine.
    pub fn summarise(&self, command: &str, totals: &str) -> bool {
        headline("summary");
        for row in &self.rows {
            let (colour, word) = match row.outcome {
                Outcome::Ok => ("32", "ok"),
                Outcome::Failed => ("31;1", "FAILED"),
                Outcome::NotRun => ("33", "not run"),
            };
            // The word is padded before it is painted, since escape codes count as width.
            let word = paint(colour, format_args!("{word:<7}"));
            let took = row.took.as_secs_f64();
            println!("{:<10} {word} {took:>8.1} s  {}", row.name, row.remark);
        }
        let good = self.rows.iter().filter(|row| row.outcome == Outcome::Ok).count();
        let all_good = good == self.rows.len();
        let verdict = if all_good { paint("32", "ok") } else { paint("31;1", "FAILED") };
        println!(
            "{command}: {verdict}. {good} of {} steps ok; {totals}; {:.1} s",
            self.rows.len(),
            self.started.elapsed().as_secs_f64()
        );
        all_good
    }
}

/// Runs a command with xtask's own input and output. The error says how it ended.
pub fn run_command(command: &mut Command) -> Result<String, String> {
    match command.status() {
        Ok(status) if status.success() => Ok(String::new()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(format!("{}: {error}", command.get_program().display())),
    }
}

/// Returns whether the reader is a person at a terminal who did not ask for plain text.
pub fn colours() -> bool {
    stdout().is_terminal() && env::var_os("CI").is_none() && env::var_os("NO_COLOR").is_none()
}

fn headline(name: &str) {
    println!("\n{}", paint("1", format_args!("==> {name}")));
}

fn paint(code: &str, text: impl Display) -> String {
    if colours() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_step_fails_the_run_and_later_steps_still_run() {
        let mut steps = Steps::new();
        assert!(!steps.run("bad", || Err("broken".into())));
        assert!(steps.run("good", || Ok(String::new())));
        assert!(!steps.summarise("test", "no tests"));
    }

    #[test]
    fn a_step_left_out_is_no_success() {
        let mut steps = Steps::new();
        steps.not_run("test", "the build failed");
        assert!(!steps.summarise("test", "no tests"));
    }
}
