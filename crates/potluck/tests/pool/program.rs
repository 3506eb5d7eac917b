//! Runs processes that cannot outlive their test, and keeps what one run of a command said.

use super::waiting::{DEADLINE, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

/// A process, killed when dropped, and by the kernel when the thread that started it ends.
pub struct Running {
    child: Child,
}

impl Running {
    /// Starts `command` as a process that is killed with its owner.
    pub fn start(command: &mut Command) -> Self {
        // SAFETY: signal and prctl are async-signal-safe, and nothing else happens between fork and exec.
        unsafe {
            command.pre_exec(|| {
                // A script that runs the tests in its background has them ignore Ctrl-C, and what
                // is ignored is inherited; the tests send it to their children.
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
            });
        }
        Self::start_briefly(command)
    }

    /// Starts `command`, which ends by itself whatever becomes of its owner. Nothing happens between fork and exec, so
    /// that the pages of this process need not be set up in a child, which costs as much as a short command.
    pub fn start_briefly(command: &mut Command) -> Self {
        let child = command.spawn().unwrap_or_else(|why| panic!("cannot start {command:?}: {why}"));
        Self { child }
    }

    /// Returns the number of its process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Returns the child itself, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal, which means nothing to a process that has ended.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(self.pid(), signal);
    }

    /// Kills the process with SIGKILL, and waits until it is gone.
    pub fn kill_9(&mut self) -> ExitStatus {
        self.signal(Signal::KILL);
        self.child.wait().expect("a child can be waited for")
    }

    /// Returns how the process ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be asked")
    }

    /// Waits for its end; one that takes longer than `limit` is hung and fails the test.
    pub fn end_within(&mut self, what: &str, limit: Duration) -> ExitStatus {
        let mut status = None;
        wait_until(&format!("the end of {what}"), limit, || {
            status = self.ended();
            status.is_some()
        });
        status.expect("waited for")
    }

    /// Waits for its end, where it is not expected to take long.
    pub fn end(&mut self, what: &str) -> ExitStatus {
        self.end_within(what, DEADLINE)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.kill_9();
        }
    }
}

/// Returns the exit code, or minus the number of the signal that ended the process.
pub fn code_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| -status.signal().unwrap_or(0))
}

/// The outcome of one run of a command.
#[derive(Debug)]
pub struct Ran {
    /// The command as it was typed.
    pub command: String,
    /// The exit code of the command, or minus a signal's number.
    pub code: i32,
    /// The standard output of the command.
    pub stdout: Vec<u8>,
    /// The standard error of the command.
    pub stderr: String,
    /// The wall time that the command took.
    pub took: Duration,
}

impl Ran {
    /// Fails the test unless the command succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.exits(0)
    }

    /// Fails the test unless the command ended with `code`.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            code,
            "exit code of `{}`; it said: {}{}",
            self.command,
            self.beginning(),
            self.stderr
        );
        self
    }

    /// Returns the output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns the beginning of the output as text, as much as the message of a failure should show.
    fn beginning(&self) -> String {
        let shown = &self.stdout[..self.stdout.len().min(2000)];
        String::from_utf8_lossy(shown).into_owned()
    }

    /// Returns the output as the one JSON value that it must be.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|why| {
            panic!("`{}` did not print one JSON value ({why}): {}", self.command, self.beginning())
        })
    }

    /// Returns the failure that a `--json` command wrote to standard error, which must be consistent: an exit code, a
    /// stable code, and words.
    #[track_caller]
    pub fn failure(&self) -> Complaint {
        let last = self.stderr.lines().rev().find(|line| line.starts_with('{')).unwrap_or_default();
        let said: Value = serde_json::from_str(last).unwrap_or_else(|_| {
            panic!(
                "`{}` ({}) did not end in a JSON failure: {}",
                self.command, self.code, self.stderr
            )
        });
        assert_eq!(said["exit_code"], self.code, "{}", self.stderr);
        let text = |field: &str| said["error"][field].as_str().unwrap_or_default().to_owned();
        let complaint =
            Complaint { code: text("code"), message: text("message"), hint: text("hint") };
        assert!(complaint.code.starts_with("POT-E"), "{}", self.stderr);
        assert!(!complaint.message.is_empty(), "{}", self.stderr);
        complaint
    }
}

/// A failure as it reached a program.
#[derive(Debug)]
pub struct Complaint {
    /// The code of the failure, such as `POT-E012`.
    pub code: String,
    /// The failure in words: what happened, and to what.
    pub message: String,
    /// The next step for a person.
    pub hint: String,
}
