//! The trait by which a front follows a transfer: bytes that are done, remarks, and waits.

use crate::retry_limits::Wait;

/// A watcher of a transfer. Holes count nowhere, since nothing of them is read, sent or written. Its methods are called often and from any thread, so they must be quick.
pub trait Progress: Send + Sync {
    /// Notes that the work has grown by this many bytes.
    fn expect(&self, bytes: u64);
    /// Notes that this many more bytes of the work are done.
    fn advance(&self, bytes: u64);
    /// Shows a remark on something that does not end the work, such as a skipped file.
    fn warn(&self, text: &str);
    /// Notes, about once a second, that the work waits for a manager or donors; `None` says that the wait is over.
    fn waits(&self, _wait: Option<&Wait>) {}
}

/// A watcher that does nothing.
#[derive(Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn expect(&self, _bytes: u64) {}
    fn advance(&self, _bytes: u64) {}
    fn warn(&self, _text: &str) {}
}
