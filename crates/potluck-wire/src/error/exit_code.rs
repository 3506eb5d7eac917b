//! The exit code that a command ends with, by the kind of its failure (docs/exit-codes.md).

use super::ErrorKind;

impl ErrorKind {
    /// Returns the exit code of a process that fails in this way.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Other => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Partial => 4,
            Self::Retry => 5,
            Self::NoSpace => 6,
            Self::Integrity => 7,
            Self::Auth => 8,
            Self::Conflict => 10,
        }
    }
}
