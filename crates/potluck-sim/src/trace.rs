//! The events of a run, in order and with simulated times. Two runs of one seed write the same trace.

use potluck_core::chunk::Digest;
use std::fmt::{Display, Write};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The record of one run. Clones write to the same record.
#[derive(Debug, Clone, Default)]
pub struct Trace(Arc<Mutex<Text>>);

#[derive(Debug, Default)]
struct Text {
    now: Duration,
    lines: String,
}

impl Trace {
    fn text(&self) -> MutexGuard<'_, Text> {
        self.0.lock().expect("no holder panics")
    }

    /// Sets the time of events that happen outside of any host.
    pub fn at(&self, now: Duration) {
        self.text().now = now;
    }

    /// Returns the simulated time since the run began.
    pub fn now(&self) -> Duration {
        if tokio::runtime::Handle::try_current().is_ok()
            && let Some(now) = turmoil::sim_elapsed()
        {
            return now;
        }
        self.text().now
    }

    /// Writes a line with the simulated time, the actor and the event.
    pub fn say(&self, who: impl Display, what: impl Display) {
        let now = self.now();
        let (seconds, millis) = (now.as_secs(), now.subsec_millis());
        let mut text = self.text();
        writeln!(text.lines, "{seconds:4}.{millis:03} {who:<9} {what}").expect("memory");
    }

    /// Returns all lines that were written.
    pub fn lines(&self) -> String {
        self.text().lines.clone()
    }

    /// Returns the digest of all lines.
    pub fn hash(&self) -> Digest {
        Digest::of(self.text().lines.as_bytes())
    }
}
