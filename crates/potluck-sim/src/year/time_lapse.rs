//! Simulated time that passes faster than the timers of the runtime say.
//!
//! A hundred donors with a heartbeat each second would send three thousand million of them in a year. While
//! nothing happens but heartbeats, the clocks of all machines run faster than their timers: a process that
//! sleeps for a second finds that much more time has passed. While files are written and removed, clocks and
//! timers agree.

use potluck_core::clock::{Clock, Tick, UnixMillis};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// The wall clock time at the beginning, in milliseconds since 1970: 2026-11-01.
const EPOCH_MS: i64 = 1_793_491_200_000;

/// The clock of all machines. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct TimeLapse(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// The simulated time at `since`.
    at: Duration,
    since: Instant,
    /// The simulated seconds that pass in each second that a timer waits.
    speed: u32,
    /// The latest time that the clock showed.
    shown: Duration,
}

impl TimeLapse {
    /// Makes a clock at 0 that agrees with the timers of the runtime. Call it inside the runtime.
    pub fn start() -> Self {
        let state =
            State { at: Duration::ZERO, since: Instant::now(), speed: 1, shown: Duration::ZERO };
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no holder panics")
    }

    /// Lets `speed` simulated seconds pass from now on in each second that a timer waits.
    pub fn run_at(&self, speed: u32) {
        let mut state = self.state();
        (state.at, state.since) = (state.now(), Instant::now());
        state.speed = speed;
    }

    /// Waits until the simulated time is `time`.
    pub async fn sleep_until(&self, time: Duration) {
        loop {
            let (left, speed) = {
                let state = self.state();
                (time.saturating_sub(state.now()), state.speed)
            };
            if left.is_zero() {
                return;
            }
            // Timers count in milliseconds.
            tokio::time::sleep((left / speed).max(Duration::from_millis(1))).await;
        }
    }
}

impl State {
    fn now(&self) -> Duration {
        self.at + self.since.elapsed() * self.speed
    }
}

impl Clock for TimeLapse {
    fn now(&self) -> Tick {
        let mut state = self.state();
        // Outside of its runtime, as when a process is dropped, tokio would show real time.
        if tokio::runtime::Handle::try_current().is_ok() {
            state.shown = state.now();
        }
        state.shown
    }

    fn wall(&self) -> UnixMillis {
        EPOCH_MS + self.now().as_millis() as i64
    }
}
