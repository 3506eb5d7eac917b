//! The state of each copy of the log: whether it can be written, and since when it is complete.

use potluck_core::clock::Tick;
use std::sync::Mutex;

/// The time since which each copy of the log has all changes, and why it cannot be written.
#[derive(Debug, Default)]
pub struct LogCopies {
    /// The copy in a file.
    pub file: LogCopyState,
    /// The copy on donors.
    pub donors: LogCopyState,
}

/// The state of one copy of the log.
#[derive(Debug, Default)]
pub struct LogCopyState(Mutex<(Option<Tick>, Option<String>)>);

impl LogCopyState {
    /// Notes that the copy is written without trouble, and had all changes at the moment `complete`, if it ever
    /// had.
    pub fn well(&self, complete: Option<Tick>) {
        *self.0.lock().expect("no holder panics") = (complete, None);
    }

    /// The moment at which the copy was last known to have all changes.
    pub fn complete_at(&self) -> Option<Tick> {
        self.0.lock().expect("no holder panics").0
    }

    /// Notes that the copy cannot be written.
    pub fn failing(&self, why: String) {
        self.0.lock().expect("no holder panics").1 = Some(why);
    }

    /// The seconds since the copy was last known to have all changes.
    pub fn seconds(&self, now: Tick) -> Option<u64> {
        Some(now.saturating_sub(self.complete_at()?).as_secs())
    }

    /// The reason why the last attempt to write the copy failed, if it did.
    pub fn failed(&self) -> Option<String> {
        self.0.lock().expect("no holder panics").1.clone()
    }
}
