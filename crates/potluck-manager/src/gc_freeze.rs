//! The GC freeze: while the pool may know more than this catalog does, nothing is reclaimed (promise D5).

use std::sync::Mutex;

/// Why nothing is condemned, reclaimed or trimmed now, if so.
#[derive(Debug, Default)]
pub struct GcFreeze(Mutex<Option<String>>);

impl GcFreeze {
    /// As an earlier term left it.
    pub fn new(why: Option<String>) -> Self {
        Self(Mutex::new(why))
    }

    /// Why, if so. Asked before every deletion.
    pub fn why(&self) -> Option<String> {
        self.0.lock().expect("no holder panics").clone()
    }

    /// Freezes for this reason, or thaws.
    pub fn set(&self, why: Option<String>) {
        *self.0.lock().expect("no holder panics") = why;
    }
}
