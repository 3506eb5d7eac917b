//! Output for people and programs: text or JSON on standard output, errors on standard error.
//!
//! Members choose the names that it holds. So all that commands say goes through here, and nothing in it moves a cursor,
//! turns the direction of text or rings a bell; [`name`] and [`told`] keep a name on its line besides.

use crate::args::Global;
use crate::local_time::LocalTime;
pub use potluck_core::size::{count, duration};
use potluck_core::text::is_unseen;
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

/// Writes results to standard output. If the reader has closed it, the process ends quietly, as `head` expects.
pub struct Output {
    json: bool,
    quiet: bool,
    /// The first error of writing a result.
    unwritten: OnceLock<io::Error>,
}

/// Whether times are shown in UTC. There is one switch for the process, which the command line sets.
static UTC: OnceLock<bool> = OnceLock::new();

/// Returns whether standard error may be coloured (<https://no-color.org>).
pub fn colours_wanted() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty())
}

impl Output {
    fn with(json: bool, quiet: bool) -> Self {
        Self { json, quiet, unwritten: OnceLock::new() }
    }

    /// Makes the output that the flags ask for.
    pub fn new(global: &Global) -> Self {
        UTC.get_or_init(|| global.utc);
        Self::with(global.json, global.quiet)
    }

    /// Makes an output in JSON, for use before the flags are parsed.
    pub fn for_programs() -> Self {
        Self::with(true, false)
    }

    /// Makes an output as text, for use before the flags are parsed.
    pub fn for_people() -> Self {
        Self::with(false, false)
    }

    /// Makes an output that shows only errors and answers.
    pub fn silent() -> Self {
        Self::with(false, true)
    }

    /// Makes the output for one of several steps. With `--json`, results and notes of a
    /// single step are not shown.
    pub fn of_step(&self) -> Self {
        Self::with(false, self.quiet || self.json)
    }

    /// Returns whether only errors and answers are shown.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Returns whether notes for people are shown.
    pub fn tells_people(&self) -> bool {
        !self.json && !self.quiet
    }

    /// Returns whether a progress bar makes sense.
    pub fn wants_progress(&self) -> bool {
        self.tells_people() && io::stderr().is_terminal()
    }

    /// Prints a result: `value` as JSON, or what `text` makes of it.
    pub fn result<T: Serialize>(&self, value: &T, text: impl FnOnce(&T) -> String) {
        if self.json || !self.quiet {
            self.answer(value, text);
        }
    }

    /// Prints a result that is the purpose of the command, or cannot be had again, also with `--quiet`.
    pub fn answer<T: Serialize>(&self, value: &T, text: impl FnOnce(&T) -> String) {
        if self.json {
            self.print(&json(value));
            return;
        }
        let text = text(value);
        if !text.is_empty() {
            self.print(&on_terminal(text.trim_end_matches('\n')));
        }
    }

    fn print(&self, text: &str) {
        let mut out = Piped::for_content();
        let written = out.write_all(format!("{text}\n").as_bytes()).and_then(|()| out.flush());
        if let Err(why) = written {
            // Only the first error is kept.
            let _ = self.unwritten.set(why);
        }
    }

    /// Fails if a result could not be written, although the command has done its work.
    pub fn is_written(&self) -> Result<(), Failure> {
        let Some(why) = self.unwritten.get() else { return Ok(()) };
        let what = format!("cannot write to standard output: {why}");
        Err(Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
            .hint("what the command did is done; its result is lost"))
    }

    /// Writes a note for people to standard error.
    pub fn note(&self, text: &str) {
        if self.tells_people() {
            say(text);
        }
    }

    /// Writes what went wrong and what to do next to standard error, and returns the exit code.
    pub fn fail(&self, failure: &Failure) -> ExitCode {
        let exit = failure.kind.exit_code();
        if self.json {
            say(json(&serde_json::json!({ "error": failure, "exit_code": exit })));
        } else {
            self.complain(failure);
        }
        exit.into()
    }

    /// Writes what went wrong with one of many things. With `--json` it writes nothing, because the result has it.
    pub fn complain(&self, failure: &Failure) {
        if self.json {
            return;
        }
        let (bold, plain) = if colours_wanted() { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
        let _ = write!(io::stderr(), "{bold}potluck:{plain} ");
        say(told(&failure.to_string()));
        if !failure.hint.is_empty() {
            say(format!("  {}", told(&failure.hint)));
        }
    }

    /// Writes what went wrong with the thing at `path`, with `--json` as one line of JSON.
    pub fn complain_of(&self, path: &str, failure: &Failure) {
        match self.json {
            true => say(json(&serde_json::json!({ "path": path, "error": failure }))),
            false => self.complain(failure),
        }
    }
}

/// Writes lines to standard error. What cannot be written is lost: a daemon goes on when the terminal that it was
/// started from is gone, and the exit code of a command does not change.
pub fn say(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", told_lines(&text.to_string()));
}

/// Returns whether a person is there who may be asked: standard input and standard error are a terminal.
pub fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a person for a line.
pub fn ask(question: &str) -> io::Result<()> {
    io::stderr().write_all(told_lines(question).as_bytes())
}

/// Formats a value as one line of JSON, in which nothing moves the cursor of a terminal.
fn json(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).expect("results are plain data");
    // All such characters stand in strings, where this is another way to write them.
    replaced(&text, is_unseen, |c| format!("\\u{:04x}", u32::from(c))).into_owned()
}

/// Standard output as a pipe. If the reader has closed it, the process ends quietly with exit code 0, as
/// `head` expects.
pub struct Piped(io::Stdout);

impl Piped {
    /// Takes the standard output of the process, for content and not for what is said of it.
    pub fn for_content() -> Self {
        Self(io::stdout())
    }
}

impl Write for Piped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).inspect_err(end_without_reader)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().inspect_err(end_without_reader)
    }
}

fn end_without_reader(error: &io::Error) {
    if error.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
}

/// Formats rows in columns under a head. The columns with indexes in `right` are aligned to the right.
pub fn table(head: &[&str], right: &[usize], rows: &[Vec<String>]) -> String {
    let shown = |cells: &[String]| cells.iter().map(|cell| name(cell).into_owned()).collect();
    let head: Vec<String> = head.iter().map(|cell| cell.to_string()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(|cells| shown(cells)).collect();
    let all = || std::iter::once(&head).chain(&rows);
    let widths: Vec<usize> = (0..head.len())
        .map(|column| all().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in all() {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            let pad = " ".repeat(width - cell.chars().count());
            if right.contains(&column) { format!("{pad}{cell}") } else { format!("{cell}{pad}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Returns the head of a column of times, which names the zone where it is not this machine's own.
pub fn in_zone(head: &str) -> String {
    if is_utc() { format!("{head} (UTC)") } else { head.to_owned() }
}

/// Formats milliseconds since 1970 as a time in a sentence, which names the zone where it is not this machine's own.
pub fn stated_time(ms: i64) -> String {
    if is_utc() { format!("{} UTC", time(ms)) } else { time(ms) }
}

/// Formats milliseconds since 1970 as date and time: in this machine's zone, or with `--utc` in UTC.
pub fn time(ms: i64) -> String {
    let local = if is_utc() { None } else { LocalTime::of(ms.max(0)) };
    local.map_or_else(|| utc_time(ms), |local| local.text())
}

fn is_utc() -> bool {
    UTC.get().copied().unwrap_or(false)
}

fn utc_time(ms: i64) -> String {
    let since = std::time::Duration::from_millis(ms.max(0) as u64);
    let text = humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + since).to_string();
    text.replace('T', " ").trim_end_matches('Z').to_string()
}

/// Returns a name as standard output may show it. On a terminal, characters that would move the cursor or begin
/// another line are escaped.
pub fn name(name: &str) -> Cow<'_, str> {
    if io::stdout().is_terminal() { escaped(name) } else { name.into() }
}

/// Returns a name as standard error may show it, on one line: it may be a terminal, or a log.
pub fn told(name: &str) -> Cow<'_, str> {
    escaped(name)
}

/// Returns a text of several lines as standard error may show it.
fn told_lines(text: &str) -> Cow<'_, str> {
    replaced(text, |c| is_unseen(c) && c != '\n' && c != '\t', in_rust)
}

/// Returns a result of several lines as standard output may show it: on a terminal, characters that would move the
/// cursor or turn the direction of text are escaped.
fn on_terminal(text: &str) -> Cow<'_, str> {
    if io::stdout().is_terminal() { told_lines(text) } else { text.into() }
}

/// Returns a text on one line, in which nothing moves the cursor or turns the direction of text.
pub fn escaped(name: &str) -> Cow<'_, str> {
    replaced(name, is_unseen, in_rust)
}

fn in_rust(c: char) -> String {
    c.escape_default().to_string()
}

fn replaced(text: &str, what: impl Fn(char) -> bool, by: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.contains(&what) {
        return text.into();
    }
    let one = |c: char| if what(c) { by(c) } else { c.into() };
    text.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_on_its_line() {
        assert_eq!(escaped("a b ü.txt"), "a b ü.txt");
        assert_eq!(escaped("a\nb\u{1b}[2J"), "a\\nb\\u{1b}[2J");
        assert_eq!(escaped("\u{202e}gpj.exe"), "\\u{202e}gpj.exe");
        let table = "a\tb\nc\u{1b}[2J\u{202e}";
        assert_eq!(told_lines(table), "a\tb\nc\\u{1b}[2J\\u{202e}");
        let names = ["\u{9b}2J\u{202e}\u{7f}", "a\nb\"\\"];
        let said = json(&names);
        assert_eq!(said, r#"["\u009b2J\u202e\u007f","a\nb\"\\"]"#);
        assert_eq!(serde_json::from_str::<[String; 2]>(&said).expect("JSON"), names);
    }
}
