//! The pool's time: milliseconds that only grow, over all starts of a manager on one catalog.
//!
//! Tickets, tokens, and the GC delay of unused chunks are measured on it. It stands still while no manager runs, leaps
//! by [`TIME_LEAP`] at each start but the first, and follows the monotonic clock while a manager runs, so a wall clock
//! that jumps ends nothing early (promise C1).

use potluck_catalog::{TIME_LEAP, When};
use potluck_core::clock::{SharedClock, Tick};
use std::time::Duration;

/// The time between two moments at which the pool's time is saved.
pub const SAVE_EVERY: Duration = Duration::from_secs(30);

/// Reads the pool's time.
#[derive(Clone)]
pub struct PoolTime {
    clock: SharedClock,
    started: Tick,
    base_ms: u64,
    leapt_ms: u64,
}

impl PoolTime {
    /// Makes a time that goes on after `saved_ms`, the last time saved by an earlier term; `None` at the first
    /// start. `leapt_ms` is the sum of its leaps at all starts.
    pub fn after(saved_ms: Option<u64>, leapt_ms: u64, clock: SharedClock) -> Self {
        let base_ms = saved_ms.map_or(0, |saved| saved + TIME_LEAP.as_millis() as u64);
        Self { started: clock.now(), clock, base_ms, leapt_ms }
    }

    /// Returns the pool's time in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.base_ms + self.uptime().as_millis() as u64
    }

    /// Returns the pool's time without its leaps. Reservations, announced absences, what is kept, open checkpoints and
    /// the use of steps are measured on it, so that a restart of the manager does not shorten them.
    pub fn without_leaps_ms(&self) -> u64 {
        self.now_ms().saturating_sub(self.leapt_ms)
    }

    /// Returns the age of this term.
    pub fn uptime(&self) -> Duration {
        self.tick().saturating_sub(self.started)
    }

    /// Returns whether the manager was started again less than `time` ago; its first start does not count.
    pub fn is_restarted_within(&self, time: Duration) -> bool {
        self.base_ms > 0 && self.uptime() < time
    }

    /// Returns the time on the manager's own monotonic clock.
    pub fn tick(&self) -> Tick {
        self.clock.now()
    }

    /// Returns the wall time in milliseconds, for people.
    pub fn wall_ms(&self) -> i64 {
        self.clock.wall()
    }

    /// Returns this moment as that of a change to names.
    pub fn when(&self) -> When {
        When { pool_ms: self.now_ms(), wall_ms: self.wall_ms(), ..When::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::clock::{Clock, UnixMillis};
    use std::sync::Arc;

    /// A clock that stands still.
    struct Stopped;

    impl Clock for Stopped {
        fn now(&self) -> Tick {
            Tick::ZERO
        }

        fn wall(&self) -> UnixMillis {
            0
        }
    }

    #[test]
    fn pool_time_leap_at_start_does_not_shorten_waits() {
        let time = |saved, leapt| PoolTime::after(saved, leapt, Arc::new(Stopped));
        let leap_ms = TIME_LEAP.as_millis() as u64;
        let first = time(None, 0);
        assert_eq!((first.now_ms(), first.without_leaps_ms()), (0, 0));
        let third = time(Some(5000 + leap_ms), 2 * leap_ms);
        assert_eq!((third.now_ms(), third.without_leaps_ms()), (5000 + 2 * leap_ms, 5000));
    }
}
