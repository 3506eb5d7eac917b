//! Runs a `cp - PATH` whose standard input the test holds, so that it is exactly as far as the test wants it to be.

use super::lab::Cli;
use super::program::{Running, code_of};
use std::io::Write;
use std::process::ChildStdin;

/// A command that writes a file from its standard input.
pub struct Writer {
    /// The command that runs.
    pub running: Running,
    input: Option<ChildStdin>,
}

impl Writer {
    /// Starts the command with its input open.
    pub fn start(cli: &Cli, path: &str, options: &[&str]) -> Self {
        let mut running = cli.start(&[&["cp", "-", path], options].concat());
        let input = running.child().stdin.take();
        Self { running, input }
    }

    /// Feeds the command more bytes to store.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.as_mut().expect("an open input").write_all(bytes).expect("a writer that reads");
    }

    /// Ends the input.
    pub fn end_input(&mut self) {
        drop(self.input.take());
    }

    /// Ends the input, and returns the exit code.
    pub fn finish(mut self) -> i32 {
        self.end_input();
        code_of(self.running.end("the writer"))
    }
}
