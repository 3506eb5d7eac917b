//! The pool's time: milliseconds that only grow, over all starts of a manager on one catalog.
//!
//! Tickets, tokens, and the GC delay of unused chunks are measured on it. It stands still while no
//! manager runs and follows the monotonic clock while one does, so a wall clock that jumps ends
//! nothing early (promise C1).

use potluck_catalog::When;
use potluck_core::clock::{SharedClock, Tick};
use std::time::Duration;

/// How often the time is saved.
pub const SAVE_EVERY: Duration = Duration::from_secs(30);

/// A start may follow a crash just before a save, whose own write may have been lost with the
/// power: time goes on from beyond anything that an earlier term can have said.
const LOST_AT_MOST: Duration = Duration::from_secs(120);

/// Reads the pool's time.
#[derive(Clone)]
pub struct PoolTime {
    clock: SharedClock,
    started: Tick,
    base_ms: u64,
}

impl PoolTime {
    /// Goes on after `saved_ms`, the last time saved by an earlier term; `None` at the first.
    pub fn after(saved_ms: Option<u64>, clock: SharedClock) -> Self {
        let base_ms = saved_ms.map_or(0, |saved| saved + LOST_AT_MOST.as_millis() as u64);
        Self { started: clock.now(), clock, base_ms }
    }

    /// Returns the pool's time in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.base_ms + self.uptime().as_millis() as u64
    }

    /// Returns the age of this term.
    pub fn uptime(&self) -> Duration {
        self.tick().saturating_sub(self.started)
    }

    /// Whether the manager was started again less than `time` ago; its first start does not count.
    pub fn is_restarted_within(&self, time: Duration) -> bool {
        self.base_ms > 0 && self.uptime() < time
    }

    /// The manager's own monotonic clock.
    pub fn tick(&self) -> Tick {
        self.clock.now()
    }

    /// Wall time, for people.
    pub fn wall_ms(&self) -> i64 {
        self.clock.wall()
    }

    /// The moment of a change to names.
    pub fn when(&self) -> When {
        When { pool_ms: self.now_ms(), wall_ms: self.wall_ms(), ..When::default() }
    }
}
