//! Hedging: which holder of a chunk is asked first, how long it is waited for before another is asked too, which donor
//! is left out for a while, and when a connection is given up. All reads of clients follow these rules.

use crate::clock::Tick;
use crate::ids::DonorId;
use crate::load::HOT;
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
/// A donor that owes an answer is silent when nothing comes from it for as long as these bytes take at its rate, within
/// [`SILENT_BOUNDS`]. Then another is asked, long before the answer as a whole is late. A donor that many read from at
/// once serves each of them in bursts, which are no longer than this.
const SILENT_BYTES: u32 = 1 << 20;
/// The bounds of the time after which a donor is silent. Together with a chunk from elsewhere the first costs a reader
/// less than 200 ms on a LAN; above the second, a request is late anyway.
const SILENT_BOUNDS: (Duration, Duration) = (Duration::from_millis(150), LATE_BOUNDS.1);

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
pub const THROTTLED_TIMEOUT: Duration = Duration::from_secs(24);
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

/// How willingly a donor is asked; those that come first are asked first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Readiness {
    /// The donor is there, and others do not use it much.
    Ready,
    /// Others than Potluck have more than half of what the donor could do.
    Hot,
    /// The donor owes an answer and says nothing.
    Silent,
    /// The manager has not heard of the donor lately.
    Suspect,
}

impl ReadSource {
    fn readiness(&self, rates: &Rates) -> Readiness {
        match rates.get(&self.donor) {
            _ if !self.live => Readiness::Suspect,
            Some(estimate) if estimate.is_silent() => Readiness::Silent,
            _ if self.load > HOT => Readiness::Hot,
            _ => Readiness::Ready,
        }
    }
}

/// Returns the donor whose copy is expected to arrive first, of those not `tried` yet; ties go to fewer outstanding
/// bytes, then to the less loaded donor.
///
/// A hot donor is skipped while another copy can be asked for (docs/papers.md, CEFT). When the windows of all other
/// donors are full, a hot one is asked if it is expected to be faster than each of them, since its measured rate says
/// more than its load. Silent donors, and then suspects, are asked only when no other copy is left. `None` means that
/// every copy was tried, or that the donors in question have a full window and one of them is to be waited for.
pub fn pick(
    sources: &[ReadSource],
    rates: &Rates,
    bytes: u32,
    tried: &[DonorId],
) -> Option<DonorId> {
    pick_where(sources, rates, bytes, tried, |estimate| estimate.has_room(bytes))
}

/// Picks as [`pick`] does, of the donors that `may` be asked.
fn pick_where(
    sources: &[ReadSource],
    rates: &Rates,
    bytes: u32,
    tried: &[DonorId],
    may: impl Fn(&RateEstimate) -> bool,
) -> Option<DonorId> {
    let unknown = RateEstimate::new();
    let estimate = |donor| rates.get(&donor).unwrap_or(&unknown);
    let finish = |source: &ReadSource| estimate(source.donor).expected_finish(bytes);
    let untried = || sources.iter().filter(|source| !tried.contains(&source.donor));
    let of = |readiness| untried().filter(move |source| source.readiness(rates) == readiness);
    let best_of = |readiness| {
        let rank = |source: &ReadSource| (finish(source), estimate(source.donor).outstanding());
        of(readiness).filter(|source| may(estimate(source.donor))).min_by(|a, b| {
            rank(a).cmp(&rank(b)).then(a.load.total_cmp(&b.load)).then(a.donor.cmp(&b.donor))
        })
    };
    let first = untried().map(|source| source.readiness(rates)).min()?;
    let best = best_of(first).or_else(|| {
        let hot = best_of(Readiness::Hot).filter(|_| first == Readiness::Ready)?;
        of(Readiness::Ready).all(|ready| finish(hot) < finish(ready)).then_some(hot)
    });
    best.map(|source| source.donor)
}

/// Returns the time after which a donor that owes an answer and says nothing is silent.
fn silent_after(estimate: &RateEstimate) -> Duration {
    if estimate.is_limited() {
        return LATE_IF_LIMITED;
    }
    let (least, most) = SILENT_BOUNDS;
    estimate.time_for(SILENT_BYTES).clamp(least, most)
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
    /// The time at which the request to the last donor asked is late, whatever comes from the donor.
    late_at: Tick,
    /// The time at which it is seen whether something came from that donor, at most `late_at`.
    look_at: Tick,
    /// The bytes that had come from that donor at the last look; `None` if there was no connection.
    heard: Option<u64>,
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

    /// Notes that a request for `bytes` goes to this donor, from which `heard` bytes came so far; `None` if there is no
    /// connection yet.
    pub fn sent(
        &mut self,
        donor: DonorId,
        rates: &Rates,
        bytes: u32,
        heard: Option<u64>,
        now: Tick,
    ) {
        self.tried.push(donor);
        self.under_way += 1;
        (self.late_at, self.late) = (now + self.late_after(rates, bytes), false);
        self.look_again(rates, heard, now);
    }

    fn look_again(&mut self, rates: &Rates, heard: Option<u64>, now: Tick) {
        let silent_after = self.asked().and_then(|donor| rates.get(&donor)).map(silent_after);
        let look_at = now + silent_after.unwrap_or(SILENT_BOUNDS.0);
        (self.look_at, self.heard) = (look_at.min(self.late_at), heard);
    }

    /// Returns the last donor that was asked.
    pub fn asked(&self) -> Option<DonorId> {
        self.tried.last().copied()
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

    /// Returns the time at which the last request may be late; `None` if none is under way, or if it was already found
    /// late and no other donor could be asked.
    pub fn due(&self) -> Option<Tick> {
        (self.under_way > 0 && !self.late).then_some(self.look_at)
    }

    /// Returns another donor to ask for the same once the last request is late, or the donor silent from which `heard`
    /// bytes came so far: a live one unless `suspects_too`. Where there is none, the request under way counts as late
    /// from now on.
    pub fn another(
        &mut self,
        rates: &mut Rates,
        bytes: u32,
        suspects_too: bool,
        heard: Option<u64>,
        now: Tick,
    ) -> Option<DonorId> {
        let asked = self.asked()?;
        if self.due().is_none_or(|due| now < due) {
            return None;
        }
        if now < self.late_at {
            // A connection that is being opened takes some round trips, of which nothing is known.
            match heard.filter(|_| heard == self.heard) {
                Some(heard) => rates.entry(asked).or_default().fell_silent(heard),
                None => {
                    self.look_again(rates, heard, now);
                    return None;
                }
            }
        }
        let rates = &*rates;
        let live = |donor: &DonorId| {
            self.sources.iter().any(|source| source.donor == *donor && source.live)
        };
        // The windows of all others are full in a long read: the late chunk, which its reader waits for, goes behind
        // what they owe, or it would wait for the donor that hangs.
        let another = pick_where(&self.sources, rates, bytes, &self.tried, |_| true)
            .filter(|donor| suspects_too || live(donor));
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
        let avoided =
            |donor| rates.get(donor).is_some_and(|of| of.is_silent() || is_avoided(of, now));
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
            let mut rates = Rates::from([(ONE, met(10)), (TWO, met(20))]);
            let mut requests = Requests::new(vec![source(ONE, true), source(TWO, live)]);
            let now = Tick::from_secs(1);
            assert_eq!(requests.state(&rates, now), ShardState::Open);
            assert_eq!(requests.next(&rates, CHUNK), Some(ONE), "the faster one");
            requests.sent(ONE, &rates, CHUNK, None, now);
            let due = now + LATE_BOUNDS.0;
            assert_eq!(requests.another(&mut rates, CHUNK, false, None, now), None, "not late yet");
            assert_eq!(requests.state(&rates, now), ShardState::Asked { late: false });
            let another = requests.another(&mut rates, CHUNK, false, None, due);
            assert_eq!(another, live.then_some(TWO));
            assert_eq!(requests.state(&rates, due), ShardState::Asked { late: !live });
            requests.answered();
            let left = if live { ShardState::Open } else { ShardState::Suspect };
            assert_eq!(requests.state(&rates, due), left);
            requests.sent(TWO, &rates, CHUNK, None, due);
            requests.answered();
            assert_eq!(requests.state(&rates, due), ShardState::Lost);
            assert_eq!(requests.repeated(), 1);
        }
    }

    #[test]
    fn late_request_hedges_to_a_suspect_as_last_resort() {
        let mut rates = Rates::from([(ONE, met(10))]);
        let now = Tick::from_secs(1);
        let mut requests = Requests::new(vec![source(ONE, true), source(TWO, false)]);
        requests.sent(ONE, &rates, CHUNK, None, now);
        let due = now + LATE_BOUNDS.0;
        assert_eq!(requests.another(&mut rates, CHUNK, true, None, now), None, "not late yet");
        assert_eq!(requests.another(&mut rates, CHUNK, true, None, due), Some(TWO));
    }

    #[test]
    fn a_silent_donor_costs_one_short_wait() {
        // Its whole answer would be late only after 600 ms.
        let mut rates = Rates::from([(ONE, met(200)), (TWO, met(300))]);
        let both = || vec![source(ONE, true), source(TWO, true)];
        let start = Tick::from_secs(1);
        let mut requests = Requests::new(both());
        requests.sent(ONE, &rates, CHUNK, Some(0), start);
        let mut ask = |heard, millis| {
            let now = start + Duration::from_millis(millis);
            let another = requests.another(&mut rates, CHUNK, false, heard, now);
            (another, requests.due().map(|due| (due - start).as_millis() as u64))
        };
        assert_eq!(ask(Some(1000), 149), (None, Some(150)), "nobody looked yet");
        assert_eq!(ask(Some(1000), 150), (None, Some(300)), "something came");
        assert_eq!(ask(Some(1000), 300), (Some(TWO), Some(300)), "nothing more came");
        assert!(rates[&ONE].is_silent());
        assert_eq!(pick(&both(), &rates, CHUNK, &[]), Some(TWO), "the next chunk does not wait");
        assert_eq!(pick(&both(), &rates, CHUNK, &[TWO]), Some(ONE), "it is better than none");
        let listen = |rates: &mut Rates, heard| rates.get_mut(&ONE).expect("met").listen(heard);
        listen(&mut rates, Some(1000));
        assert!(rates[&ONE].is_silent(), "nothing came since");
        listen(&mut rates, Some(1001));
        assert_eq!(pick(&both(), &rates, CHUNK, &[]), Some(ONE), "it is back");
    }

    #[test]
    fn a_connection_that_is_being_opened_is_not_silent() {
        let mut rates = Rates::from([(ONE, met(200)), (TWO, met(300))]);
        let mut requests = Requests::new(vec![source(ONE, true), source(TWO, true)]);
        let at = Tick::from_millis;
        requests.sent(ONE, &rates, CHUNK, None, at(0));
        for millis in (150..600).step_by(150) {
            assert_eq!(requests.another(&mut rates, CHUNK, false, None, at(millis)), None);
        }
        assert_eq!(requests.another(&mut rates, CHUNK, false, None, at(630)), Some(TWO), "late");
        assert!(!rates[&ONE].is_silent());
    }

    #[test]
    fn a_hot_donor_is_asked_only_where_it_is_faster() {
        let hot = ReadSource { load: 0.6, ..source(ONE, true) };
        let ready = source(TWO, true);
        let mut rates = Rates::from([(ONE, met(10)), (TWO, met(40))]);
        let picked = |rates: &Rates| pick(&[hot, ready], rates, CHUNK, &[]);
        assert_eq!(picked(&rates), Some(TWO), "it has room");
        assert_eq!(pick(&[hot], &rates, CHUNK, &[]), Some(ONE), "it has the only copy");
        while rates[&TWO].has_room(CHUNK) {
            rates.entry(TWO).or_default().sent(CHUNK, Tick::ZERO);
        }
        assert_eq!(picked(&rates), Some(ONE), "the other is full, and slower");
        rates.insert(ONE, met(2000));
        assert_eq!(picked(&rates), None, "waiting for the other takes less time");
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
