//! Time as an argument.
//!
//! Durations and deadlines are measured on a [`Clock`]'s monotonic side. Wall time is only ever
//! shown to people or stored as a file attribute: it never decides (a clock two days off, or one
//! that jumps, must cost nothing).

use std::sync::Arc;
use std::time::Duration;

/// A point on a monotonic clock: time since an arbitrary start of the process.
pub type Tick = Duration;

/// Milliseconds since the Unix epoch, for people to read and never for decisions.
pub type UnixMillis = i64;

/// A source of time for a role. It is cheap to call, and safe from any thread.
pub trait Clock: Send + Sync + 'static {
    /// Monotonic time since some fixed start; never goes back.
    fn now(&self) -> Tick;
    /// Wall time in milliseconds since 1970, as wrong as the machine's clock is.
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
