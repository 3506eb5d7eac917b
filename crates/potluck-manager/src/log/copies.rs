//! How well each copy of the log is kept.

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

/// How one copy of the log is kept.
#[derive(Debug, Default)]
pub struct LogCopyState(Mutex<(Option<Tick>, Option<String>)>);

impl LogCopyState {
    /// It is written without trouble, and had all changes at the moment `complete`, if it ever had.
    pub fn well(&self, complete: Option<Tick>) {
        *self.0.lock().expect("no holder panics") = (complete, None);
    }

    /// When it was last known to have all changes.
    pub fn complete_at(&self) -> Option<Tick> {
        self.0.lock().expect("no holder panics").0
    }

    /// Notes that the copy cannot be written.
    pub fn failing(&self, why: String) {
        self.0.lock().expect("no holder panics").1 = Some(why);
    }

    /// Seconds since it was last known to have all changes.
    pub fn seconds(&self, now: Tick) -> Option<u64> {
        Some(now.saturating_sub(self.complete_at()?).as_secs())
    }

    /// Why the last attempt to write it failed, if it did.
    pub fn failed(&self) -> Option<String> {
        self.0.lock().expect("no holder panics").1.clone()
    }
}
