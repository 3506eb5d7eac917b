//! Failures of the pool as S3 tells them.

use http::StatusCode;
use potluck_core::path::BadPath;
use potluck_wire::error::{ErrorKind, Failure, code};
use s3s::{S3Error, S3ErrorCode};

/// Returns the S3 error for a failure of a request about an object.
pub fn of(failure: Failure) -> S3Error {
    let (code, status) = match (&*failure.code, failure.kind) {
        (code::NO_SPACE_NAMED, _) => (S3ErrorCode::NoSuchBucket, None),
        (code::NO_ENTRY | code::NOT_RECURSIVE, _) => (S3ErrorCode::NoSuchKey, None),
        (code::NO_CHECKPOINT, _) => (S3ErrorCode::NoSuchUpload, None),
        (code::EXISTS | code::WRONG_VERSION, _) => (S3ErrorCode::PreconditionFailed, None),
        (code::BAD_PATH, _) => (S3ErrorCode::InvalidArgument, None),
        (code::OVER_QUOTA | code::FULL, _) => {
            (S3ErrorCode::Custom("QuotaExceeded".into()), Some(StatusCode::INSUFFICIENT_STORAGE))
        }
        (_, ErrorKind::Auth) => (S3ErrorCode::AccessDenied, None),
        (_, ErrorKind::Retry | ErrorKind::NoSpace) => (S3ErrorCode::ServiceUnavailable, None),
        (_, ErrorKind::Usage) => (S3ErrorCode::InvalidRequest, None),
        (_, ErrorKind::Conflict) => {
            (S3ErrorCode::Custom("ConflictingName".into()), Some(StatusCode::CONFLICT))
        }
        (_, ErrorKind::NotFound) => (S3ErrorCode::NoSuchKey, None),
        (_, ErrorKind::Integrity | ErrorKind::Partial | ErrorKind::Other) => {
            (S3ErrorCode::InternalError, None)
        }
    };
    let message = match failure.hint.is_empty() {
        true => failure.to_string(),
        false => format!("{failure}; {}", failure.hint),
    };
    let mut error = S3Error::with_message(code, message);
    if let Some(status) = status {
        error.set_status_code(status);
    }
    error
}

/// Returns the S3 error for a key that cannot be a path.
pub fn of_key(why: BadPath) -> S3Error {
    S3Error::with_message(
        S3ErrorCode::InvalidArgument,
        format!("this key cannot be the path of a file: {why}"),
    )
}
