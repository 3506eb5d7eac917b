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
/// The time after a diagnostic transfer that failed before the next one.
const DIAGNOSED_AGAIN: Duration = Duration::from_mins(10);
/// The time after a diagnostic transfer that the donor refused before the next one. A refusal costs a request.
const REFUSED_DIAGNOSIS: Duration = Duration::from_secs(5);

/// The traffic of a donor, as it is kept while no manager runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedTraffic {
    rates: BothWays<SavedDonorRate>,
    /// What the donor said last, so that it does not count twice when it is said again.
    said: Option<(Incarnation, BothWays<Traffic>)>,
    history: TrafficHistory,
    /// The rates by a diagnostic transfer.
    #[serde(default)]
    diagnosed: Option<BothWays<u64>>,
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
    /// The rates by a diagnostic transfer, which count while no member has measured enough.
    diagnosed: Option<BothWays<u64>>,
    /// The time before which no diagnostic transfer is begun.
    next_diagnosis: Tick,
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
        let guess = |direction| self.diagnosed.as_ref().map(|rates| *rates.of(direction));
        let rate = |direction: Direction| {
            let measured = self.rates.of(direction).rate(now).map(|rate| rate as u64);
            measured.or_else(|| guess(direction))
        };
        BothWays { read: rate(Direction::Read), written: rate(Direction::Write) }
    }

    /// Returns whether a rate is unknown and a diagnostic transfer could tell it; then none is begun for a while, whether
    /// this one succeeds or not.
    pub fn begin_diagnosis(&mut self, now: Tick) -> bool {
        let rates = self.rates(now);
        let is_due =
            (rates.read.is_none() || rates.written.is_none()) && now >= self.next_diagnosis;
        if is_due {
            self.next_diagnosis = now + DIAGNOSED_AGAIN;
        }
        is_due
    }

    /// Notes that the donor refused a diagnostic transfer, because it yields to its owner now.
    pub fn refused_diagnosis(&mut self, now: Tick) {
        self.next_diagnosis = now + REFUSED_DIAGNOSIS;
    }

    /// Notes the rates of a diagnostic transfer.
    pub fn diagnosed(&mut self, rates: BothWays<u64>) {
        self.diagnosed = Some(rates);
    }

    /// Forgets all rates, because the donor is on another line now. The history stays.
    pub fn is_on_another_line(&mut self) {
        (self.rates, self.diagnosed, self.next_diagnosis) = Default::default();
    }

    /// Returns the bytes a second at which the donor is expected to be read: what `reader` itself measured, where that is
    /// named and did, for a machine reads its own disk without the network; or else what is expected of it in general.
    pub fn read_rate_of(&self, reader: Option<MemberId>, now: Tick) -> Option<f64> {
        let own = reader.and_then(|member| self.rates.read.measured_by(member, now));
        own.or_else(|| self.rates(now).read.map(|rate| rate as f64))
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
        let history = self.history.clone();
        SavedTraffic { rates, said: self.said, history, diagnosed: self.diagnosed }
    }

    /// Returns the traffic of which so much is known.
    pub fn recalled(saved: SavedTraffic, now: Tick) -> Self {
        let rates = saved.rates.map(|rate| DonorRate::recalled(rate, now));
        let SavedTraffic { said, history, diagnosed, .. } = saved;
        Self { rates, said, history, diagnosed, ..Self::default() }
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
    fn a_diagnostic_transfer_counts_until_members_measured() {
        let (mut known, now) = (KnownTraffic::default(), Tick::from_secs(1));
        assert!(known.begin_diagnosis(now));
        assert!(!known.begin_diagnosis(now), "it is under way");
        assert!(known.begin_diagnosis(now + DIAGNOSED_AGAIN), "it failed");
        known.diagnosed(BothWays { read: 3, written: 4 });
        let mut known = KnownTraffic::recalled(known.saved(now), Tick::ZERO);
        assert!(!known.begin_diagnosis(now + 2 * DIAGNOSED_AGAIN), "also after a restart");
        assert_eq!(known.rates(now), BothWays { read: Some(3), written: Some(4) });
        let read = Traffic { bytes: 50 << 20, busy_us: 1_000_000, ..Traffic::default() };
        known.measured(MemberId(1), &BothWays { read, ..BothWays::default() }, now);
        assert_eq!(known.rates(now), BothWays { read: Some(50 << 20), written: Some(4) });
        known.is_on_another_line();
        assert_eq!(known.rates(now), BothWays::default());
        assert!(known.begin_diagnosis(now));
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
