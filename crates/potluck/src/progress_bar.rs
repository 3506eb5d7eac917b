//! A progress bar with rate and time left, on a terminal's standard error; elsewhere only whom a
//! command waits for.

use crate::output::{self, Output, duration};
use indicatif::{ProgressBar, ProgressStyle};
use potluck_client::{Pool, Progress, Quiet, Wait};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Bar {
    bar: ProgressBar,
    /// The effect of Ctrl-C, for people.
    interrupted: &'static str,
}

/// A bar for a transfer of `total` bytes, if known; unless `shown`, only the client's own watcher is
/// told.
pub fn transfer(client: &Pool, shown: bool, total: Option<u64>) -> Arc<dyn Progress> {
    bar(client, shown, total, "Ctrl-C gives up")
}

/// A bar for an upload of `total` bytes, if known, of which the pool keeps what was sent.
pub fn upload(client: &Pool, shown: bool, total: Option<u64>) -> Arc<dyn Progress> {
    bar(client, shown, total, "Ctrl-C keeps what was sent")
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

/// Says whom a command waits for: with bars on a line that is there only while it does, elsewhere in
/// one line that stays.
pub fn waits(shown: bool, output: &Output) -> Arc<dyn Progress> {
    match (shown, output.tells_people()) {
        (true, _) => Arc::new(Waits::default()),
        (false, true) => Arc::new(Announced::default()),
        (false, false) => Arc::new(Quiet),
    }
}

/// Whom a command waits for, in the log of a script: said once, however long it takes, and by however many
/// transfers that wait for others in turn.
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

/// `donor-3 does not answer, waiting 0:42 of 10:00, Ctrl-C keeps what was sent`
fn told(wait: &Wait, interrupted: &str) -> String {
    let Wait { why, waited, limit } = wait;
    format!("{why}, waiting {} of {}, {interrupted}", minutes(*waited), minutes(*limit))
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// One line that says how something stands.
pub struct Line(ProgressBar);

/// A line that is written over and over; silent unless `shown`.
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
        self.0.set_message(text.to_owned());
        self.0.tick();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Bytes that become fewer, or more, on the way to a goal.
pub struct Level(ProgressBar);

/// A bar for something that is watched from outside; silent unless `shown`.
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
    /// `done` bytes of `total`, and what else there is to say.
    pub fn set(&self, done: u64, total: u64, text: String) {
        self.0.set_length(total);
        self.0.set_position(done);
        self.0.set_message(text);
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
