//! Rate estimates, by a client and donors in virtual time.

use potluck_core::clock::Tick;
use potluck_core::hedging::overdue;
use potluck_core::ids::DonorId;
use potluck_core::rate_estimate::{LIMIT_HOLDS, RateEstimate, choose};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const MB: f64 = 1e6;
const LATENCY: f64 = 0.0005;
/// The time from one look of the simulated client for overdue requests to the next, in seconds.
const LOOK: f64 = 0.005;

/// A request on its way.
struct Flight {
    donor: usize,
    chunk: usize,
    sent_at: Tick,
    answered_at: Tick,
}

/// A client that writes to donors, each of which works off a queue at its own rate.
pub struct World {
    chunk: u32,
    pub rates: BTreeMap<DonorId, RateEstimate>,
    free_at: Vec<f64>,
    flights: Vec<Flight>,
    sent: Vec<u64>,
    now: Tick,
}

impl World {
    pub fn new(donors: usize, chunk: u32) -> Self {
        let rates = (0..donors).map(|donor| (DonorId(donor as u32), RateEstimate::new())).collect();
        let (free_at, sent) = (vec![0.0; donors], vec![0; donors]);
        Self { chunk, rates, free_at, flights: Vec::new(), sent, now: Tick::ZERO }
    }

    fn send(&mut self, to: DonorId, chunk: usize, rate: impl Fn(usize, f64) -> f64) {
        let donor = to.0 as usize;
        let now = self.now.as_secs_f64();
        let start = self.free_at[donor].max(now + LATENCY / 2.0);
        self.free_at[donor] = start + f64::from(self.chunk) / rate(donor, start);
        let answered_at = Duration::from_secs_f64(self.free_at[donor] + LATENCY / 2.0);
        self.rates.get_mut(&to).expect("known").sent(self.chunk, self.now);
        self.sent[donor] += 1;
        self.flights.push(Flight { donor, chunk, sent_at: self.now, answered_at });
    }

    pub fn choose(&self, not: Option<usize>) -> Option<DonorId> {
        let others = self.rates.iter().filter(|(id, _)| Some(id.0 as usize) != not);
        choose(others.map(|(id, estimate)| (*id, estimate)), self.chunk)
    }

    /// Sends every overdue chunk once more.
    fn hedge(
        &mut self,
        done: &[bool],
        hedged: &mut BTreeSet<usize>,
        rate: &impl Fn(usize, f64) -> f64,
    ) {
        let late: Vec<(usize, usize)> = self
            .flights
            .iter()
            .filter(|flight| {
                let own = DonorId(flight.donor as u32);
                let others = self.rates.iter().filter(|(id, _)| **id != own);
                let best = others.filter_map(|(_, estimate)| estimate.rate()).fold(0.0, f64::max);
                overdue(&self.rates[&own], best, self.chunk, flight.sent_at, self.now)
            })
            .map(|flight| (flight.donor, flight.chunk))
            .collect();
        for (donor, chunk) in late {
            if done[chunk] || hedged.contains(&chunk) {
                continue;
            }
            if let Some(other) = self.choose(Some(donor)) {
                hedged.insert(chunk);
                self.send(other, chunk, rate);
            }
        }
    }

    /// Lets time pass to the next answer, or the next look when `looking`.
    fn wait(&mut self, looking: bool, done: &mut [bool]) {
        let next = self.flights.iter().map(|flight| flight.answered_at).min().expect("in flight");
        let look = self.now + Duration::from_secs_f64(LOOK);
        self.now = if looking { next.min(look) } else { next };
        let now = self.now;
        let (answered, flying) =
            std::mem::take(&mut self.flights).into_iter().partition(|f| f.answered_at <= now);
        self.flights = flying;
        let mut answered: Vec<Flight> = answered;
        answered.sort_by_key(|flight| flight.answered_at);
        for flight in answered {
            done[flight.chunk] = true;
            let estimate = self.rates.get_mut(&DonorId(flight.donor as u32)).expect("known");
            estimate.acked(self.chunk, flight.sent_at, now);
        }
    }

    /// Moves `chunks` chunks; `rate(donor, seconds)` is what a donor delivers at that time.
    /// Returns the seconds that took.
    fn run(&mut self, chunks: usize, rate: impl Fn(usize, f64) -> f64) -> f64 {
        self.run_by(chunks, rate, |world, _| world.choose(None))
    }

    /// Moves `chunks` chunks, each to the donor that `pick` says.
    pub fn run_by(
        &mut self,
        chunks: usize,
        rate: impl Fn(usize, f64) -> f64,
        pick: impl Fn(&Self, usize) -> Option<DonorId>,
    ) -> f64 {
        let begun = self.now;
        let (mut done, mut hedged) = (vec![false; chunks], BTreeSet::new());
        let mut next = 0;
        while !done.iter().all(|done| *done) {
            while next < chunks
                && let Some(donor) = pick(self, next)
            {
                self.send(donor, next, &rate);
                next += 1;
            }
            if next == chunks {
                self.hedge(&done, &mut hedged, &rate);
            }
            self.wait(next == chunks, &mut done);
        }
        (self.now - begun).as_secs_f64()
    }
}

proptest! {
    #[test]
    fn a_transfer_takes_little_more_than_all_rates_together_allow(
        rates in prop::collection::vec(5.0..1000.0_f64, 1..8), chunks in 1..400_usize,
        chunk in prop::sample::select(vec![1_u32 << 20, 4 << 20]),
    ) {
        let rate = |donor: usize, _: f64| rates[donor] * MB;
        let took = World::new(rates.len(), chunk).run(chunks, rate);
        let ideal = chunks as f64 * f64::from(chunk) / (rates.iter().sum::<f64>() * MB);
        let slowest = rates.iter().copied().fold(f64::MAX, f64::min) * MB;
        let limit = 1.25 * ideal + f64::from(chunk) / slowest + 0.02 + 2.0 * LOOK;
        prop_assert!(took <= limit, "{took:.3} s, at best {ideal:.3} s, at most {limit:.3} s");
    }

    #[test]
    fn a_slow_donor_gets_its_share_and_stalls_nobody(
        slow in 2.0..40.0_f64, fast in prop::collection::vec(200.0..1000.0_f64, 1..6),
        chunks in 1..600_usize,
    ) {
        let rates: Vec<f64> = std::iter::once(slow).chain(fast).collect();
        let mut world = World::new(rates.len(), 4 << 20);
        world.run(chunks, |donor, _| rates[donor] * MB);
        let fair = chunks as f64 * slow / rates.iter().sum::<f64>();
        prop_assert!(world.sent[0] as f64 <= 2.0 * fair + 2.0, "{} of {fair:.1}", world.sent[0]);
    }

    #[test]
    fn windows_stay_between_one_chunk_and_the_limit(
        spans in prop::collection::vec((0_u64..5_000_000_000, any::<u32>()), 0..50),
        chunk in 1_u32..(64 << 20),
    ) {
        let mut estimate = RateEstimate::new();
        let mut now = Tick::ZERO;
        for (nanos, bytes) in spans {
            let sent_at = now;
            estimate.sent(bytes, now);
            now += Duration::from_nanos(nanos);
            if bytes % 7 == 0 { estimate.failed(bytes) } else { estimate.acked(bytes, sent_at, now) }
            let window = estimate.window(chunk);
            prop_assert!(window >= u64::from(chunk));
            prop_assert!(window <= (16 << 20).max(2 * u64::from(chunk)));
            prop_assert_eq!(estimate.outstanding(), 0);
            prop_assert!(estimate.rate().is_none_or(|rate| rate.is_finite() && rate > 0.0));
            prop_assert!(estimate.has_room(chunk), "a donor without work can always be asked");
            estimate.expected_finish(chunk);
        }
    }
}

#[test]
fn unknown_donor_is_late_by_a_slow_link_estimate() {
    let (chunk, hundred_megabits) = (4 << 20, 12.5e6);
    let sends = |chunks: f64| Duration::from_secs_f64(chunks * f64::from(chunk) / hundred_megabits);
    let mut estimate = RateEstimate::new();
    assert!(
        estimate.expected_finish(chunk) < sends(1.0) && estimate.latest_finish(chunk) >= sends(1.0)
    );
    estimate.sent(chunk, Tick::ZERO);
    assert!(estimate.latest_finish(chunk) >= sends(2.0));
    estimate.acked(chunk, Tick::ZERO, Tick::ZERO + Duration::from_millis(10));
    assert_eq!(estimate.latest_finish(chunk), estimate.expected_finish(chunk));
}

#[test]
fn a_donor_that_speeds_up_is_used_again() {
    let mut world = World::new(4, 4 << 20);
    // Donor 0 is slow for three seconds.
    let rate = |donor, at| if donor == 0 && at < 3.0 { 5.0 * MB } else { 400.0 * MB };
    world.run(1200, rate);
    assert!((3.0..5.0).contains(&world.now.as_secs_f64()), "{:?}", world.now);
    world.run(300, rate);
    let before = world.sent.clone();
    world.run(800, rate);
    let share = (world.sent[0] - before[0]) as f64 / 800.0;
    assert!((0.2..0.3).contains(&share), "{share}");
    let known = world.rates[&DonorId(0)].rate().expect("measured");
    assert!(known > 350.0 * MB, "{known}");
}

#[test]
fn fast_donors_always_have_two_chunks_in_flight() {
    let mut world = World::new(2, 4 << 20);
    world.run(100, |_, _| 200.0 * MB);
    for estimate in world.rates.values() {
        assert!((8 << 20..=16 << 20).contains(&estimate.window(4 << 20)));
    }
    let mut slow = World::new(1, 4 << 20);
    slow.run(20, |_, _| 5.0 * MB);
    assert_eq!(slow.rates[&DonorId(0)].window(4 << 20), 4 << 20, "a slow donor owes one chunk");
}

#[test]
fn bursts_of_answers_do_not_inflate_the_rate() {
    let mut estimate = RateEstimate::new();
    for burst in 0..100_u64 {
        let sent_at = Duration::from_millis(burst * 100);
        let now = sent_at + Duration::from_millis(100);
        (0..10).for_each(|_| estimate.sent(1 << 20, sent_at));
        (0..10).for_each(|_| estimate.acked(1 << 20, sent_at, now));
    }
    let rate = estimate.rate().expect("measured") / (10 << 20) as f64 * 0.1;
    assert!((0.8..1.25).contains(&rate), "{rate} of what was delivered");
}

#[test]
fn a_donor_that_fails_is_asked_last_until_it_answers() {
    let (mut good, mut bad) = (RateEstimate::new(), RateEstimate::new());
    let (now, later) = (Tick::ZERO, Duration::from_millis(10));
    for estimate in [&mut good, &mut bad] {
        estimate.sent(1 << 20, now);
        estimate.acked(1 << 20, now, later);
    }
    bad.sent(1 << 20, later);
    bad.failed(1 << 20);
    let pick =
        |bad: &RateEstimate| choose([(DonorId(1), bad), (DonorId(2), &good)].into_iter(), 1 << 20);
    assert_eq!(pick(&bad), Some(DonorId(2)));
    bad.sent(1 << 20, later);
    bad.acked(1 << 20, later, 2 * later);
    assert_eq!(pick(&bad), Some(DonorId(1)));
}

#[test]
fn only_requests_that_others_finish_much_sooner_are_overdue() {
    let chunk = 4_u32 << 20;
    let at = Duration::from_millis;
    let mut steady = RateEstimate::new();
    for step in 0..20 {
        steady.sent(chunk, at(step * 10));
        steady.acked(chunk, at(step * 10), at(step * 10 + 10));
    }
    let rate = steady.rate().expect("measured");
    steady.sent(chunk, at(200));
    assert!(!overdue(&steady, rate, chunk, at(200), at(205)), "not yet due");
    assert!(!overdue(&steady, rate, chunk, at(200), at(225)), "a little late");
    assert!(overdue(&steady, rate, chunk, at(200), at(260)), "stuck");
    assert!(!overdue(&steady, 0.0, chunk, at(200), at(9000)), "nobody else");
    let mut mute = RateEstimate::new();
    mute.sent(chunk, at(0));
    assert!(overdue(&mute, rate, chunk, at(0), at(50)), "never answered");
}

#[test]
fn limited_donor_is_expected_by_its_limit_for_a_while() {
    let mut estimate = RateEstimate::new();
    estimate.sent(64 << 20, Duration::ZERO);
    estimate.acked(64 << 20, Duration::ZERO, Duration::from_secs(1));
    let (free, now) = (estimate.expected_finish(8 << 20), Duration::from_secs(1));
    estimate.limited(Some(1 << 20), now);
    assert_eq!(estimate.expected_finish(8 << 20), Duration::from_secs(8));
    assert_eq!(estimate.latest_finish(8 << 20), Duration::from_secs(8));
    assert_eq!(estimate.window(4 << 20), 4 << 20, "one chunk at a time");
    estimate.forget_old_limit(now + LIMIT_HOLDS);
    assert!(!estimate.is_limited());
    assert_eq!(estimate.expected_finish(8 << 20), free);
    estimate.limited(Some(0), now);
    assert!(estimate.expected_finish(1) >= Duration::from_secs(1), "it may take for ever");
}
