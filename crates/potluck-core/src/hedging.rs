//! Hedging: which holder of a chunk is asked first, how long it is waited for before another is asked too, which donor
//! is left out for a while, and when a connection is given up. All reads of clients follow these rules.

use crate::clock::Tick;
use crate::ids::DonorId;
use crate::rate_estimate::RateEstimate;
use crate::read_plan::ShardState;
use std::collections::BTreeMap;
use std::time::Duration;

/// A request is late when it takes this many times as long as was expected, within [`LATE_BOUNDS`].
const LATE_FACTOR: u32 = 3;
/// The bounds of the time after which a request is late: below the first, waiting is jitter; above the second, a
/// person has noticed.
const LATE_BOUNDS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_millis(1500));

/// The time above which a request to a donor that yields to its owner is late: to ask another sooner would move the
/// whole load to it, and back when that one yields, too.
const LATE_IF_LIMITED: Duration = Duration::from_secs(15);

/// The number of failures in a row after which a donor is asked only like a suspect, because each group would wait
/// anew for a donor that hangs. A single failure may be one damaged chunk.
const AVOIDED_AFTER: u32 = 2;
/// The time for which an avoided donor is left alone before one request tries it again, because files stay open for
/// days. Each further failure doubles the time, up to [`DOUBLED`] times.
const AVOIDED_FOR: Duration = Duration::from_secs(15);
const DOUBLED: u32 = 5;

/// A second request for bytes that are being sent must promise to be this many times faster than waiting.
const SECOND_GAIN: f64 = 2.0;
/// The seconds below which waiting is jitter (a scheduler's turn, a flush), so that nothing is sent twice.
const JITTER_S: f64 = 0.02;

/// The time after which a donor that owes an answer is given up for lack of progress: fewer than [`LEAST_RECEIVED`]
/// bytes came of a chunk that it sends, or it took fewer than [`LEAST_TAKEN`] bytes of what is sent to it.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(8);
/// The time that takes the place of [`STALL_TIMEOUT`] at a donor that says that it yields to its owner: it then serves its
/// clients slice by slice, and each may wait for all others.
pub const THROTTLED_TIMEOUT: Duration = Duration::from_secs(64);
/// The bytes of a chunk that must come within [`STALL_TIMEOUT`]: what each of sixteen donors gets of a line of 100 kb/s.
/// A donor that sends as little and could send more costs little, since another is asked for the chunk once it is late.
pub const LEAST_RECEIVED: usize = 4 << 10;
/// The bytes of what we send, all chunks together, that a donor must take within [`STALL_TIMEOUT`]. They are fewer than
/// [`LEAST_RECEIVED`], because lines are slower upwards, and a put shares one line between several donors.
pub const LEAST_TAKEN: u64 = 2 << 10;

/// The known rates of donors.
pub type Rates = BTreeMap<DonorId, RateEstimate>;

/// A donor that holds a chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadSource {
    /// The donor that holds the copy.
    pub donor: DonorId,
    /// True if the manager heard of the donor lately; otherwise the donor is a suspect.
    pub live: bool,
    /// The donor's load as a score from 0 (idle) to 1 ([`crate::load::Load::score`]).
    pub load: f32,
}

/// Returns the donor whose copy is expected to arrive first, of those not `tried` yet; ties go to fewer outstanding
/// bytes, then to the less loaded donor, so that a read goes round a busy one (docs/papers.md, CEFT).
///
/// Suspects are asked only when no live copy is left. `None` means that every copy was tried, or that the donors in
/// question have a full window and one of them is to be waited for.
pub fn pick(
    sources: &[ReadSource],
    rates: &Rates,
    bytes: u32,
    tried: &[DonorId],
) -> Option<DonorId> {
    let untried = || sources.iter().filter(|source| !tried.contains(&source.donor));
    let live = untried().any(|source| source.live);
    let unknown = RateEstimate::new();
    let estimate = |donor| rates.get(&donor).unwrap_or(&unknown);
    let rank = |source: &ReadSource| -> (Duration, u64) {
        let estimate = estimate(source.donor);
        (estimate.expected_finish(bytes), estimate.outstanding())
    };
    untried()
        .filter(|source| source.live == live && estimate(source.donor).has_room(bytes))
        .min_by(|a, b| {
            rank(a).cmp(&rank(b)).then(a.load.total_cmp(&b.load)).then(a.donor.cmp(&b.donor))
        })
        .map(|source| source.donor)
}

/// Returns the time for which a request for `bytes` that is sent now is waited for before another donor is asked too.
pub fn late_after(estimate: &RateEstimate, bytes: u32) -> Duration {
    let (least, most) = LATE_BOUNDS;
    let most = if estimate.is_limited() { LATE_IF_LIMITED } else { most };
    estimate.latest_finish(bytes).checked_mul(LATE_FACTOR).unwrap_or(most).clamp(least, most)
}

/// Returns true while a donor that failed several times in a row is asked only where other live donors do not suffice.
pub fn is_avoided(estimate: &RateEstimate, now: Tick) -> bool {
    let further = estimate.failures().checked_sub(AVOIDED_AFTER);
    further
        .is_some_and(|times| now < estimate.since() + AVOIDED_FOR * 2_u32.pow(times.min(DOUBLED)))
}

/// Returns whether bytes that were sent to a donor at `sent_at` should be sent to another one too, where the best of
/// the others takes `others_best_rate` bytes a second. It is to be asked when nothing else is left to send: before, the
/// other donors have better to do.
pub fn overdue(
    estimate: &RateEstimate,
    others_best_rate: f64,
    bytes: u32,
    sent_at: Tick,
    now: Tick,
) -> bool {
    let elsewhere = SECOND_GAIN * f64::from(bytes) / others_best_rate;
    let waited = now.saturating_sub(sent_at).as_secs_f64();
    let quiet = now.saturating_sub(sent_at.max(estimate.since())).as_secs_f64();
    let due = estimate.rate().map_or(0.0, |rate| f64::from(bytes) / rate);
    // Before the answer is due, this is the time left; once it is late, it is taken to stay late for as long again.
    waited >= elsewhere.max(JITTER_S) && (due - quiet).abs() > elsewhere
}

/// The requests for one chunk, or for one part of it.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    sources: Vec<ReadSource>,
    /// The donors that were asked, the last one last.
    tried: Vec<DonorId>,
    under_way: usize,
    /// The time at which the request to the last donor asked is late.
    due: Tick,
    /// True if the last request is late, and no other donor was found to ask in its stead.
    late: bool,
}

impl Requests {
    /// Makes the requests for a chunk that these donors have; none is sent yet.
    pub fn new(sources: Vec<ReadSource>) -> Self {
        Self { sources, ..Self::default() }
    }

    /// Returns the donor to ask next; `None` when all were asked, or those in question have a full window.
    pub fn next(&self, rates: &Rates, bytes: u32) -> Option<DonorId> {
        pick(&self.sources, rates, bytes, &self.tried)
    }

    /// Notes that a request for `bytes` goes to this donor.
    pub fn sent(&mut self, donor: DonorId, rates: &Rates, bytes: u32, now: Tick) {
        self.tried.push(donor);
        self.under_way += 1;
        (self.due, self.late) = (now + self.late_after(rates, bytes), false);
    }

    /// Returns the time for which the last donor asked is waited for, if its request is sent now.
    pub fn late_after(&self, rates: &Rates, bytes: u32) -> Duration {
        let last = self.tried.last().and_then(|donor| rates.get(donor));
        last.map_or(LATE_BOUNDS.0, |estimate| late_after(estimate, bytes))
    }

    /// Notes that one of the requests was answered, whatever the answer.
    pub fn answered(&mut self) {
        self.under_way -= 1;
    }

    /// Returns the time at which the last request is late; `None` if none is under way, or if it was already found late
    /// and no other donor could be asked.
    pub fn due(&self) -> Option<Tick> {
        (self.under_way > 0 && !self.late).then_some(self.due)
    }

    /// Returns another donor to ask for the same once the last request is late: a live one unless `suspects_too`.
    /// Where there is none, the request under way counts as late from now on.
    pub fn another(
        &mut self,
        rates: &Rates,
        bytes: u32,
        suspects_too: bool,
        now: Tick,
    ) -> Option<DonorId> {
        if self.due().is_none_or(|due| now < due) {
            return None;
        }
        let live = |donor: &DonorId| {
            self.sources.iter().any(|source| source.donor == *donor && source.live)
        };
        let another = self.next(rates, bytes).filter(|donor| suspects_too || live(donor));
        self.late = another.is_none();
        another
    }

    /// Returns whether no donor is known that has the chunk.
    pub fn no_source(&self) -> bool {
        self.sources.is_empty()
    }

    /// Returns the number of requests beyond the first.
    pub fn repeated(&self) -> u64 {
        self.tried.len().saturating_sub(1) as u64
    }

    /// Returns the state, for its reader, of a chunk that has not arrived yet.
    pub fn state(&self, rates: &Rates, now: Tick) -> ShardState {
        if self.under_way > 0 {
            return ShardState::Asked { late: self.late };
        }
        let untried = || self.sources.iter().filter(|source| !self.tried.contains(&source.donor));
        let avoided = |donor| rates.get(donor).is_some_and(|of| is_avoided(of, now));
        match untried().any(|source| source.live && !avoided(&source.donor)) {
            true => ShardState::Open,
            false if untried().next().is_some() => ShardState::Suspect,
            false => ShardState::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u32 = 4 << 20;
    const ONE: DonorId = DonorId(1);
    const TWO: DonorId = DonorId(2);

    fn source(donor: DonorId, live: bool) -> ReadSource {
        ReadSource { donor, live, load: 0.0 }
    }

    /// Returns the estimate of a donor that delivered a chunk in `millis` milliseconds.
    fn met(millis: u64) -> RateEstimate {
        let mut estimate = RateEstimate::new();
        estimate.sent(CHUNK, Tick::ZERO);
        estimate.acked(CHUNK, Tick::ZERO, Tick::from_millis(millis));
        estimate
    }

    #[test]
    fn hedging_delay_is_a_bounded_multiple() {
        assert_eq!(late_after(&met(1), 4096), LATE_BOUNDS.0, "less is jitter");
        let slow = late_after(&met(200), CHUNK).as_millis();
        assert!((590..=610).contains(&slow), "{slow}");
        assert_eq!(late_after(&met(60_000), CHUNK), LATE_BOUNDS.1, "people wait no longer");
    }

    #[test]
    fn a_late_request_goes_to_another_live_donor_and_to_no_suspect() {
        for live in [true, false] {
            let rates = Rates::from([(ONE, met(10)), (TWO, met(20))]);
            let mut requests = Requests::new(vec![source(ONE, true), source(TWO, live)]);
            let now = Tick::from_secs(1);
            assert_eq!(requests.state(&rates, now), ShardState::Open);
            assert_eq!(requests.next(&rates, CHUNK), Some(ONE), "the faster one");
            requests.sent(ONE, &rates, CHUNK, now);
            let due = requests.due().expect("one is under way");
            assert_eq!(requests.another(&rates, CHUNK, false, now), None, "not late yet");
            assert_eq!(requests.state(&rates, now), ShardState::Asked { late: false });
            assert_eq!(requests.another(&rates, CHUNK, false, due), live.then_some(TWO));
            assert_eq!(requests.state(&rates, due), ShardState::Asked { late: !live });
            requests.answered();
            let left = if live { ShardState::Open } else { ShardState::Suspect };
            assert_eq!(requests.state(&rates, due), left);
            requests.sent(TWO, &rates, CHUNK, due);
            requests.answered();
            assert_eq!(requests.state(&rates, due), ShardState::Lost);
            assert_eq!(requests.repeated(), 1);
        }
    }

    #[test]
    fn late_request_hedges_to_a_suspect_as_last_resort() {
        let rates = Rates::from([(ONE, met(10))]);
        let now = Tick::from_secs(1);
        let mut requests = Requests::new(vec![source(ONE, true), source(TWO, false)]);
        requests.sent(ONE, &rates, CHUNK, now);
        let due = requests.due().expect("one is under way");
        assert_eq!(requests.another(&rates, CHUNK, true, now), None, "not late yet");
        assert_eq!(requests.another(&rates, CHUNK, true, due), Some(TWO));
    }

    /// A file may stay open for days: a donor that failed twice is not left out for as long.
    #[test]
    fn twice_failed_donor_is_backed_off() {
        let mut estimate = met(10);
        let at = Tick::from_secs;
        for second in [1, 2] {
            assert!(!is_avoided(&estimate, at(second)));
            estimate.sent(CHUNK, at(second));
            estimate.failed(CHUNK);
        }
        assert!(is_avoided(&estimate, at(2)) && is_avoided(&estimate, at(16)));
        assert!(!is_avoided(&estimate, at(17)));
        estimate.sent(CHUNK, at(17));
        assert!(is_avoided(&estimate, at(17)), "others do not wait for the one that tries");
        estimate.failed(CHUNK);
        assert!(is_avoided(&estimate, at(46)) && !is_avoided(&estimate, at(47)), "twice as long");
        estimate.sent(CHUNK, at(47));
        estimate.acked(CHUNK, at(47), at(48));
        assert!(!is_avoided(&estimate, at(48)));
    }
}
