//! Ctrl-C ends the bench through its ordinary error path, so that daemons stop and the temporary directory is
//! removed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Lets SIGINT and SIGTERM be noted instead of fatal from now on.
pub fn catch() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let handler = note as extern "C" fn(libc::c_int);
        // SAFETY: the handler only stores to an atomic. `signal` resets to the default in children at exec, as it does for every caught signal.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// Returns an error once a signal has arrived. Every loop that waits or writes calls it.
pub fn check() -> Result<()> {
    ensure!(!INTERRUPTED.load(Ordering::Relaxed), "interrupted");
    Ok(())
}

/// Calls `done` every `step` until it returns true. `what` completes "gave up waiting for …".
pub fn wait_until(
    what: &str,
    limit: Duration,
    step: Duration,
    mut done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let started = Instant::now();
    while !done()? {
        check()?;
        ensure!(
            started.elapsed() < limit,
            "gave up waiting for {what} after {} s",
            limit.as_secs()
        );
        std::thread::sleep(step);
    }
    Ok(())
}

/// Waits for `time`; an error if the bench was interrupted.
pub fn pass(time: Duration) -> Result<()> {
    let started = Instant::now();
    wait_until("time to pass", Duration::MAX, Duration::from_millis(50), || {
        Ok(started.elapsed() >= time)
    })
}
