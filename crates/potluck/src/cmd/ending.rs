//! The endings of commands that did not fail. The exit code of a failure is that of its kind
//! (`potluck-wire/src/error.rs`).

use potluck_wire::error::ErrorKind;

/// How a command that did not fail ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The command did everything.
    Done,
    /// The command did a part, or found that something is not as safe as it should be, and has said what.
    Partial,
    /// The command did everything, and its answer is bad news: the exit code is that of this kind of failure.
    Said(ErrorKind),
    /// The user stopped the command.
    Interrupted,
}
