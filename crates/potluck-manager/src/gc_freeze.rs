//! The GC freeze: while the pool may know more than this catalog does, nothing is reclaimed (promise D5).

use std::sync::Mutex;

/// The reason why nothing is condemned, reclaimed or trimmed now, if there is one.
#[derive(Debug, Default)]
pub struct GcFreeze(Mutex<Option<Reason>>);

#[derive(Debug)]
struct Reason {
    why: String,
    /// True if donors may keep a newer catalog than this one.
    may_lack: bool,
}

impl GcFreeze {
    /// Makes the freeze as an earlier term left it: `why` is its reason, and with `may_lack` donors may keep a newer
    /// catalog.
    pub fn new(why: Option<String>, may_lack: bool) -> Self {
        Self(Mutex::new(why.map(|why| Reason { why, may_lack })))
    }

    /// Returns the reason of the freeze, while there is one. It is asked for before deletions are decided on or sent.
    pub fn why(&self) -> Option<String> {
        self.reason().as_ref().map(|reason| reason.why.clone())
    }

    /// Returns whether donors may keep a newer catalog than this one.
    pub fn may_lack(&self) -> bool {
        self.reason().as_ref().is_some_and(|reason| reason.may_lack)
    }

    /// Freezes because a newer catalog ran before.
    pub fn freeze(&self, why: String) {
        *self.reason() = Some(Reason { why, may_lack: true });
    }

    /// Ends the freeze.
    pub fn thaw(&self) {
        *self.reason() = None;
    }

    fn reason(&self) -> std::sync::MutexGuard<'_, Option<Reason>> {
        self.0.lock().expect("no holder panics")
    }
}
