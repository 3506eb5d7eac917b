//! Progress on standard error: on a terminal a bar with rate and time left, elsewhere only notes about what a
//! command waits for.

use crate::output::{self, Output, duration};
use indicatif::{ProgressBar, ProgressStyle};
use potluck_client::{Pool, Progress, Quiet, Wait};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Bar {
    bar: ProgressBar,
    /// The effect of Ctrl-C, as text for people.
    interrupted: &'static str,
}

/// Makes a bar for a transfer of `total` bytes, if known. Unless `shown`, returns the client's own progress
/// watcher.
pub fn transfer(client: &Pool, shown: bool, total: Option<u64>) -> Arc<dyn Progress> {
    bar(client, shown, total, "Ctrl-C gives up")
}

/// Makes a bar for an upload of `total` bytes, if known. The pool keeps what was sent of an interrupted one.
pub fn upload(client: &Pool, shown: bool, total: Option<u64>) -> Arc<dyn Progress> {
    bar(client, shown, total, "Ctrl-C keeps what was sent")
}

/// Makes a bar for work on `total` bytes that goes on where it was when its command is run again.
pub fn resumable(client: &Pool, shown: bool, total: u64) -> Arc<dyn Progress> {
    bar(client, shown, Some(total), "Ctrl-C stops; run it again to go on")
}

fn bar(
    client: &Pool,
    shown: bool,
    total: Option<u64>,
    interrupted: &'static str,
) -> Arc<dyn Progress> {
    if !shown {
        return client.watcher();
    }
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            "{bar:30} {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}  {eta} left  {msg}",
        ),
        None => {
            (ProgressBar::new_spinner(), "{spinner} {binary_bytes}  {binary_bytes_per_sec}  {msg}")
        }
    };
    bar.set_style(ProgressStyle::with_template(template).expect("a fixed template"));
    Arc::new(Bar { bar, interrupted })
}

/// Makes what tells people for what a command waits: if `shown` on a line that disappears when the wait ends,
/// otherwise on lines that stay.
pub fn waits(shown: bool, output: &Output) -> Arc<dyn Progress> {
    match (shown, output.tells_people()) {
        (true, _) => Arc::new(Waits::default()),
        (false, true) => Arc::new(Announced::default()),
        (false, false) => Arc::new(Quiet),
    }
}

/// Notes about waits for the log of a script. Each text is written once, however long the wait takes and however
/// many transfers wait.
#[derive(Default)]
struct Announced(Mutex<BTreeSet<String>>);

impl Progress for Announced {
    fn expect(&self, _bytes: u64) {}
    fn advance(&self, _bytes: u64) {}
    fn warn(&self, _text: &str) {}
    fn waits(&self, wait: Option<&Wait>) {
        let Some(Wait { why, limit, .. }) = wait else { return };
        let text = format!("{why}; waiting for up to {}", duration(limit.as_secs()));
        if self.0.lock().expect("no holder panics").insert(text.clone()) {
            output::say(format!("potluck: {text}"));
        }
    }
}

#[derive(Default)]
struct Waits(Mutex<Option<Line>>);

impl Progress for Waits {
    fn expect(&self, _bytes: u64) {}
    fn advance(&self, _bytes: u64) {}
    fn warn(&self, _text: &str) {}
    fn waits(&self, wait: Option<&Wait>) {
        let mut drawn = self.0.lock().expect("no holder panics");
        match wait {
            Some(wait) => {
                drawn.get_or_insert_with(|| line(true)).say(&told(wait, "Ctrl-C gives up"));
            }
            None => *drawn = None,
        }
    }
}

/// Formats a wait, such as `donor-3 does not answer, waiting 0:42 of 10:00, Ctrl-C keeps what was sent`.
fn told(wait: &Wait, interrupted: &str) -> String {
    let Wait { why, waited, limit } = wait;
    let why = output::told(why);
    format!("{why}, waiting {} of {}, {interrupted}", minutes(*waited), minutes(*limit))
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// A line on the terminal that shows the state of something.
pub struct Line(ProgressBar);

/// Makes a line that is overwritten in place; it is hidden unless `shown`.
pub fn line(shown: bool) -> Line {
    if !shown {
        return Line(ProgressBar::hidden());
    }
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{spinner} {wide_msg}").expect("a fixed template"));
    Line(bar)
}

impl Line {
    /// Shows `text` in place of what the line showed before.
    pub fn say(&self, text: &str) {
        self.0.set_message(output::told(text).into_owned());
        self.0.tick();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A bar for bytes whose count, and total, may change in both directions.
pub struct Level(ProgressBar);

/// Makes a bar for work that other processes do; it is hidden unless `shown`.
pub fn level(shown: bool) -> Level {
    if !shown {
        return Level(ProgressBar::hidden());
    }
    let template =
        "{bar:30} {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}  {eta} left  {msg}";
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template(template).expect("a fixed template"));
    Level(bar)
}

impl Level {
    /// Shows `done` bytes of `total`, with a text.
    pub fn set(&self, done: u64, total: u64, text: String) {
        self.0.set_length(total);
        self.0.set_position(done);
        self.0.set_message(output::told(&text).into_owned());
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

impl Progress for Bar {
    fn expect(&self, bytes: u64) {
        self.bar.inc_length(bytes);
    }
    fn advance(&self, bytes: u64) {
        self.bar.inc(bytes);
    }
    fn warn(&self, text: &str) {
        self.bar.suspend(|| output::say(format!("potluck: {text}")));
    }
    fn waits(&self, wait: Option<&Wait>) {
        let text = wait.map(|wait| told(wait, self.interrupted));
        self.bar.set_message(text.unwrap_or_default());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
