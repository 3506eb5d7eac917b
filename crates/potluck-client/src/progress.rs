//! The trait by which a front follows a transfer: bytes, files, and whom it waits for.

use crate::retry_limits::Wait;

/// A watcher of a transfer, which is told as bytes are done; called often and from any thread, so it must be quick.
pub trait Progress: Send + Sync {
    /// The work has grown by this many bytes.
    fn expect(&self, bytes: u64);
    /// This many bytes of the work are done.
    fn advance(&self, bytes: u64);
    /// A remark that does not end the work, such as a skipped file.
    fn warn(&self, text: &str);
    /// Tells, about once a second, that somebody is waited for; `None` when the wait is over.
    fn waits(&self, _wait: Option<&Wait>) {}
}

/// A watcher that tells nobody.
#[derive(Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn expect(&self, _bytes: u64) {}
    fn advance(&self, _bytes: u64) {}
    fn warn(&self, _text: &str) {}
}
