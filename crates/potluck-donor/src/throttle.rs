//! The throttle of a donor: the limits in force, and the turns of those who wait for them.
//!
//! The limits are the owner's own, in each direction, and the budget of the governor over both. Without a limit a
//! request asks one atomic flag and nothing else, and a chunk leaves by one call. With one, bodies go in slices, each of
//! which waits for its turn ([`FairTurns`]). One task hands out the turns, so that threads which wait sleep until theirs.

use potluck_core::clock::{SharedClock, Tick};
use potluck_core::fair_turns::{FairTurns, Flow, NextTurn, SLICE, ServiceLimits, TurnCost};
use potluck_core::governor::Yielding;
use potluck_core::traffic::BothWays;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// The most bytes of a call while there is no limit: a chunk of the default size. What a longer call moves after a
/// limit was set would be felt.
const UNLIMITED_SLICE: u64 = 4 << 20;
/// The bytes for which a budget allows one request: about what a disk reads in the time of a seek.
const BYTES_PER_REQUEST: u64 = 64 << 10;

/// The limits that the owner sets, whatever the governor finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OwnerThrottle {
    /// The most bytes a second sent to readers (`read`) and taken from writers (`written`); `None` for no limit.
    pub bytes_s: BothWays<Option<u64>>,
    /// True while nothing is read or written for others at all.
    pub paused: bool,
}

/// The limits of a donor's throttle as they are now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThrottleInForce {
    /// The limits of the owner.
    pub owner: OwnerThrottle,
    /// Why the governor limits both directions together, and to how much; `None` while it need not.
    pub yielding: Option<Yielding>,
}

impl ThrottleInForce {
    /// Returns the limits of turns that follow.
    fn of_turns(&self) -> ServiceLimits {
        let budget = self.yielding.map(|yielding| yielding.budget);
        ServiceLimits {
            both_bytes_s: if self.owner.paused { Some(0) } else { budget },
            each_bytes_s: self.owner.bytes_s,
            requests_s: budget.map(|bytes| bytes.div_ceil(BYTES_PER_REQUEST)),
        }
    }

    /// Returns the bytes a second that can be had in each direction at most; `None` for no limit.
    pub fn limits(&self) -> BothWays<Option<u64>> {
        let both = self.of_turns().both_bytes_s;
        self.owner.bytes_s.map(|own| match (*own, both) {
            (Some(own), Some(both)) => Some(own.min(both)),
            (own, both) => own.or(both),
        })
    }
}

/// The times that throttle has cost, since the process began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThrottledTime {
    /// The time in which the governor had a limit in force.
    pub yielded: Duration,
    /// The longest time for which one turn was waited for.
    pub longest_wait: Duration,
}

/// The owner has paused the donor, so nothing is read or written for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PausedByOwner;

impl From<PausedByOwner> for io::Error {
    fn from(_: PausedByOwner) -> Self {
        Self::new(io::ErrorKind::ConnectionAborted, "the owner has paused the donor")
    }
}

/// The throttle of a donor.
pub(crate) struct Throttle {
    clock: SharedClock,
    in_force: Mutex<ThrottleInForce>,
    /// True while there is any limit, which requests ask before they wait for anything.
    limited: AtomicBool,
    turns: Mutex<FairTurns<oneshot::Sender<()>>>,
    /// Wakes the task that hands out turns.
    changed: Notify,
    times: Mutex<ThrottledTimes>,
    /// The bytes that were moved for others, counted as they go.
    moved: AtomicU64,
}

#[derive(Default)]
struct ThrottledTimes {
    so_far: ThrottledTime,
    /// The moment up to which time with a budget in force is counted, while there is one.
    yielding_since: Option<Tick>,
}

impl ThrottledTimes {
    fn count(&mut self, now: Tick) {
        if let Some(since) = &mut self.yielding_since {
            self.so_far.yielded += now.saturating_sub(*since);
            *since = now;
        }
    }
}

impl Throttle {
    /// Makes a throttle without limits.
    pub fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            in_force: Mutex::default(),
            limited: AtomicBool::new(false),
            turns: Mutex::default(),
            changed: Notify::new(),
            times: Mutex::default(),
            moved: AtomicU64::new(0),
        }
    }

    fn turns(&self) -> MutexGuard<'_, FairTurns<oneshot::Sender<()>>> {
        self.turns.lock().expect("no holder panics")
    }

    fn times(&self) -> MutexGuard<'_, ThrottledTimes> {
        self.times.lock().expect("no holder panics")
    }

    /// Sets the owner's limits from now on. Whoever waits for a turn when the owner pauses is refused.
    pub fn set_owner_throttle(&self, owner: OwnerThrottle) {
        self.change(|now| now.owner = owner);
    }

    /// Sets what the governor decided, from now on.
    pub fn set_yielding(&self, yielding: Option<Yielding>) {
        self.change(|now| now.yielding = yielding);
        let (mut times, now) = (self.times(), self.clock.now());
        times.count(now);
        times.yielding_since = yielding.map(|_| now);
    }

    fn change(&self, how: impl FnOnce(&mut ThrottleInForce)) {
        let mut in_force = self.in_force.lock().expect("no holder panics");
        let before = *in_force;
        how(&mut in_force);
        let now = *in_force;
        if now == before {
            return;
        }
        let limits = now.of_turns();
        let mut turns = self.turns();
        turns.limit(limits, self.clock.now());
        self.limited.store(!limits.is_none(), Ordering::Release);
        if now.owner.paused {
            turns.clear();
        }
        drop((turns, in_force));
        self.changed.notify_one();
    }

    /// Returns the limits as they are now.
    pub fn in_force(&self) -> ThrottleInForce {
        *self.in_force.lock().expect("no holder panics")
    }

    /// Returns the times that throttle has cost so far.
    pub fn throttled_time(&self) -> ThrottledTime {
        let mut times = self.times();
        times.count(self.clock.now());
        times.so_far
    }

    /// Notes that so many bytes were moved. A chunk is counted slice by slice: what a byte costs is judged from a quarter of a
    /// second, in which a chunk may only begin.
    pub fn moved(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes that were moved in both directions since the process began.
    pub fn moved_so_far(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Returns whether turns must be waited for.
    pub fn is_limited(&self) -> bool {
        self.limited.load(Ordering::Acquire)
    }

    /// Returns how many of `left` bytes the next turn may take.
    pub fn slice(&self, left: u64) -> u64 {
        left.min(if self.is_limited() { SLICE.into() } else { UNLIMITED_SLICE })
    }

    /// Waits for a turn, if there is any limit on this flow.
    ///
    /// Errors: [`PausedByOwner`] when the owner has paused the donor, or does so meanwhile.
    pub async fn turn(&self, flow: Flow, cost: TurnCost) -> Result<(), PausedByOwner> {
        if !self.is_limited() {
            return Ok(());
        }
        let began = self.clock.now();
        let turn = {
            // While the limits are locked they do not change, so that nobody waits by earlier ones.
            let in_force = self.in_force.lock().expect("no holder panics");
            if in_force.owner.paused {
                return Err(PausedByOwner);
            }
            let is_free = match flow {
                Flow::Owner => in_force.owner.bytes_s.of(cost.direction).is_none(),
                _ => in_force.of_turns().is_none(),
            };
            if is_free {
                return Ok(());
            }
            let (begin, turn) = oneshot::channel();
            self.turns().join(flow, cost, begin);
            turn
        };
        self.changed.notify_one();
        let begun = turn.await.map_err(|_| PausedByOwner);
        let waited = self.clock.now().saturating_sub(began);
        let mut times = self.times();
        times.so_far.longest_wait = times.so_far.longest_wait.max(waited);
        begun
    }

    /// Hands out turns until the future is dropped.
    pub async fn hand_out_for_ever(&self) {
        loop {
            let next = self.turns().next(self.clock.now(), |begin| !begin.is_closed());
            match next {
                // Whoever left in this very moment has taken a turn that another could have had.
                NextTurn::Begins(begin) => drop(begin.send(())),
                NextTurn::At(then) => {
                    let wait = then.saturating_sub(self.clock.now());
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        () = self.changed.notified() => {}
                    }
                }
                NextTurn::Nobody => self.changed.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::clock::SystemClock;
    use potluck_core::governor::OwnerResource;
    use potluck_core::ids::MemberId;
    use potluck_core::traffic::Direction;
    use std::sync::Arc;

    const READ: TurnCost = TurnCost { direction: Direction::Read, bytes: SLICE, requests: 1 };

    fn throttle() -> Arc<Throttle> {
        let throttle = Arc::new(Throttle::new(Arc::new(SystemClock::default())));
        let handing_out = Arc::clone(&throttle);
        tokio::spawn(async move { handing_out.hand_out_for_ever().await });
        throttle
    }

    fn yielding(budget: u64) -> Yielding {
        Yielding { to: OwnerResource::Disk, others_percent: 50, budget }
    }

    fn client(number: u32) -> Flow {
        Flow::Client(MemberId(number))
    }

    #[tokio::test]
    async fn without_limits_a_default_chunk_is_one_slice_and_nobody_waits() {
        let throttle = Throttle::new(Arc::new(SystemClock::default()));
        assert_eq!(throttle.slice(4 << 20), 4 << 20);
        assert_eq!(throttle.turn(client(1), READ).await, Ok(()), "though nobody hands out turns");
    }

    #[tokio::test]
    async fn a_pause_refuses_who_waits_and_who_comes() {
        let throttle = throttle();
        throttle.set_yielding(Some(yielding(1)));
        throttle.turn(client(1), READ).await.expect("the bucket is not in debt yet");
        let waiting = Arc::clone(&throttle);
        let waiting = tokio::spawn(async move { waiting.turn(client(1), READ).await });
        while throttle.turns().is_idle() {
            tokio::task::yield_now().await;
        }
        throttle.set_owner_throttle(OwnerThrottle { paused: true, ..OwnerThrottle::default() });
        assert_eq!(waiting.await.expect("no panic"), Err(PausedByOwner));
        assert_eq!(throttle.turn(client(2), READ).await, Err(PausedByOwner));
        throttle.set_owner_throttle(OwnerThrottle::default());
        throttle.set_yielding(None);
        assert_eq!(throttle.turn(client(2), READ).await, Ok(()));
        assert!(!throttle.is_limited() && throttle.throttled_time().yielded > Duration::ZERO);
    }

    #[tokio::test]
    async fn a_lifted_limit_lets_all_go_on_at_once() {
        let throttle = throttle();
        throttle.set_owner_throttle(OwnerThrottle {
            bytes_s: BothWays { read: Some(1), written: None },
            paused: false,
        });
        let turns: Vec<_> = (0..20)
            .map(|number| {
                let throttle = Arc::clone(&throttle);
                tokio::spawn(async move { throttle.turn(client(number), READ).await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert_eq!(throttle.in_force().limits(), BothWays { read: Some(1), written: None });
        throttle.set_owner_throttle(OwnerThrottle::default());
        for turn in turns {
            assert_eq!(turn.await.expect("no panic"), Ok(()));
        }
    }
}
