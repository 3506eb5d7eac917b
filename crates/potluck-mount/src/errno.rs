//! Translates failures of the pool into the error numbers that programs see.

use potluck_wire::error::{ErrorKind, Failure, code};
use rustix::io::Errno;

/// Returns the error number for a failure, and logs the details, which the number cannot tell.
pub fn errno(failure: &Failure) -> Errno {
    let by_code = match failure.code.as_str() {
        code::NO_ENTRY | code::NO_SPACE_NAMED => Some(Errno::NOENT),
        code::EXISTS | code::WRONG_VERSION => Some(Errno::EXIST),
        code::NOT_EMPTY | code::NOT_RECURSIVE => Some(Errno::NOTEMPTY),
        code::WRONG_KIND => Some(Errno::NOTDIR),
        code::READ_ONLY => Some(Errno::ROFS),
        code::BAD_PATH | code::OVERLAP => Some(Errno::INVAL),
        code::OVER_QUOTA => Some(Errno::DQUOT),
        code::CLAIMED | code::NOT_TOGETHER => Some(Errno::BUSY),
        code::TOO_MANY_LOCKS => Some(Errno::NOLCK),
        code::CHANGED | code::NO_CHECKPOINT => Some(Errno::STALE),
        _ => None,
    };
    let number = by_code.unwrap_or(match failure.kind {
        ErrorKind::NotFound => Errno::NOENT,
        ErrorKind::NoSpace => Errno::NOSPC,
        ErrorKind::Auth => Errno::ACCESS,
        ErrorKind::Conflict => Errno::EXIST,
        ErrorKind::Usage => Errno::INVAL,
        ErrorKind::Retry => Errno::TIMEDOUT,
        ErrorKind::Integrity | ErrorKind::Partial | ErrorKind::Other => Errno::IO,
    });
    match number {
        Errno::NOENT | Errno::EXIST | Errno::NOTEMPTY => tracing::debug!(%failure, "refused"),
        _ => tracing::warn!(%failure, hint = failure.hint, "a program gets error {number}"),
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_says_more_than_its_kind() {
        let number = |kind, code| errno(&Failure::new(kind, code, "x"));
        assert_eq!(number(ErrorKind::NoSpace, code::OVER_QUOTA), Errno::DQUOT);
        assert_eq!(number(ErrorKind::NoSpace, code::FULL), Errno::NOSPC);
        assert_eq!(number(ErrorKind::Usage, code::NOT_RECURSIVE), Errno::NOTEMPTY);
        assert_eq!(number(ErrorKind::Auth, code::NO_RIGHT), Errno::ACCESS);
    }
}
