//! Traffic with donors: the bytes that went each way and the time that they took, as whoever took part in it counts
//! them. A rate is a quotient of the two.

use serde::{Deserialize, Serialize};
use std::ops::AddAssign;
use std::time::Duration;

/// The way in which bytes go between a client and a donor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Clients read from the donor.
    Read,
    /// Clients write to the donor.
    Write,
}

/// A figure of each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BothWays<T> {
    /// The figure of what is read from a donor.
    pub read: T,
    /// The figure of what is written to a donor.
    pub written: T,
}

impl<T> BothWays<T> {
    /// Returns the figure of one direction.
    pub fn of(&self, direction: Direction) -> &T {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.written,
        }
    }

    /// Returns the figure of one direction, to be changed.
    pub fn of_mut(&mut self, direction: Direction) -> &mut T {
        match direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.written,
        }
    }

    /// Returns what `each` makes of both figures.
    pub fn map<U>(&self, mut each: impl FnMut(&T) -> U) -> BothWays<U> {
        BothWays { read: each(&self.read), written: each(&self.written) }
    }
}

/// The traffic of one direction in some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Traffic {
    /// The bytes that arrived.
    pub bytes: u64,
    /// The microseconds in which at least one request was under way.
    pub busy_us: u64,
    /// The number of requests that were answered.
    pub answered: u64,
    /// The number of requests that failed or were given up.
    pub failed: u64,
}

/// The least busy time of which a rate can be told: below, it is a scheduler's turn.
const LEAST_BUSY_US: u64 = 1_000;

impl Traffic {
    /// Returns the bytes a second while requests were under way; `None` where there was too little to tell.
    pub fn rate(&self) -> Option<f64> {
        let told = self.bytes > 0 && self.busy_us >= LEAST_BUSY_US;
        told.then(|| self.bytes as f64 / self.busy_us as f64 * 1e6)
    }

    /// Returns the traffic since `earlier`, which is an earlier state of the same counts.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(earlier.bytes),
            busy_us: self.busy_us.saturating_sub(earlier.busy_us),
            answered: self.answered.saturating_sub(earlier.answered),
            failed: self.failed.saturating_sub(earlier.failed),
        }
    }

    /// Returns whether there was no traffic.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, more: Self) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.busy_us = self.busy_us.saturating_add(more.busy_us);
        self.answered = self.answered.saturating_add(more.answered);
        self.failed = self.failed.saturating_add(more.failed);
    }
}

/// Counts the traffic of one direction as it happens.
#[derive(Debug, Clone, Default)]
pub struct TrafficCount {
    total: Traffic,
    under_way: u64,
    /// The moment up to which busy time is counted, while requests are under way.
    counted_to: Duration,
}

impl TrafficCount {
    /// Notes that a request is under way from now on.
    pub fn began(&mut self, now: Duration) {
        self.count_time(now);
        self.under_way += 1;
    }

    /// Notes that a request was answered with so many bytes.
    pub fn answered(&mut self, bytes: u64, now: Duration) {
        self.end(now);
        self.total.bytes = self.total.bytes.saturating_add(bytes);
        self.total.answered += 1;
    }

    /// Notes that a request failed or was given up.
    pub fn failed(&mut self, now: Duration) {
        self.end(now);
        self.total.failed += 1;
    }

    /// Notes that a request is not waited for any more, by no fault of the donor.
    pub fn withdrawn(&mut self, now: Duration) {
        self.end(now);
    }

    /// Returns the traffic up to the last request that began or ended.
    pub fn so_far(&self) -> &Traffic {
        &self.total
    }

    /// Returns the traffic so far.
    pub fn total(&mut self, now: Duration) -> Traffic {
        self.count_time(now);
        self.total
    }

    fn end(&mut self, now: Duration) {
        self.count_time(now);
        self.under_way = self.under_way.saturating_sub(1);
    }

    fn count_time(&mut self, now: Duration) {
        if self.under_way > 0 {
            let busy = now.saturating_sub(self.counted_to).as_micros() as u64;
            self.total.busy_us = self.total.busy_us.saturating_add(busy);
        }
        self.counted_to = self.counted_to.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_several_requests_are_under_way_counts_once() {
        let at = Duration::from_millis;
        let mut count = TrafficCount::default();
        count.began(at(0));
        count.began(at(5));
        count.answered(1000, at(10));
        count.answered(1000, at(20));
        count.began(at(100));
        count.failed(at(110));
        let total = count.total(at(500));
        let wanted = Traffic { bytes: 2000, busy_us: 30_000, answered: 2, failed: 1 };
        assert_eq!(total, wanted);
        assert_eq!(total.rate().map(f64::round), Some(66_667.0));
        assert!(count.total(at(900)).since(&total).is_none(), "nothing is under way");
    }
}
