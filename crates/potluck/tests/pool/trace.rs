//! Records the system calls of a donor by `strace`.

use super::lab::Lab;
use super::program::Running;
use super::waiting::{DEADLINE, wait_until};
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// An `strace` that is attached to a donor.
pub struct Trace {
    running: Running,
    file: PathBuf,
}

impl Trace {
    /// Attaches to a donor, to follow these `calls`; returns `None` where that is not allowed.
    pub fn attach(lab: &mut Lab, donor: &str, calls: &str) -> Option<Self> {
        let (file, said) = (lab.dir().join("strace.out"), lab.dir().join("strace.said"));
        let pid = lab.donor(donor).pid().as_raw_nonzero().to_string();
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-e", &format!("trace={calls}"), "-p", &pid]);
        command.arg("-o").arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&said).expect("a file"));
        let mut running = Running::start(&mut command);
        let mut ended = false;
        wait_until("strace to attach", DEADLINE, || {
            ended = running.ended().is_some();
            ended || fs::read_to_string(&said).is_ok_and(|said| said.contains("attached"))
        });
        (!ended).then_some(Self { running, file })
    }

    /// Detaches, and returns the calls in order.
    pub fn end(mut self) -> Vec<String> {
        self.running.signal(Signal::INT);
        self.running.end("strace");
        let text = fs::read_to_string(&self.file).expect("a trace");
        text.lines().map(str::to_owned).collect()
    }
}
