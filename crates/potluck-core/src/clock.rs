//! Time as an argument.
//!
//! Durations and deadlines are measured on a [`Clock`]'s monotonic side. Wall time is shown to people and stored as a
//! file attribute. It decides only where nothing else is known: the age of a step of a series follows from its
//! modification time, and the speed of a donor's scrub from the wall time at which its round began.

use std::sync::Arc;
use std::time::Duration;

/// A point on a monotonic clock: the time since some fixed start.
pub type Tick = Duration;

/// The milliseconds since the Unix epoch by the wall clock, for people to read and for file attributes.
pub type UnixMillis = i64;

/// A source of time for a role. To call it is cheap and safe from any thread.
pub trait Clock: Send + Sync + 'static {
    /// Returns the monotonic time since some fixed start; it never goes back.
    fn now(&self) -> Tick;
    /// Returns the wall time in milliseconds since 1970, as wrong as the machine's clock is.
    fn wall(&self) -> UnixMillis;
}

/// A clock shared by the tasks of one role.
pub type SharedClock = Arc<dyn Clock>;

/// The clock that reads the machine's own clocks.
#[derive(Debug)]
pub struct SystemClock(std::time::Instant);

impl Default for SystemClock {
    fn default() -> Self {
        // The one place that may read the machine's clocks.
        #[allow(clippy::disallowed_methods)]
        Self(std::time::Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Tick {
        self.0.elapsed()
    }

    fn wall(&self) -> UnixMillis {
        #[allow(clippy::disallowed_methods)] // the one place, as above
        let now = std::time::SystemTime::now();
        match now.duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => since.as_millis() as i64,
            Err(before) => -(before.duration().as_millis() as i64),
        }
    }
}
