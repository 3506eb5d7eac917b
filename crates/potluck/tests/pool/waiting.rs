//! Holds the functions in which tests wait.

use std::io::Write;
use std::time::{Duration, Instant};

/// A time in which all ends that is not hung, on a machine with other work.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The times between two looks: the first is short beside a command, the longest beside what else is waited for, and
/// both are long beside a look that starts a process.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// Looks again and again until `done`, and returns how long that took. Fails the test after `limit`; `what` completes
/// “gave up waiting for …”.
pub fn wait_until(what: &str, limit: Duration, mut done: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    let mut wait = FIRST_LOOK;
    while !done() {
        assert!(started.elapsed() < limit, "gave up waiting for {what} after {limit:?}");
        pause(wait);
        wait = LONGEST_WAIT.min(wait * 3 / 2);
    }
    started.elapsed()
}

/// Lets `time` pass: a moment drawn by lot, or the time that a slow peer takes. Nothing may depend on
/// something else having happened meanwhile; for that there is [`wait_until`].
pub fn pause(time: Duration) {
    let until = Instant::now() + time;
    // Nobody unparks these threads, but the system may wake them early.
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) {
        std::thread::park_timeout(left);
    }
}

/// Says that a test cannot run here, where `cargo xtask test` sees it: output of tests that pass
/// is captured, except what goes around `println!`.
pub fn skip(test: &str, reason: &str) {
    let line = format!("SKIPPED {test}: {reason}\n");
    // The text matters to people only; a closed output fails no test.
    let _ = std::io::stdout().write_all(line.as_bytes());
}

/// Returns whether a program is in one of the directories of `PATH`.
pub fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// Returns whether these tests run as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
