//! The state of each copy of the log: whether it can be written, and when it was last complete.

use potluck_core::clock::Tick;
use std::sync::Mutex;
use tokio::sync::Notify;

/// The states of the copies of the log.
#[derive(Debug, Default)]
pub struct LogCopies {
    /// The copy in a file.
    pub file: LogCopyState,
    /// The copy on donors.
    pub donors: LogCopyState,
}

/// The state of one copy of the log: the moment at which it last had all changes, and why it cannot be written.
#[derive(Debug, Default)]
pub struct LogCopyState(Mutex<(Option<Tick>, Option<String>)>, Notify);

impl LogCopyState {
    /// Notes that the copy is written without trouble, and had all changes at the moment `complete`, if it ever
    /// had.
    pub fn well(&self, complete: Option<Tick>) {
        *self.0.lock().expect("no holder panics") = (complete, None);
    }

    /// Returns the moment at which the copy was last known to have all changes.
    pub fn complete_at(&self) -> Option<Tick> {
        self.0.lock().expect("no holder panics").0
    }

    /// Notes that the copy cannot be written.
    pub fn failing(&self, why: String) {
        self.0.lock().expect("no holder panics").1 = Some(why);
    }

    /// Has the copy be written soon.
    pub fn hurry(&self) {
        self.1.notify_one();
    }

    /// Waits until the copy is to be written soon; returns at once if that was said since the last wait.
    pub async fn hurried(&self) {
        self.1.notified().await;
    }

    /// Returns the seconds since the copy was last known to have all changes.
    pub fn seconds(&self, now: Tick) -> Option<u64> {
        Some(now.saturating_sub(self.complete_at()?).as_secs())
    }

    /// Returns the reason why the last attempt to write the copy failed, if it did.
    pub fn failed(&self) -> Option<String> {
        self.0.lock().expect("no holder panics").1.clone()
    }
}
