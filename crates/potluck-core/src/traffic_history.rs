//! The history of a donor: its traffic and the time for which it was heard, by hours of the last day and by days of the
//! last month. It is bounded, whatever happens.

use crate::clock::UnixMillis;
use crate::traffic::{BothWays, Traffic};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// An hour and a day, in milliseconds.
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// The numbers of hours and days that are kept.
const HOURS: usize = 24;
const DAYS: usize = 30;

/// The traffic and the time heard of one hour or day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Period {
    /// The number of the hour or day since 1970.
    number: i64,
    /// The donor's traffic with clients.
    #[serde(default, skip_serializing_if = "is_none")]
    traffic: BothWays<Traffic>,
    /// The seconds for which the donor was heard.
    heard_s: u32,
}

fn is_none(traffic: &BothWays<Traffic>) -> bool {
    *traffic == BothWays::default()
}

/// The hours of a day and the days of a month, the latest last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrafficHistory {
    /// The time at which the history begins, in milliseconds since 1970; 0 before the first note.
    since: UnixMillis,
    /// The time of the last note.
    until: UnixMillis,
    hours: VecDeque<Period>,
    days: VecDeque<Period>,
}

/// The sum of some periods.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Summary {
    /// The traffic of the periods.
    pub traffic: BothWays<Traffic>,
    /// The share of the time since the first of the periods for which the donor was heard, 0 to 1.
    pub heard: f64,
}

impl TrafficHistory {
    /// Notes what happened since the last call: traffic, and seconds for which the donor was heard.
    pub fn note(&mut self, traffic: BothWays<Traffic>, heard_s: u32, now: UnixMillis) {
        let Self { since, until, hours, days } = self;
        *since = if *since == 0 { now } else { *since };
        *until = now.max(*until);
        for (periods, length, most) in [(hours, HOUR_MS, HOURS), (days, DAY_MS, DAYS)] {
            let number = now.div_euclid(length);
            // A clock that goes back adds to the latest period.
            if periods.back().is_none_or(|last| last.number < number) {
                periods.push_back(Period { number, ..Period::default() });
            }
            periods.retain(|period| number - period.number < most as i64);
            let Some(last) = periods.back_mut() else { continue };
            last.traffic.read += traffic.read;
            last.traffic.written += traffic.written;
            last.heard_s = last.heard_s.saturating_add(heard_s);
        }
    }

    /// Returns the sum of the last day before the last note.
    pub fn last_day(&self) -> Summary {
        self.sum(&self.hours, HOUR_MS)
    }

    /// Returns the sum of the last thirty days before the last note.
    pub fn last_month(&self) -> Summary {
        self.sum(&self.days, DAY_MS)
    }

    fn sum(&self, periods: &VecDeque<Period>, length: i64) -> Summary {
        let mut summary = Summary::default();
        let mut heard_s = 0_u64;
        for period in periods {
            summary.traffic.read += period.traffic.read;
            summary.traffic.written += period.traffic.written;
            heard_s += u64::from(period.heard_s);
        }
        let first = periods.front().map(|first| (first.number * length).max(self.since));
        let span_s = first.map_or(0, |first| self.until.saturating_sub(first) / 1000);
        summary.heard = if span_s > 0 { (heard_s as f64 / span_s as f64).min(1.0) } else { 0.0 };
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_forgets_what_is_older_and_stays_small() {
        let mut history = TrafficHistory::default();
        let read = Traffic { bytes: 1, ..Traffic::default() };
        let traffic = BothWays { read, ..BothWays::default() };
        for hour in 0..2000 {
            history.note(traffic, 1800, hour * HOUR_MS);
        }
        assert_eq!(history.last_day().traffic.read.bytes, HOURS as u64);
        assert_eq!((history.hours.len(), history.days.len()), (HOURS, DAYS));
        assert!((0.4..0.6).contains(&history.last_day().heard), "half of each hour");
        history.note(traffic, 1, 5 * HOUR_MS);
        assert_eq!(history.hours.len(), HOURS, "a clock that went back opens no period");
        history.note(BothWays::default(), 0, 2000 * HOUR_MS + 40 * DAY_MS);
        assert_eq!(history.last_month(), Summary::default());
    }
}
