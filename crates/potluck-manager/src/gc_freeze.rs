//! The GC freeze: while the pool may know more than this catalog does, nothing is reclaimed (promise D5).

use std::sync::Mutex;

/// The reason why nothing is condemned, reclaimed or trimmed now, if there is one.
#[derive(Debug, Default)]
pub struct GcFreeze(Mutex<Option<String>>);

impl GcFreeze {
    /// Makes the freeze as an earlier term left it: `why` is its reason.
    pub fn new(why: Option<String>) -> Self {
        Self(Mutex::new(why))
    }

    /// Returns the reason of the freeze, while there is one. It is asked for before deletions are decided on or sent.
    pub fn why(&self) -> Option<String> {
        self.0.lock().expect("no holder panics").clone()
    }

    /// Freezes for this reason, or thaws.
    pub fn set(&self, why: Option<String>) {
        *self.0.lock().expect("no holder panics") = why;
    }
}
