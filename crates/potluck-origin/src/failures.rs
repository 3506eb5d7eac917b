//! What a failed request to an origin means to the person who asked.

use potluck_wire::error::{ErrorKind, Failure, code};

/// Returns the failure of an origin that does not answer; it may do so later.
pub(crate) fn away(at: &str, why: &str) -> Failure {
    Failure::new(
        ErrorKind::Retry,
        code::ORIGIN_AWAY,
        format!("the origin {at} does not answer: {why}"),
    )
    .hint("try again when it is back; what is in the pool can be read meanwhile")
}

/// Returns the failure of an origin that cannot give what was asked for.
pub(crate) fn refused(at: &str, why: &str) -> Failure {
    Failure::new(ErrorKind::Other, code::ORIGIN_REFUSED, format!("the origin {at}: {why}"))
        .hint("check the address")
}

/// Returns the failure that an HTTP status means.
pub(crate) fn of_status(at: &str, status: u16) -> Failure {
    match status {
        404 | 410 => {
            let what = format!("nothing is at {at} (HTTP {status})");
            Failure::new(ErrorKind::NotFound, code::ORIGIN_REFUSED, what).hint("check the address")
        }
        401 | 403 => {
            let what = format!("{at} is shown to others only (HTTP {status})");
            Failure::new(ErrorKind::Auth, code::ORIGIN_REFUSED, what)
                .hint("for s3, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")
        }
        408 | 429 | 500.. => away(at, &format!("HTTP {status}")),
        _ => refused(at, &format!("it answers HTTP {status}")),
    }
}

/// Returns the failure of an origin whose content is another than before.
pub(crate) fn changed(at: &str) -> Failure {
    let what = format!("the origin has changed: what is at {at} is not what was imported");
    Failure::new(ErrorKind::Integrity, code::ORIGIN_CHANGED, what)
        .hint("`potluck import --refresh` takes over what is there now")
}
