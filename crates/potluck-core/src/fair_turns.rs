//! Fair turns at what a donor may use of its owner's machine.
//!
//! While there is a limit, whatever a donor reads or writes for others waits for a turn of at most [`SLICE`] bytes. Turns pass
//! token buckets of bytes and of requests, and go to the client that had the least so far, however many connections it
//! has: start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996). Repair counts as a client of a small weight, so
//! that it comes behind clients and still goes on.

use crate::clock::Tick;
use crate::ids::MemberId;
use crate::traffic::{BothWays, Direction};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The most bytes of one turn: 13 ms of a disk that moves 20 MB/s, after which a change of the limits is felt.
pub const SLICE: u32 = 256 << 10;
/// The time for which unused limits add up: long enough to make up for a late wake-up, and too short to be noticed.
const BURST: Duration = Duration::from_millis(50);
/// The bytes that a request counts for in addition to its own: about what a disk reads in the time of a short seek.
const REQUEST_COST: u64 = 64 << 10;
/// The factor by which a turn of repair counts for more than one of a client.
const REPAIR_COST: u64 = 8;

/// The parties among which turns are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flow {
    /// Programs of the machine itself. Limits of both directions together and of requests are for their sake, so those of one
    /// direction alone hold for them.
    Owner,
    /// The connections of a member, all together.
    Client(MemberId),
    /// The manager, which stores the metadata log.
    Manager,
    /// Copies between donors: repair, relocation and deferred mirrors.
    Repair,
}

impl Flow {
    /// Returns the factor by which a turn of this flow counts.
    fn cost(self) -> u64 {
        match self {
            Self::Owner | Self::Client(_) | Self::Manager => 1,
            Self::Repair => REPAIR_COST,
        }
    }
}

/// What one turn takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnCost {
    /// The direction in which the bytes go.
    pub direction: Direction,
    /// The bytes of the turn.
    pub bytes: u32,
    /// The number of requests that begin with the turn, 0 or 1.
    pub requests: u32,
}

/// The limits of what a donor moves for others. `None` stands for no limit; 0 lets nothing through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServiceLimits {
    /// The bytes a second of both directions together.
    pub both_bytes_s: Option<u64>,
    /// The bytes a second of each direction.
    pub each_bytes_s: BothWays<Option<u64>>,
    /// The requests a second.
    pub requests_s: Option<u64>,
}

impl ServiceLimits {
    /// Returns whether there is no limit at all.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// A bucket that fills at a rate. A turn is let through while the bucket is not in debt, and may put it into debt.
#[derive(Debug, Clone, Copy, Default)]
struct TokenBucket {
    /// The tokens a second; `None` without a limit.
    rate: Option<u64>,
    level: f64,
    filled_at: Tick,
}

impl TokenBucket {
    fn limit(&mut self, rate: Option<u64>, now: Tick) {
        self.fill(now);
        if self.rate.is_none() || rate.is_none() {
            self.level = 0.0;
        }
        self.rate = rate;
    }

    fn fill(&mut self, now: Tick) {
        let passed = now.saturating_sub(self.filled_at).as_secs_f64();
        self.filled_at = self.filled_at.max(now);
        let rate = self.rate.unwrap_or(0) as f64;
        self.level = (self.level + rate * passed).min(rate * BURST.as_secs_f64());
    }

    fn take(&mut self, tokens: u64) {
        if self.rate.is_some() {
            self.level -= tokens as f64;
        }
    }

    /// Returns the time until a turn is let through; `None` if that never happens at this rate. The bucket must have been
    /// filled.
    fn wait(&self) -> Option<Duration> {
        match self.rate {
            None => Some(Duration::ZERO),
            Some(0) => None,
            Some(_) if self.level >= 0.0 => Some(Duration::ZERO),
            // A microsecond more, so that rounding does not wake the waiter too early again and again.
            Some(rate) => Duration::try_from_secs_f64(-self.level / rate as f64 + 1e-6).ok(),
        }
    }
}

/// Who is next.
#[derive(Debug, PartialEq, Eq)]
pub enum NextTurn<W> {
    /// This waiter's turn begins now.
    Begins(W),
    /// The next turn begins at this time, unless somebody joins or the limits change.
    At(Tick),
    /// Nobody waits, or nothing is let through.
    Nobody,
}

/// A turn that is waited for.
#[derive(Debug)]
struct Waiting<W> {
    cost: TurnCost,
    /// The number of turns that were asked for before this one.
    number: u64,
    waiter: W,
}

/// The turns of one flow.
#[derive(Debug)]
struct FlowTurns<W> {
    waiting: BothWays<VecDeque<Waiting<W>>>,
    /// The virtual time at which the next turn of the flow is due: what the flow had so far, as far as it counts.
    due: u64,
}

impl<W> FlowTurns<W> {
    fn is_idle(&self) -> bool {
        self.waiting.read.is_empty() && self.waiting.written.is_empty()
    }
}

/// The turns that are waited for, and the limits that they wait for. `W` stands for a waiter.
#[derive(Debug)]
pub struct FairTurns<W> {
    flows: BTreeMap<Flow, FlowTurns<W>>,
    /// The virtual time: when the turn that began last was due.
    virtual_time: u64,
    joined: u64,
    both: TokenBucket,
    each: BothWays<TokenBucket>,
    requests: TokenBucket,
}

impl<W> Default for FairTurns<W> {
    /// Makes turns without limits, for which nobody waits.
    fn default() -> Self {
        let (both, each, requests) = Default::default();
        Self { flows: BTreeMap::new(), virtual_time: 0, joined: 0, both, each, requests }
    }
}

impl<W> FairTurns<W> {
    /// Sets the limits from now on.
    pub fn limit(&mut self, limits: ServiceLimits, now: Tick) {
        self.both.limit(limits.both_bytes_s, now);
        for direction in [Direction::Read, Direction::Write] {
            self.each.of_mut(direction).limit(*limits.each_bytes_s.of(direction), now);
        }
        self.requests.limit(limits.requests_s, now);
    }

    /// Lets a waiter of `flow` wait for a turn.
    pub fn join(&mut self, flow: Flow, cost: TurnCost, waiter: W) {
        let none = || FlowTurns { waiting: BothWays::default(), due: 0 };
        let turns = self.flows.entry(flow).or_insert_with(none);
        if turns.is_idle() {
            // A flow that asked for nothing saves up nothing.
            turns.due = turns.due.max(self.virtual_time);
        }
        let number = self.joined;
        self.joined += 1;
        turns.waiting.of_mut(cost.direction).push_back(Waiting { cost, number, waiter });
    }

    /// Lets the next turn begin, if it may now. Waiters that are not `there` any more are passed over.
    pub fn next(&mut self, now: Tick, there: impl Fn(&W) -> bool) -> NextTurn<W> {
        self.both.fill(now);
        self.each.read.fill(now);
        self.each.written.fill(now);
        self.requests.fill(now);
        let mut first: Option<(u64, u64, Flow, Direction)> = None;
        let mut soonest: Option<Duration> = None;
        for (flow, turns) in &mut self.flows {
            for direction in [Direction::Read, Direction::Write] {
                let waiting = turns.waiting.of_mut(direction);
                while waiting.front().is_some_and(|front| !there(&front.waiter)) {
                    waiting.pop_front();
                }
                let Some(front) = waiting.front() else { continue };
                let for_owner = *flow == Flow::Owner;
                let both = (!for_owner).then_some(&self.both);
                let requests = (!for_owner && front.cost.requests > 0).then_some(&self.requests);
                let buckets = both.into_iter().chain(requests).chain([self.each.of(direction)]);
                let waits = buckets.map(TokenBucket::wait);
                let wait = waits.reduce(|a, b| Some(a?.max(b?))).flatten();
                match wait {
                    Some(Duration::ZERO) => {
                        let place = (turns.due, front.number, *flow, direction);
                        first = Some(first.map_or(place, |first| first.min(place)));
                    }
                    Some(wait) => soonest = Some(soonest.map_or(wait, |soonest| soonest.min(wait))),
                    None => {}
                }
            }
        }
        if self.is_idle() {
            // Nobody competes for the limits, so what each had so far is forgotten.
            self.flows.clear();
        }
        let Some((due, _, flow, direction)) = first else {
            return soonest.map_or(NextTurn::Nobody, |wait| NextTurn::At(now + wait));
        };
        let turns = self.flows.get_mut(&flow).expect("it was found above");
        let turn = turns.waiting.of_mut(direction).pop_front().expect("it was found above");
        let (bytes, requests) = (u64::from(turn.cost.bytes), u64::from(turn.cost.requests));
        self.each.of_mut(direction).take(bytes);
        if flow != Flow::Owner {
            self.both.take(bytes);
            self.requests.take(requests);
        }
        self.virtual_time = due;
        turns.due = due + (bytes + requests * REQUEST_COST) * flow.cost();
        NextTurn::Begins(turn.waiter)
    }

    /// Returns whether nobody waits.
    pub fn is_idle(&self) -> bool {
        self.flows.values().all(FlowTurns::is_idle)
    }

    /// Removes everybody who waits, so that nobody has a turn.
    pub fn clear(&mut self) {
        self.flows.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn cost(direction: Direction) -> TurnCost {
        TurnCost { direction, bytes: SLICE, requests: 0 }
    }

    fn limited(both: u64) -> FairTurns<Flow> {
        let mut turns = FairTurns::default();
        turns.limit(ServiceLimits { both_bytes_s: Some(both), ..Default::default() }, Tick::ZERO);
        turns
    }

    /// Serves `connections` of each flow, each of which wants its next slice at once, for `time`; returns the bytes of each.
    fn serve(
        turns: &mut FairTurns<Flow>,
        connections: &[(Flow, Direction, usize)],
        time: Duration,
    ) -> BTreeMap<Flow, u64> {
        let mut served = BTreeMap::new();
        let direction_of: BTreeMap<Flow, Direction> =
            connections.iter().map(|(flow, direction, _)| (*flow, *direction)).collect();
        for (flow, direction, count) in connections {
            (0..*count).for_each(|_| turns.join(*flow, cost(*direction), *flow));
        }
        let mut now = Tick::ZERO;
        while now < time {
            match turns.next(now, |_| true) {
                NextTurn::Begins(flow) => {
                    *served.entry(flow).or_default() += u64::from(SLICE);
                    turns.join(flow, cost(direction_of[&flow]), flow);
                }
                NextTurn::At(then) => {
                    assert!(then > now, "no turn begins at {now:?}, so the next is later");
                    now = then;
                }
                NextTurn::Nobody => break,
            }
        }
        served
    }

    #[test]
    fn client_of_sixteen_connections_gets_what_one_gets() {
        let (many, one) = (Flow::Client(MemberId(1)), Flow::Client(MemberId(2)));
        let mut turns = limited(20 * MIB);
        let served = serve(
            &mut turns,
            &[(many, Direction::Read, 16), (one, Direction::Read, 1)],
            Duration::from_secs(10),
        );
        let sum: u64 = served.values().sum();
        assert!(sum.abs_diff(200 * MIB) <= 2 * MIB, "{served:?}");
        assert!(served[&many].abs_diff(served[&one]) <= u64::from(SLICE), "{served:?}");
    }

    #[test]
    fn repair_comes_behind_clients_and_still_goes_on() {
        let client = Flow::Client(MemberId(1));
        let mut turns = limited(9 * MIB);
        let both = [(client, Direction::Read, 1), (Flow::Repair, Direction::Write, 4)];
        let served = serve(&mut turns, &both, Duration::from_secs(10));
        assert!(served[&client].abs_diff(80 * MIB) <= MIB, "{served:?}");
        assert!(served[&Flow::Repair].abs_diff(10 * MIB) <= MIB, "{served:?}");
        let alone = serve(&mut limited(9 * MIB), &both[1..], Duration::from_secs(10));
        assert!(alone[&Flow::Repair].abs_diff(90 * MIB) <= MIB, "{alone:?}");
    }

    #[test]
    fn owners_programs_do_not_wait_for_the_owners_sake() {
        let mut turns = limited(MIB);
        turns.join(Flow::Client(MemberId(1)), cost(Direction::Read), Flow::Manager);
        assert_eq!(turns.next(Tick::ZERO, |_| true), NextTurn::Begins(Flow::Manager));
        for _ in 0..100 {
            turns.join(Flow::Owner, cost(Direction::Read), Flow::Owner);
            assert_eq!(turns.next(Tick::ZERO, |_| true), NextTurn::Begins(Flow::Owner));
        }
    }

    #[test]
    fn full_direction_does_not_hold_up_the_other() {
        let (reader, writer) = (Flow::Client(MemberId(1)), Flow::Client(MemberId(2)));
        let mut turns = FairTurns::default();
        let each = BothWays { read: Some(2 * MIB), written: Some(8 * MIB) };
        turns.limit(ServiceLimits { each_bytes_s: each, ..Default::default() }, Tick::ZERO);
        let both = [(reader, Direction::Read, 4), (writer, Direction::Write, 1)];
        let served = serve(&mut turns, &both, Duration::from_secs(10));
        assert!(served[&reader].abs_diff(20 * MIB) <= MIB, "{served:?}");
        assert!(served[&writer].abs_diff(80 * MIB) <= MIB, "{served:?}");
    }

    #[test]
    fn small_requests_are_limited_by_their_number() {
        let client = Flow::Client(MemberId(1));
        let mut turns = FairTurns::default();
        turns.limit(ServiceLimits { requests_s: Some(100), ..Default::default() }, Tick::ZERO);
        let small = TurnCost { direction: Direction::Read, bytes: 1, requests: 1 };
        let (mut now, mut served) = (Tick::ZERO, 0);
        turns.join(client, small, ());
        while now < Duration::from_secs(10) {
            match turns.next(now, |()| true) {
                NextTurn::Begins(()) => {
                    served += 1;
                    turns.join(client, small, ());
                }
                NextTurn::At(then) => now = then,
                NextTurn::Nobody => unreachable!("somebody waits"),
            }
        }
        assert!((1000..=1010).contains(&served), "{served}");
    }

    #[test]
    fn limit_of_zero_lets_nothing_through_until_it_is_lifted() {
        let client = Flow::Client(MemberId(1));
        let mut turns = limited(0);
        turns.join(client, cost(Direction::Read), client);
        let later = Duration::from_secs(1000);
        assert_eq!(turns.next(later, |_| true), NextTurn::Nobody);
        turns.limit(ServiceLimits::default(), later);
        assert_eq!(turns.next(later, |_| true), NextTurn::Begins(client));
        assert_eq!(turns.next(later, |_| true), NextTurn::Nobody);
    }

    #[test]
    fn waiters_that_left_take_nothing_of_the_limits() {
        let client = Flow::Client(MemberId(1));
        let mut turns = FairTurns::default();
        let limits = ServiceLimits { both_bytes_s: Some(MIB), ..Default::default() };
        turns.limit(limits, Tick::ZERO);
        (0..100).for_each(|number| turns.join(client, cost(Direction::Read), number));
        let there = |number: &i32| *number >= 98;
        assert_eq!(turns.next(Tick::ZERO, there), NextTurn::Begins(98));
        let NextTurn::At(then) = turns.next(Tick::ZERO, there) else { panic!("it is limited") };
        assert!(then <= Duration::from_millis(251), "{then:?}");
        assert_eq!(turns.next(then, there), NextTurn::Begins(99));
        assert_eq!(turns.next(then, there), NextTurn::Nobody);
        assert!(turns.flows.len() <= 1, "a flow for which nobody waits is forgotten in time");
    }
}
