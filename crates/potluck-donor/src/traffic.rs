//! The traffic of a donor with those who read and write its chunks.

use potluck_core::clock::{SharedClock, Tick};
use potluck_core::cost_history::{Visitor, Visits};
use potluck_core::traffic::{BothWays, Direction, Traffic, TrafficCount};
use std::sync::{Arc, Mutex};

/// The counts of the traffic since the process began. Clones share them.
#[derive(Clone)]
pub(crate) struct ServedTraffic {
    clock: SharedClock,
    counts: Arc<Mutex<BothWays<TrafficCount>>>,
    /// Who moved how much since that was last taken.
    visits: Arc<Mutex<Visits>>,
}

/// A request that is being served; one that is refused or breaks off is dropped.
pub(crate) struct Serving {
    traffic: ServedTraffic,
    direction: Direction,
    visitor: Visitor,
    /// The bytes that were moved, once the request is served.
    moved: Option<u32>,
}

impl ServedTraffic {
    /// Makes counts of nothing.
    pub fn new(clock: SharedClock) -> Self {
        Self { clock, counts: Arc::default(), visits: Arc::default() }
    }

    /// Notes that a request of a visitor is served from now on.
    pub fn begin(&self, direction: Direction, visitor: Visitor) -> Serving {
        self.change(|counts, now| counts.of_mut(direction).began(now));
        Serving { traffic: self.clone(), direction, visitor, moved: None }
    }

    /// Takes who moved how much since this was last called.
    pub fn take_visits(&self) -> Visits {
        std::mem::take(&mut *self.visits.lock().expect("no holder panics"))
    }

    /// Returns the traffic so far.
    pub fn total(&self) -> BothWays<Traffic> {
        self.change(|counts, now| BothWays {
            read: counts.read.total(now),
            written: counts.written.total(now),
        })
    }

    fn change<T>(&self, how: impl FnOnce(&mut BothWays<TrafficCount>, Tick) -> T) -> T {
        let now = self.clock.now();
        how(&mut self.counts.lock().expect("no holder panics"), now)
    }
}

impl Serving {
    /// Notes that the request was served with so many bytes.
    pub fn served(mut self, bytes: u32) {
        self.moved = Some(bytes);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(bytes) = self.moved {
            let mut visits = self.traffic.visits.lock().expect("no holder panics");
            visits.note(self.visitor, self.direction, bytes.into());
        }
        self.traffic.change(|counts, now| {
            let count = counts.of_mut(self.direction);
            match self.moved {
                Some(bytes) => count.answered(bytes.into(), now),
                None => count.withdrawn(now),
            }
        });
    }
}
