//! The traffic of this client with each donor, over all its files, sessions and mounts: how fast each donor is, which
//! lasts longer than the work that showed it, and what the manager was not told yet.

use potluck_core::clock::{SharedClock, Tick};
use potluck_core::ids::DonorId;
use potluck_core::link_rate::{LinkRate, SeenWindow, WINDOW};
use potluck_core::rate_estimate::RateEstimate;
use potluck_core::traffic::{BothWays, Direction, Traffic, TrafficCount};
use potluck_wire::control::{DonorAccess, DonorTraffic, MOST_TOLD};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The bytes below which it is worth no call of its own to tell the manager, unless a donor took [`LONG_US`] for them.
const WORTH_TELLING: u64 = 4 << 20;
/// The time for which a donor has to be busy for any bytes to be worth telling of, in microseconds.
const LONG_US: u64 = 1_000_000;

/// The traffic of one client. Clones share it.
#[derive(Clone)]
pub(crate) struct MeasuredTraffic {
    clock: SharedClock,
    donors: Arc<Mutex<BTreeMap<DonorId, BothWays<Measured>>>>,
    /// The donors as the manager told of them last.
    told: Arc<Mutex<BTreeMap<DonorId, Arc<DonorAccess>>>>,
    link: Arc<Mutex<BothWays<MeasuredLink>>>,
}

/// The traffic of one direction with all donors together, and what that says of this machine's link.
#[derive(Default)]
struct MeasuredLink {
    count: TrafficCount,
    rate: LinkRate,
    /// The beginning of the present window, and the traffic up to then.
    began: Tick,
    before: Traffic,
    before_of: BTreeMap<DonorId, Traffic>,
}

/// The traffic of a client with one donor.
#[derive(Debug, Clone)]
pub struct SeenDonor {
    /// The donor as the manager told of it last.
    pub access: Arc<DonorAccess>,
    /// The traffic with it since the client was made.
    pub traffic: BothWays<Traffic>,
}

/// The traffic of one direction with one donor.
#[derive(Default)]
struct Measured {
    count: TrafficCount,
    estimate: RateEstimate,
    /// The part of the traffic that the manager was told of.
    told: Traffic,
}

/// A request that is under way, until it is answered, fails, or is dropped because nobody waits for it any more.
pub(crate) struct RequestUnderWay {
    traffic: MeasuredTraffic,
    donor: DonorId,
    direction: Direction,
    bytes: u32,
    sent_at: Tick,
    is_over: bool,
}

impl MeasuredTraffic {
    /// Makes a record without traffic.
    pub fn new(clock: SharedClock) -> Self {
        Self { clock, donors: Arc::default(), told: Arc::default(), link: Arc::default() }
    }

    /// Notes that a request for `bytes` goes to a donor now.
    pub fn begin(&self, donor: DonorId, direction: Direction, bytes: u32) -> RequestUnderWay {
        let sent_at = self.clock.now();
        self.change(donor, direction, |measured| {
            measured.count.began(sent_at);
            measured.estimate.sent(bytes, sent_at);
        });
        self.of_link(direction, |link| link.count.began(sent_at));
        RequestUnderWay { traffic: self.clone(), donor, direction, bytes, sent_at, is_over: false }
    }

    /// Returns the bytes a second that a donor delivered or took lately; `None` if this client had no traffic with it.
    pub fn rate(&self, donor: DonorId, direction: Direction) -> Option<f64> {
        let donors = self.donors.lock().expect("no holder panics");
        donors.get(&donor)?.of(direction).estimate.rate()
    }

    /// Returns the bytes a second that this machine's link carries, if it was seen to be full lately.
    pub fn link(&self, direction: Direction) -> Option<u64> {
        let now = self.clock.now();
        self.of_link(direction, |link| link.rate.rate(now).map(|rate| rate as u64))
    }

    fn of_link<T>(&self, direction: Direction, how: impl FnOnce(&mut MeasuredLink) -> T) -> T {
        how(self.link.lock().expect("no holder panics").of_mut(direction))
    }

    /// Notes that a request ended, and looks at the link where a window ends with that.
    fn ended(&self, direction: Direction, now: Tick, how: impl FnOnce(&mut TrafficCount)) {
        let is_over = self.of_link(direction, |link| {
            how(&mut link.count);
            now.saturating_sub(link.began) >= WINDOW
        });
        if is_over {
            self.end_window(direction, now);
        }
    }

    fn end_window(&self, direction: Direction, now: Tick) {
        let told: BTreeMap<DonorId, Option<u64>> = {
            let told = self.told.lock().expect("no holder panics");
            told.iter().map(|(donor, access)| (*donor, *access.rates.of(direction))).collect()
        };
        let totals: BTreeMap<DonorId, Traffic> = {
            let mut donors = self.donors.lock().expect("no holder panics");
            let total = |of: &mut BothWays<Measured>| of.of_mut(direction).count.total(now);
            donors.iter_mut().map(|(donor, of)| (*donor, total(of))).collect()
        };
        self.of_link(direction, |link| {
            let took = now.saturating_sub(link.began).as_secs_f64().max(1e-6);
            let total = link.count.total(now);
            let all = total.since(&link.before);
            let alone = |(donor, total): (&DonorId, &Traffic)| {
                let since = total.since(&link.before_of.get(donor).copied().unwrap_or_default());
                let rate = told.get(donor).copied().flatten();
                let busy = since.busy_us as f64 / 1e6 / took;
                if busy == 0.0 { Some(0.0) } else { Some(rate? as f64 * busy) }
            };
            let capable = totals.iter().map(alone).sum::<Option<f64>>();
            let (moved, busy) = (all.bytes as f64 / took, all.busy_us as f64 / 1e6 / took);
            link.rate.note(SeenWindow { moved, capable, busy }, now);
            (link.began, link.before, link.before_of) = (now, total, totals);
        });
    }

    /// Notes what the manager tells of a donor.
    pub fn learn(&self, access: &Arc<DonorAccess>) {
        let mut told = self.told.lock().expect("no holder panics");
        told.insert(access.donor, Arc::clone(access));
    }

    /// Returns the donors with which there was traffic.
    pub fn seen(&self) -> Vec<SeenDonor> {
        let now = self.clock.now();
        let told = self.told.lock().expect("no holder panics").clone();
        let mut donors = self.donors.lock().expect("no holder panics");
        let seen = donors.iter_mut().filter_map(|(donor, measured)| {
            let (read, written) =
                (measured.read.count.total(now), measured.written.count.total(now));
            let access = Arc::clone(told.get(donor)?);
            Some(SeenDonor { access, traffic: BothWays { read, written } })
        });
        seen.collect()
    }

    /// Takes what the manager was not told yet. What is taken counts as told.
    pub fn take_untold(&self) -> Vec<DonorTraffic> {
        let now = self.clock.now();
        let mut donors = self.donors.lock().expect("no holder panics");
        let untold = donors.iter_mut().filter_map(|(donor, measured)| {
            let traffic = BothWays {
                read: measured.read.take_untold(now),
                written: measured.written.take_untold(now),
            };
            let nothing = traffic.read.is_none() && traffic.written.is_none();
            (!nothing).then_some(DonorTraffic { donor: *donor, traffic })
        });
        untold.take(MOST_TOLD).collect()
    }

    /// Takes what the manager was not told yet, if it is worth a call of its own.
    pub fn take_if_worth_telling(&self) -> Vec<DonorTraffic> {
        let is_worth_it = {
            let donors = self.donors.lock().expect("no holder panics");
            let each = || donors.values().flat_map(|both| [&both.read, &both.written]);
            each().map(Measured::untold_bytes).sum::<u64>() >= WORTH_TELLING
                || each().any(|measured| measured.untold_busy_us() >= LONG_US)
        };
        if is_worth_it { self.take_untold() } else { Vec::new() }
    }

    fn change(&self, donor: DonorId, direction: Direction, how: impl FnOnce(&mut Measured)) {
        let mut donors = self.donors.lock().expect("no holder panics");
        how(donors.entry(donor).or_default().of_mut(direction));
    }
}

impl Measured {
    fn take_untold(&mut self, now: Tick) -> Traffic {
        let total = self.count.total(now);
        let untold = total.since(&self.told);
        // Time alone is told with the bytes that it brings.
        if untold.bytes == 0 && untold.failed == 0 {
            return Traffic::default();
        }
        self.told = total;
        untold
    }

    fn untold_bytes(&self) -> u64 {
        self.count.so_far().bytes - self.told.bytes
    }

    fn untold_busy_us(&self) -> u64 {
        self.count.so_far().busy_us - self.told.busy_us
    }
}

impl RequestUnderWay {
    /// Notes that the request was answered in full.
    pub fn answered(mut self) {
        self.end(|measured, Self { bytes, sent_at, .. }, now| {
            measured.count.answered(u64::from(*bytes), now);
            measured.estimate.acked(*bytes, *sent_at, now);
        });
        let (bytes, now) = (u64::from(self.bytes), self.traffic.clock.now());
        self.traffic.ended(self.direction, now, |all| all.answered(bytes, now));
    }

    /// Notes that the request failed, by the donor's fault.
    pub fn failed(mut self) {
        self.end(|measured, Self { bytes, .. }, now| {
            measured.count.failed(now);
            measured.estimate.failed(*bytes);
        });
        let now = self.traffic.clock.now();
        self.traffic.ended(self.direction, now, |all| all.failed(now));
    }

    fn end(&mut self, how: impl FnOnce(&mut Measured, &Self, Tick)) {
        self.is_over = true;
        let now = self.traffic.clock.now();
        self.traffic.change(self.donor, self.direction, |measured| how(measured, self, now));
    }
}

impl Drop for RequestUnderWay {
    fn drop(&mut self) {
        if !self.is_over {
            self.end(|measured, Self { bytes, .. }, now| {
                measured.count.withdrawn(now);
                measured.estimate.withdrawn(*bytes);
            });
            let now = self.traffic.clock.now();
            self.traffic.ended(self.direction, now, |all| all.withdrawn(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::clock::SystemClock;

    #[test]
    fn traffic_is_told_once_and_a_request_that_nobody_waits_for_is_not_busy_time() {
        let traffic = MeasuredTraffic::new(Arc::new(SystemClock::default()));
        let donor = DonorId(7);
        traffic.begin(donor, Direction::Read, 1 << 20).answered();
        drop(traffic.begin(donor, Direction::Read, 1 << 20));
        assert!(traffic.rate(donor, Direction::Read).is_some());
        assert_eq!(traffic.rate(donor, Direction::Write), None);
        assert!(traffic.take_if_worth_telling().is_empty(), "a megabyte is not worth a call");
        let told = traffic.take_untold();
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].donor, told[0].traffic.read.bytes), (donor, 1 << 20));
        assert!(traffic.take_untold().is_empty());
    }
}
