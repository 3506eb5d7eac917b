//! What the pool knows of a donor's traffic: the rates that members measured, what the donor says of itself, and the
//! history of both.

use potluck_core::clock::{Tick, UnixMillis};
use potluck_core::donor_rate::{DonorRate, SavedDonorRate};
use potluck_core::ids::{Incarnation, MemberId};
use potluck_core::traffic::{BothWays, Direction, Traffic};
use potluck_core::traffic_history::TrafficHistory;
use potluck_wire::control::DonorRates;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The longest time between two heartbeats that counts as heard.
const HEARD: Duration = Duration::from_secs(10);

/// The traffic of a donor, as it is kept while no manager runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedTraffic {
    rates: BothWays<SavedDonorRate>,
    /// What the donor said last, so that it does not count twice when it is said again.
    said: Option<(Incarnation, BothWays<Traffic>)>,
    history: TrafficHistory,
}

/// The traffic of one donor, as far as it is known.
#[derive(Debug, Default)]
pub struct KnownTraffic {
    rates: BothWays<DonorRate>,
    /// What the donor said last of its traffic since its incarnation began.
    said: Option<(Incarnation, BothWays<Traffic>)>,
    /// The last time at which the donor was heard.
    heard: Option<Tick>,
    /// The traffic that is not in the history yet, and the time for which the donor was heard meanwhile.
    new: (BothWays<Traffic>, Duration),
    history: TrafficHistory,
}

impl KnownTraffic {
    /// Notes what the donor says of its traffic since this incarnation began.
    pub fn told(&mut self, incarnation: Incarnation, total: BothWays<Traffic>, now: Tick) {
        let before = self.said.filter(|(said_by, _)| *said_by == incarnation);
        let before = before.map(|(_, before)| before).unwrap_or_default();
        for direction in [Direction::Read, Direction::Write] {
            let more = total.of(direction).since(before.of(direction));
            *self.new.0.of_mut(direction) += more;
            self.rates.of_mut(direction).told(more, now);
        }
        self.said = Some((incarnation, total));
        let since = self.heard.replace(now).map(|heard| now.saturating_sub(heard));
        self.new.1 += since.filter(|since| *since <= HEARD).unwrap_or_default();
    }

    /// Notes what a member measured since it last told.
    pub fn measured(&mut self, member: MemberId, traffic: &BothWays<Traffic>, now: Tick) {
        for direction in [Direction::Read, Direction::Write] {
            self.rates.of_mut(direction).measured(member, *traffic.of(direction), now);
        }
    }

    /// Returns the bytes a second that are expected of the donor in each direction.
    pub fn rates(&self, now: Tick) -> BothWays<Option<u64>> {
        self.rates.map(|rate| rate.rate(now).map(|rate| rate as u64))
    }

    /// Returns the bytes a second at which the donor is expected to be read: what `reader` itself measured, where that is
    /// named and did, for a machine reads its own disk without the network; or else what all members measured.
    pub fn read_rate_of(&self, reader: Option<MemberId>, now: Tick) -> Option<f64> {
        let own = reader.and_then(|member| self.rates.read.measured_by(member, now));
        own.or_else(|| self.rates.read.rate(now))
    }

    /// Moves what is new into the history.
    pub fn keep(&mut self, now: UnixMillis) {
        let (traffic, heard) = std::mem::take(&mut self.new);
        // Parts of seconds are kept for the next time.
        self.new.1 = Duration::from_nanos(heard.subsec_nanos().into());
        self.history.note(traffic, heard.as_secs() as u32, now);
    }

    /// Returns what is known, without what is not in the history yet.
    pub fn saved(&self, now: Tick) -> SavedTraffic {
        let rates = self.rates.map(|rate| rate.saved(now));
        SavedTraffic { rates, said: self.said, history: self.history.clone() }
    }

    /// Returns the traffic of which so much is known.
    pub fn recalled(saved: SavedTraffic, now: Tick) -> Self {
        let rates = saved.rates.map(|rate| DonorRate::recalled(rate, now));
        Self { rates, said: saved.said, history: saved.history, ..Self::default() }
    }

    /// Returns what is told of the donor's rates.
    pub fn status(&self, now: Tick) -> DonorRates {
        let (day, month) = (self.history.last_day(), self.history.last_month());
        DonorRates {
            rates: self.rates(now),
            members: self.rates.map(|rate| rate.members(now) as u32),
            last_day: day.traffic,
            last_month: month.traffic,
            heard: month.heard,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_donor_says_again_counts_once_and_a_new_incarnation_begins_at_nothing() {
        let mut known = KnownTraffic::default();
        let read = |bytes| BothWays {
            read: Traffic { bytes, busy_us: 1000, ..Traffic::default() },
            ..BothWays::default()
        };
        for (incarnation, bytes, second) in [(1, 10, 0), (1, 10, 1), (1, 15, 2), (2, 3, 3)] {
            known.told(Incarnation(incarnation), read(bytes), Tick::from_secs(second));
        }
        known.keep(1_000_000);
        known.told(Incarnation(2), read(3), Tick::from_secs(6));
        known.keep(1_003_000);
        let status = known.status(Tick::from_secs(6));
        assert_eq!(status.last_day.read.bytes, 18);
        assert_eq!(status.heard, 1.0);
    }

    #[test]
    fn recalled_traffic_has_its_rates_and_counts_nothing_twice() {
        let (mut known, now) = (KnownTraffic::default(), Tick::from_secs(100));
        let read = |bytes| BothWays {
            read: Traffic { bytes, busy_us: 1_000_000, ..Traffic::default() },
            ..BothWays::default()
        };
        known.told(Incarnation(1), read(50 << 20), now);
        known.measured(MemberId(1), &read(40 << 20), now);
        known.keep(1_000_000);
        let mut recalled = KnownTraffic::recalled(known.saved(now), Tick::ZERO);
        assert_eq!(recalled.rates(Tick::ZERO), known.rates(now));
        assert_eq!(recalled.rates(Tick::ZERO).read, Some(40 << 20));
        recalled.told(Incarnation(1), read(50 << 20), Tick::from_secs(1));
        recalled.keep(1_001_000);
        assert_eq!(recalled.status(Tick::from_secs(1)).last_day.read.bytes, 50 << 20);
    }
}
