//! Failures as programs in other languages see them: a reason that they can act on, and a text without flags of the
//! command line.

use potluck_wire::error::{ErrorKind, Failure, code};
use std::fmt;

/// The reason why a call failed, as far as programs act differently by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolErrorReason {
    /// Nothing is there, or there is no such space.
    NotFound,
    /// Something is there already.
    Exists,
    /// A directory is where a file is needed.
    IsDirectory,
    /// A file or a link is where a directory is needed.
    WrongKind,
    /// A directory or space has something in it.
    NotEmpty,
    /// The file is not of the version that was expected, or changed meanwhile.
    Changed,
    /// No room, no quota or no reservation is left.
    NoSpace,
    /// The caller is no member of the pool, or may not do this.
    Denied,
    /// A manager or donors are away; the same call may work later.
    Unavailable,
    /// Some bytes are not what they should be.
    Damaged,
    /// The call makes no sense as it was made.
    Invalid,
    /// The caller stopped waiting.
    Interrupted,
    /// The reason is another one.
    Other,
}

/// A failure of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolError {
    /// The reason, as far as programs act by it.
    pub reason: PoolErrorReason,
    /// The stable code, such as `POT-E010`, which the documentation explains.
    pub code: String,
    /// The text for people; it names what the call was about.
    pub message: String,
    /// The next step for a person; empty where only the command line has one.
    pub advice: String,
}

impl PoolError {
    /// Makes the error of a call that its caller no longer waits for.
    pub fn interrupted() -> Self {
        Self {
            reason: PoolErrorReason::Interrupted,
            code: String::new(),
            message: "the call was interrupted".into(),
            advice: String::new(),
        }
    }
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.advice.is_empty() {
            write!(f, " ({})", self.advice)?;
        }
        if !self.code.is_empty() {
            write!(f, " [{}]", self.code)?;
        }
        Ok(())
    }
}

impl std::error::Error for PoolError {}

impl From<Failure> for PoolError {
    fn from(failure: Failure) -> Self {
        let reason = reason(&failure);
        let Failure { code, message, hint, .. } = failure;
        let is_about_flags = hint.split([' ', '`', '(']).any(|word| word.starts_with('-'));
        let advice = if is_about_flags { String::new() } else { hint };
        Self { reason, code, message, advice }
    }
}

fn reason(failure: &Failure) -> PoolErrorReason {
    match failure.code.as_str() {
        code::NO_ENTRY | code::NO_SPACE_NAMED | code::NOT_KEPT | code::NO_CHECKPOINT => {
            return PoolErrorReason::NotFound;
        }
        code::EXISTS => return PoolErrorReason::Exists,
        code::NOT_RECURSIVE => return PoolErrorReason::IsDirectory,
        code::WRONG_KIND => return PoolErrorReason::WrongKind,
        code::NOT_EMPTY => return PoolErrorReason::NotEmpty,
        code::WRONG_VERSION | code::CHANGED | code::EMPTY_INPUT => return PoolErrorReason::Changed,
        code::BAD_PATH | code::BAD_REQUEST | code::BAD_POLICY | code::OVERLAP => {
            return PoolErrorReason::Invalid;
        }
        code::FULL | code::OVER_QUOTA => return PoolErrorReason::NoSpace,
        code::READ_ONLY | code::NO_RIGHT => return PoolErrorReason::Denied,
        _ => {}
    }
    match failure.kind {
        ErrorKind::Usage => PoolErrorReason::Invalid,
        ErrorKind::NotFound => PoolErrorReason::NotFound,
        ErrorKind::Retry => PoolErrorReason::Unavailable,
        ErrorKind::NoSpace => PoolErrorReason::NoSpace,
        ErrorKind::Integrity => PoolErrorReason::Damaged,
        ErrorKind::Auth => PoolErrorReason::Denied,
        ErrorKind::Conflict => PoolErrorReason::Changed,
        ErrorKind::Partial | ErrorKind::Other => PoolErrorReason::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_about_flags_stays_at_the_command_line() {
        let failure = |hint: &str| {
            let failure = Failure::new(ErrorKind::Usage, code::NOT_RECURSIVE, "it is a directory");
            PoolError::from(failure.hint(hint))
        };
        assert_eq!(failure("add -r to copy directories").advice, "");
        assert_eq!(failure("say which with `--pool`").advice, "");
        assert_eq!(failure("lend more first").advice, "lend more first");
        assert_eq!(failure("").reason, PoolErrorReason::IsDirectory);
    }
}
