//! Starts processes that cannot outlive the run; it is also the only place where the torture waits.

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

/// The least time between two looks: short beside all that is waited for.
const LOOK_AFTER: Duration = Duration::from_millis(20);
/// The most time between two looks. Many looks start a process, which takes processor time from other seeds.
const LOOK_WITHIN: Duration = Duration::from_millis(250);
/// The part of the time waited so far for which the next look waits.
const LOOK_PART: u32 = 8;

/// The time within which a process stands still after it was told to, unless it waits for a disk.
const STILL_WITHIN: Duration = Duration::from_secs(10);

/// Calls `done` again and again until it returns true. The error says what was not seen within `limit`.
pub fn wait_until(
    what: &str,
    limit: Duration,
    mut done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let started = Instant::now();
    while !done()? {
        let waited = started.elapsed();
        if waited > limit {
            bail!("liveness is broken: {what} takes longer than {limit:?}");
        }
        pause((waited / LOOK_PART).clamp(LOOK_AFTER, LOOK_WITHIN));
    }
    Ok(())
}

/// Waits for `time`, a moment drawn by chance or the pause between two looks. Nothing may depend on something else
/// having happened meanwhile.
pub fn pause(time: Duration) {
    let until = Instant::now() + time;
    // Nobody unparks this thread, but the system may wake it early.
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) {
        park_timeout(left);
    }
}

/// A process that is killed when this is dropped, and by the kernel when the thread that started it ends.
pub struct Running {
    child: Child,
}

impl Running {
    /// Starts `command` as a process that is killed with the thread that calls this.
    pub fn start(command: &mut Command) -> Result<Self> {
        // SAFETY: prctl is async-signal-safe, and nothing else happens between fork and exec.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child })
    }

    /// Returns the number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, which has no effect if the process has ended.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Freezes the process, as a machine that is suspended would, and waits until it stands still; false if it has
    /// ended.
    pub fn freeze(&mut self) -> Result<bool> {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.id());
        let mut ended = false;
        wait_until("that a frozen process stands still", STILL_WITHIN, || {
            ended = self.ended()?.is_some();
            // The state follows the name, which is in parentheses and may have some itself.
            let line = if ended { String::new() } else { fs::read_to_string(&stat)? };
            let state = line.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
            Ok(ended || state == Some('T'))
        })?;
        Ok(!ended)
    }

    /// Lets a frozen process go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the process with `kill -9` and waits until it is gone; false if it had exited by itself.
    pub fn kill_9(&mut self) -> Result<bool> {
        self.signal(Signal::KILL);
        Ok(self.child.wait()?.signal().is_some())
    }

    /// Returns how the process ended, if it has.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Either error means that it has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the exit code, or minus the number of the signal that ended the process.
pub fn code_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| -status.signal().unwrap_or(0))
}
