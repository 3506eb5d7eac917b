//! Repair as it is under way: the jobs that wait, and the tasks and bytes that each donor has of it.

use super::assess::{Findings, MAX_ENCODE, MAX_QUEUED};
use super::encodings::Encodings;
use super::job::{Encode, RepairJob};
use super::queue::{CopiesInSums, RepairQueue, RepairSums};
use crate::tasks::AskedTasks;
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::repair_plan::{Bucket, Helper};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The seconds of its budget for which a donor has tasks: it fetches them once a second, and must not run dry
/// between.
pub(super) const SECONDS_AHEAD: u64 = 3;
/// The bytes under way at one donor for an owner who needs space: more than any link carries between two heartbeats,
/// so that the link is the limit.
pub(super) const OVER_QUOTA_AHEAD: u64 = 2 << 30;
/// The most tasks under way at one donor.
pub(super) const MAX_UNDER_WAY: usize = 512;
/// The time for which a donor is left alone that failed again and again as a source or a target.
pub(super) const LEFT_ALONE: Duration = Duration::from_secs(30);
/// The time for which a donor is left alone after its first failure. It doubles with each failure that follows one.
const FIRST_REST: Duration = Duration::from_secs(2);
/// The number of failures, one after each rest, from which a donor counts as failing. A live donor that failed once or
/// twice is waited for, without a word.
const FAILING: u32 = 3;
/// The time without failures after which a donor's earlier failures are forgotten.
const FAILURES_KEPT: Duration = Duration::from_secs(120);
/// The window in which the rate is measured.
pub(super) const LATELY: Duration = Duration::from_secs(10);
/// The reason given for chunks that cannot be made because their sources are silent, or failed lately.
pub(super) const UNREACHABLE: &str = "no donor that can be reached has what they are made of";
/// The reason given for chunks that cannot be made because they fit nowhere.
pub(super) const NO_ROOM: &str = "no donor has room for them";
/// The reason why a change of redundancy waits though it would fit.
pub(super) const PROMISED_FIRST: &str = "what was promised lacks room, and takes it first";
/// The number of sources named in a task besides the first.
pub(super) const SPARE_SOURCES: usize = 2;

/// The bytes that a task reads at each donor.
pub(super) type Reads = Vec<(DonorId, u64)>;

/// The purpose of a task.
#[derive(Debug)]
pub enum Purpose {
    /// The task makes a copy or a chunk of a group.
    Make { unit: (VersionId, u32, bool), chunk: ChunkName, len: u32, reads: Reads },
    /// The task computes parity, as `asked` donors in all are told to.
    Encode { group: Box<Encode>, asked: usize, reads: Reads },
    /// The task has a donor read everything back.
    Scrub,
}

/// The state of repair: jobs that wait, tasks under way, budgets, and counts of the work done.
#[derive(Debug)]
pub struct Repairs {
    pub(super) queue: RepairQueue,
    /// The jobs that an owner waits for; they wait for no budget.
    pub(super) over_quota: RepairQueue,
    /// The sums over the chunks that the scan found lacking and that are in no queue.
    pub(super) beyond: RepairSums,
    pub encodings: Encodings,
    pub(super) stuck: Stuck,
    /// The chunks of changes of redundancy that could not be handed out; no chunk that was promised is among them.
    pub(super) changing_stuck: Stuck,
    pub(super) excess: u64,
    /// True if something is to be made that is in no queue.
    pub(super) more: bool,
    /// The reason of an admin's pause, while there is one.
    pub paused: Option<String>,
    pub tasks: AskedTasks,
    pub(super) under_way: BTreeSet<ChunkName>,
    /// The donors that make chunks of each unit, once for each chunk.
    pub(super) makers: BTreeMap<(VersionId, u32, bool), Vec<DonorId>>,
    /// The chunks that were made, each with when it was made: a scan that began before has not seen it.
    pub(super) finished: BTreeMap<ChunkName, Tick>,
    pub(super) pool: Bucket,
    pub(super) donor_rate: u64,
    pub(super) readers: BTreeMap<DonorId, Bucket>,
    pub(super) writers: BTreeMap<DonorId, Bucket>,
    /// The bytes that each donor was asked to read and has not confirmed.
    pub(super) reading: BTreeMap<DonorId, u64>,
    pub(super) writing: BTreeMap<DonorId, u64>,
    pub(super) resting: BTreeMap<DonorId, Rest>,
    pub(super) made: u64,
    pub(super) made_bytes: u64,
    pub(super) lately: VecDeque<(Tick, u64)>,
    pub(super) made_last: Option<Tick>,
    pub(super) scanned: Option<Tick>,
    /// The time at which the scan began that found the jobs which wait.
    pub(super) looked: Tick,
}

/// A rest of a donor that failed at what it was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rest {
    /// The time until which the donor is asked for nothing.
    until: Tick,
    /// The number of failures without a success between them, where all that fail during one rest count as one.
    failures: u32,
}

/// The chunks for which the scan found no source, or that could not be handed out since.
#[derive(Debug, Default)]
pub(super) struct Stuck {
    pub(super) chunks: u64,
    pub(super) why: Option<&'static str>,
    /// True if no donor had room for some of the chunks.
    pub(super) for_room: bool,
}

impl Stuck {
    pub(super) fn sourceless(chunks: u64) -> Self {
        Self { chunks, why: (chunks > 0).then_some(UNREACHABLE), for_room: false }
    }
}

/// The outcome of an attempt to hand a job out.
pub(super) enum Handed {
    Out,
    Later,
    Stuck(&'static str),
}

impl Repairs {
    /// Makes the state of repair when nothing is known to be lacking.
    pub fn new(pool_rate: u64, donor_rate: u64, now: Tick) -> Self {
        Self {
            queue: RepairQueue::default(),
            over_quota: RepairQueue::default(),
            beyond: RepairSums::default(),
            encodings: Encodings::default(),
            stuck: Stuck::default(),
            changing_stuck: Stuck::default(),
            excess: 0,
            more: false,
            paused: None,
            tasks: AskedTasks::default(),
            under_way: BTreeSet::new(),
            makers: BTreeMap::new(),
            finished: BTreeMap::new(),
            pool: Bucket::new(pool_rate, now),
            donor_rate,
            readers: BTreeMap::new(),
            writers: BTreeMap::new(),
            reading: BTreeMap::new(),
            writing: BTreeMap::new(),
            resting: BTreeMap::new(),
            made: 0,
            made_bytes: 0,
            lately: VecDeque::new(),
            made_last: None,
            scanned: None,
            looked: now,
        }
    }

    /// Takes over what a scan found that began at `began`.
    pub fn take_findings(&mut self, findings: &mut Findings, began: Tick, now: Tick) {
        self.finished.retain(|_, at| *at >= began);
        self.looked = began;
        self.queue = RepairQueue::new(std::mem::take(&mut findings.queue));
        self.over_quota = RepairQueue::new(std::mem::take(&mut findings.over_quota));
        self.encodings.take(std::mem::take(&mut findings.encode));
        let all = RepairSums {
            chunks: findings.lacking.clone(),
            bytes: findings.lacking_bytes,
            goal_bytes: findings.lacking_goal_bytes,
        };
        self.beyond = all.without(&self.waiting_sums(CopiesInSums::new(), |_| 0));
        self.stuck = Stuck::sourceless(findings.sourceless);
        self.changing_stuck = Stuck::sourceless(findings.sourceless_goals);
        self.more = findings.more;
        self.scanned = Some(now);
    }

    /// Sums up the jobs that wait to be handed out, without the copies that are `counted` already.
    pub(super) fn waiting_sums(
        &self,
        mut counted: CopiesInSums,
        making: impl Fn(&RepairJob) -> usize,
    ) -> RepairSums {
        let mut sums = RepairSums::default();
        self.over_quota.count(&mut sums, &mut counted, &making);
        self.queue.count(&mut sums, &mut counted, &making);
        sums.goal_bytes += self.encodings.waiting_bytes();
        sums
    }

    /// Sums up the chunks left to be made, without those under way. Chunks made since the scan looked are
    /// not left, whichever files still wait for the next scan to see them.
    pub(super) fn left(&self) -> RepairSums {
        let finished = self.finished.keys().filter(|chunk| self.is_finished(chunk));
        let first = |chunk: &ChunkName| [(*chunk, 0, false), (*chunk, 0, true)];
        let counted = self.under_way.iter().chain(finished).flat_map(first).collect();
        // A unit may wait for further copies of a chunk that is being made for it, which count apart.
        let making = |job: &RepairJob| match job.group {
            None => self.makers.get(&job.unit).map_or(0, Vec::len),
            Some(_) => 0,
        };
        self.waiting_sums(counted, making).with(&self.beyond)
    }

    /// Notes the number of copies in excess that wait to be deleted.
    pub fn note_excess(&mut self, excess: u64) {
        self.excess = excess;
    }

    /// Returns whether the last scan found copies in excess that were not deleted at once.
    pub fn has_excess(&self) -> bool {
        self.excess > 0
    }

    /// Returns whether more is to be made than is remembered and the queues are no more than half full: the next scan
    /// finds more while donors are busy with the rest.
    pub fn wants_more(&self) -> bool {
        let low = |queue: &RepairQueue| queue.len() <= MAX_QUEUED / 2;
        let few = self.encodings.waiting.len() <= MAX_ENCODE / 2;
        self.more && low(&self.queue) && low(&self.over_quota) && few
    }

    /// Returns whether the scan found no source for something, or something could not be handed out since.
    pub fn is_stuck(&self) -> bool {
        self.stuck.chunks + self.changing_stuck.chunks > 0
    }

    /// Notes that a chunk or a group cannot be made and is left to the next scan; `goal` where it is of the redundancy
    /// that a file is being changed to.
    pub(super) fn note_stuck(&mut self, why: &'static str, goal: bool) {
        let stuck = if goal { &mut self.changing_stuck } else { &mut self.stuck };
        stuck.chunks += 1;
        stuck.why = Some(why);
        stuck.for_room |= why == NO_ROOM;
    }

    /// Notes that changes of redundancy wait, and gives the reason where promised chunks lack room.
    pub(super) fn note_held_back(&mut self) {
        if self.stuck.for_room {
            self.changing_stuck.why.get_or_insert(PROMISED_FIRST);
        }
    }

    /// Returns whether promised redundancy is to be made, or lacks room: changes of redundancy must not take that room.
    pub(super) fn restores(&self) -> bool {
        self.stuck.for_room || self.queue.restores() || self.over_quota.restores()
    }

    /// Returns whether a donor failed lately at what it was asked for, so that it is asked for nothing now.
    pub fn is_left_alone(&self, donor: DonorId, now: Tick) -> bool {
        self.resting.get(&donor).is_some_and(|rest| now < rest.until)
    }

    /// Returns whether a donor is left alone because it failed again and again: what only this donor has cannot be
    /// made, as far as anybody knows.
    pub fn is_failing(&self, donor: DonorId, now: Tick) -> bool {
        self.resting.get(&donor).is_some_and(|rest| now < rest.until && rest.failures >= FAILING)
    }

    /// Leaves a donor alone for a while because it failed at something: for a moment at first, and longer each time.
    pub(super) fn let_rest(&mut self, donor: DonorId, now: Tick) {
        let rest = self.resting.entry(donor).or_insert(Rest { until: now, failures: 0 });
        if now >= rest.until {
            let doubled = FIRST_REST.saturating_mul(1 << rest.failures.min(8));
            rest.until = now + doubled.min(LEFT_ALONE);
            rest.failures += 1;
        }
    }

    /// Leaves a donor alone as one that failed again and again.
    pub(super) fn leave_alone(&mut self, donor: DonorId, now: Tick) {
        self.resting.insert(donor, Rest { until: now + LEFT_ALONE, failures: FAILING });
    }

    /// Forgets failures that were long ago.
    pub(super) fn forget_failures(&mut self, now: Tick) {
        self.resting.retain(|_, rest| now < rest.until + FAILURES_KEPT);
    }

    /// Ends leaving a donor alone, because it registered or did what it was asked for: its failures before say nothing
    /// of now.
    pub(crate) fn ask_again(&mut self, donor: DonorId) {
        self.resting.remove(&donor);
    }

    pub(super) fn waiting(&mut self, over_quota: bool) -> &mut RepairQueue {
        if over_quota { &mut self.over_quota } else { &mut self.queue }
    }

    /// Returns whether a chunk was made since the scan looked.
    pub(super) fn is_finished(&self, chunk: &ChunkName) -> bool {
        self.finished.get(chunk).is_some_and(|at| *at >= self.looked)
    }

    /// Returns how many bytes may be under way at one donor.
    pub(super) fn ahead(&self, over_quota: bool) -> u64 {
        if over_quota { OVER_QUOTA_AHEAD } else { self.donor_rate.saturating_mul(SECONDS_AHEAD) }
    }

    /// Notes on a taker whether it may be given more.
    pub(super) fn allow(&mut self, taker: &mut Helper, now: Tick, over_quota: bool) {
        let burden = self.writing.get(&taker.donor).copied().unwrap_or(0);
        let alone = self.is_left_alone(taker.donor, now);
        let few = self.tasks.count(taker.donor) < MAX_UNDER_WAY;
        let rate = self.donor_rate;
        let ready =
            over_quota || Self::bucket(&mut self.writers, taker.donor, rate, now).ready(now);
        taker.outstanding = burden;
        taker.allowed = ready && !alone && few && (burden == 0 || burden < self.ahead(over_quota));
    }

    /// Returns whether no donor is making a chunk or computing parity.
    pub fn idle(&self) -> bool {
        self.under_way.is_empty() && self.encodings.idle()
    }

    /// Returns whether a donor computes parity, or is about to.
    pub fn computes(&self, donor: DonorId) -> bool {
        let mut tasks = self.tasks.of(donor);
        tasks.any(|task| matches!(task.purpose, Purpose::Encode { .. }))
    }

    /// Returns whether nothing is left to be made, and a scan is still to see some of the chunks that were made.
    pub fn is_unseen(&self) -> bool {
        let waiting = !self.queue.is_empty() || !self.over_quota.is_empty();
        self.idle() && !waiting && self.finished.keys().any(|chunk| self.is_finished(chunk))
    }

    /// Notes that a task ended, whether it succeeded or not.
    pub(super) fn landed(&mut self, donor: DonorId, purpose: &Purpose) {
        let (reads, writes) = match purpose {
            Purpose::Make { unit, chunk, len, reads } => {
                self.under_way.remove(chunk);
                if let Some(makers) = self.makers.get_mut(unit) {
                    if let Some(at) = makers.iter().position(|maker| *maker == donor) {
                        makers.swap_remove(at);
                    }
                    if makers.is_empty() {
                        self.makers.remove(unit);
                    }
                }
                (reads, u64::from(*len))
            }
            Purpose::Encode { group, reads, .. } => {
                self.encodings.landed(group);
                (reads, group.parity_bytes())
            }
            Purpose::Scrub => return,
        };
        lower(&mut self.writing, donor, writes);
        reads.iter().for_each(|(source, bytes)| lower(&mut self.reading, *source, *bytes));
    }

    /// Notes that a chunk was made.
    pub(super) fn made(&mut self, chunk: ChunkName, len: u32, now: Tick) {
        self.finished.insert(chunk, now);
        self.made += 1;
        self.made_bytes += u64::from(len);
        self.wrote(u64::from(len), now);
    }

    /// Returns when something was made last.
    pub fn made_last(&self) -> Option<Tick> {
        self.made_last
    }

    /// Notes that `bytes` were made.
    pub(super) fn wrote(&mut self, bytes: u64, now: Tick) {
        self.made_last = Some(now);
        self.lately.push_back((now, bytes));
        self.forget_earlier(now);
    }

    pub(super) fn forget_earlier(&mut self, now: Tick) {
        while self.lately.front().is_some_and(|(at, _)| now.saturating_sub(*at) > LATELY) {
            self.lately.pop_front();
        }
    }

    /// Sets the most bytes a second that repair makes from now on, in all and at one donor.
    pub fn set_rates(&mut self, pool_rate: u64, donor_rate: u64) {
        self.pool.set_rate(pool_rate);
        self.donor_rate = donor_rate;
        let buckets = self.readers.values_mut().chain(self.writers.values_mut());
        buckets.for_each(|bucket| bucket.set_rate(donor_rate));
    }

    pub(super) fn rate(&mut self, now: Tick) -> u64 {
        self.forget_earlier(now);
        self.lately.iter().map(|(_, bytes)| bytes).sum::<u64>() / LATELY.as_secs()
    }

    pub(super) fn bucket(
        buckets: &mut BTreeMap<DonorId, Bucket>,
        donor: DonorId,
        rate: u64,
        now: Tick,
    ) -> &mut Bucket {
        buckets.entry(donor).or_insert_with(|| Bucket::new(rate, now))
    }
}

pub(super) fn lower(burdens: &mut BTreeMap<DonorId, u64>, donor: DonorId, bytes: u64) {
    if let Some(burden) = burdens.get_mut(&donor) {
        *burden = burden.saturating_sub(bytes);
    }
}
