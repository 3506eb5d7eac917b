//! How commands end that did not fail. The exit code of a failure is that of its kind (`potluck-wire/src/error.rs`).

use potluck_wire::error::ErrorKind;

/// How a command that did not fail ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All was done.
    Done,
    /// Some of it was; what was not has been said.
    Partial,
    /// All was done, and what was asked is not well: the exit code of this kind of failure says so.
    Said(ErrorKind),
    /// The user stopped the command.
    Interrupted,
}
