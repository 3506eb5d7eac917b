//! Repair as it is under way: what waits to be made, who makes it, and at which rate.

mod encoding;
mod state;

pub use encoding::Group;

use super::queue::{Counted, Queue, Sums};
use super::{Encode, Findings, Job, ShardAt};
use crate::Pool;
use crate::donors::Contact;
use crate::tasks::Tasks;
use encoding::Encodings;
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::policy::AckLevel;
use potluck_core::repair_plan::{Bucket, Helper, NoTarget, by_burden, target};
use potluck_wire::control::{Shard, Source, Work};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// A donor has tasks for so many seconds of its budget: it fetches them once a second, and must
/// not run dry between.
const SECONDS_AHEAD: u64 = 3;
/// Bytes under way at one donor for an owner who needs space: more than any link carries between
/// two heartbeats, so that the link is the limit.
const OVER_QUOTA_AHEAD: u64 = 2 << 30;
/// Tasks under way at one donor.
const MAX_UNDER_WAY: usize = 512;
/// Who failed as a source or a target is left alone for so long.
const LEFT_ALONE: Duration = Duration::from_secs(30);
/// The window in which the rate is measured.
const LATELY: Duration = Duration::from_secs(10);
/// Why something is stuck whose sources are silent, or failed lately.
const UNREACHABLE: &str = "no donor that can be reached has what they are made of";
/// Why something is stuck that fits nowhere.
const NO_ROOM: &str = "no donor has room for them";
/// Why what files are being changed to waits though it would fit.
const PROMISED_FIRST: &str = "what was promised lacks room, and takes it first";
/// Sources named in a task besides the first.
const SPARE_SOURCES: usize = 2;

/// Bytes that tasks read at donors.
type Reads = Vec<(DonorId, u64)>;

/// What a task is for.
#[derive(Debug)]
pub enum Purpose {
    /// To make a copy or a chunk of a group.
    Make { unit: (VersionId, u32, bool), chunk: ChunkName, len: u32, reads: Reads },
    /// To compute parity; so many donors are asked in all.
    Encode { group: Box<Encode>, asked: usize, reads: Reads },
    /// To test whether a donor sends a chunk as it is.
    Probe { chunk: ChunkName, suspect: DonorId },
    /// To compare a part of a chunk among its holders.
    Audit { chunk: ChunkName, len: u32, key: Digest },
    /// To read everything back.
    Scrub,
}

/// What repair knows.
#[derive(Debug)]
pub struct Repairs {
    queue: Queue,
    /// Jobs that an owner waits for; they wait for no budget.
    over_quota: Queue,
    /// What the scan found besides these and could not remember.
    beyond: Sums,
    pub encodings: Encodings,
    stuck: Stuck,
    /// The same of what files are being changed to: nothing that was promised lacks.
    changing_stuck: Stuck,
    excess: u64,
    /// Whether something is to be made that is in no queue.
    more: bool,
    /// An admin's pause.
    pub paused: Option<String>,
    pub tasks: Tasks<Purpose>,
    under_way: BTreeSet<ChunkName>,
    /// Donors that make chunks of a unit, once for each chunk.
    makers: BTreeMap<(VersionId, u32, bool), Vec<DonorId>>,
    /// Chunks made, and when: a scan that began before has not seen them.
    finished: BTreeMap<ChunkName, Tick>,
    pool: Bucket,
    donor_rate: u64,
    readers: BTreeMap<DonorId, Bucket>,
    writers: BTreeMap<DonorId, Bucket>,
    /// Bytes asked of each and not confirmed.
    reading: BTreeMap<DonorId, u64>,
    writing: BTreeMap<DonorId, u64>,
    left_alone: BTreeMap<DonorId, Tick>,
    made: u64,
    made_bytes: u64,
    lately: VecDeque<(Tick, u64)>,
    made_last: Option<Tick>,
    scanned: Option<Tick>,
    /// When the scan began that found what waits.
    looked: Tick,
}

/// What could not be handed out since the scan looked.
#[derive(Debug, Default)]
struct Stuck {
    chunks: u64,
    why: Option<&'static str>,
    /// Whether some of it found no donor with room.
    for_room: bool,
}

impl Stuck {
    fn sourceless(chunks: u64) -> Self {
        Self { chunks, why: (chunks > 0).then_some(UNREACHABLE), for_room: false }
    }
}

/// What became of an attempt to hand a job out.
enum Handed {
    Out,
    Later,
    Stuck(&'static str),
}

impl Repairs {
    /// Nothing to do yet.
    pub fn new(pool_rate: u64, donor_rate: u64, now: Tick) -> Self {
        Self {
            queue: Queue::default(),
            over_quota: Queue::default(),
            beyond: Sums::default(),
            encodings: Encodings::default(),
            stuck: Stuck::default(),
            changing_stuck: Stuck::default(),
            excess: 0,
            more: false,
            paused: None,
            tasks: Tasks::default(),
            under_way: BTreeSet::new(),
            makers: BTreeMap::new(),
            finished: BTreeMap::new(),
            pool: Bucket::new(pool_rate, now),
            donor_rate,
            readers: BTreeMap::new(),
            writers: BTreeMap::new(),
            reading: BTreeMap::new(),
            writing: BTreeMap::new(),
            left_alone: BTreeMap::new(),
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
        self.queue = Queue::new(std::mem::take(&mut findings.queue));
        self.over_quota = Queue::new(std::mem::take(&mut findings.over_quota));
        self.encodings.take(std::mem::take(&mut findings.encode));
        let all = Sums {
            chunks: findings.lacking.clone(),
            bytes: findings.lacking_bytes,
            goal_bytes: findings.lacking_goal_bytes,
        };
        self.beyond = all.without(&self.waiting_sums(Counted::new(), |_| 0));
        self.stuck = Stuck::sourceless(findings.sourceless);
        self.changing_stuck = Stuck::sourceless(findings.sourceless_goals);
        self.more = findings.more;
        self.scanned = Some(now);
    }

    /// What waits to be handed out comes to, besides what is `counted` already.
    fn waiting_sums(&self, mut counted: Counted, making: impl Fn(&Job) -> usize) -> Sums {
        let mut sums = Sums::default();
        self.over_quota.count(&mut sums, &mut counted, &making);
        self.queue.count(&mut sums, &mut counted, &making);
        sums.goal_bytes += self.encodings.waiting_bytes();
        sums
    }

    /// What is left to be made, without what is under way: what was made since the scan looked is
    /// not, whichever files still wait for the next to see it.
    fn left(&self) -> Sums {
        let finished = self.finished.keys().filter(|chunk| self.is_finished(chunk));
        let first = |chunk: &ChunkName| [(*chunk, 0, false), (*chunk, 0, true)];
        let counted = self.under_way.iter().chain(finished).flat_map(first).collect();
        // A unit's own copies under way are others than those it still waits for.
        let making = |job: &Job| match job.group {
            None => self.makers.get(&job.unit).map_or(0, Vec::len),
            Some(_) => 0,
        };
        self.waiting_sums(counted, making).with(&self.beyond)
    }

    /// Copies in excess that wait to be deleted.
    pub fn note_excess(&mut self, excess: u64) {
        self.excess = excess;
    }

    /// Whether all that the last scan found is handed out, and there was more.
    pub fn wants_more(&self) -> bool {
        let waiting = &self.encodings.waiting;
        self.more && self.queue.is_empty() && self.over_quota.is_empty() && waiting.is_empty()
    }

    /// Whether something could not be handed out since the scan looked.
    pub fn is_stuck(&self) -> bool {
        self.stuck.chunks + self.changing_stuck.chunks > 0
    }

    /// Something waits for the next scan, and holds up nobody until then; `goal` where it is of
    /// what a file is being changed to.
    fn note_stuck(&mut self, why: &'static str, goal: bool) {
        let stuck = if goal { &mut self.changing_stuck } else { &mut self.stuck };
        stuck.chunks += 1;
        stuck.why = Some(why);
        stuck.for_room |= why == NO_ROOM;
    }

    /// What files are being changed to waits: said where that may take until somebody makes room.
    fn note_held_back(&mut self) {
        if self.stuck.for_room {
            self.changing_stuck.why.get_or_insert(PROMISED_FIRST);
        }
    }

    /// Whether something that was promised is to be made, or lacks room: what files are being
    /// changed to must not take the room of that.
    fn restores(&self) -> bool {
        self.stuck.for_room || self.queue.restores() || self.over_quota.restores()
    }

    /// Whether a donor failed lately at what it was asked for.
    pub fn is_left_alone(&self, donor: DonorId, now: Tick) -> bool {
        self.left_alone.get(&donor).is_some_and(|until| now < *until)
    }

    /// A donor registered: what it failed at before says nothing of now.
    pub fn ask_again(&mut self, donor: DonorId) {
        self.left_alone.remove(&donor);
    }

    fn waiting(&mut self, over_quota: bool) -> &mut Queue {
        if over_quota { &mut self.over_quota } else { &mut self.queue }
    }

    /// Whether a chunk was made since the scan looked.
    fn is_finished(&self, chunk: &ChunkName) -> bool {
        self.finished.get(chunk).is_some_and(|at| *at >= self.looked)
    }

    /// Bytes that may be under way at one donor.
    fn ahead(&self, over_quota: bool) -> u64 {
        if over_quota { OVER_QUOTA_AHEAD } else { self.donor_rate.saturating_mul(SECONDS_AHEAD) }
    }

    /// Says of a taker whether it may be given more.
    fn allow(&mut self, taker: &mut Helper, now: Tick, over_quota: bool) {
        let burden = self.writing.get(&taker.donor).copied().unwrap_or(0);
        let alone = self.is_left_alone(taker.donor, now);
        let few = self.tasks.count(taker.donor) < MAX_UNDER_WAY;
        let rate = self.donor_rate;
        let ready =
            over_quota || Self::bucket(&mut self.writers, taker.donor, rate, now).ready(now);
        taker.outstanding = burden;
        taker.allowed = ready && !alone && few && (burden == 0 || burden < self.ahead(over_quota));
    }

    /// Whether nothing is under way.
    pub fn idle(&self) -> bool {
        self.under_way.is_empty() && self.encodings.idle()
    }

    /// Whether a donor computes parity, or is about to.
    pub fn computes(&self, donor: DonorId) -> bool {
        let mut tasks = self.tasks.of(donor);
        tasks.any(|task| matches!(task.purpose, Purpose::Encode { .. }))
    }

    /// Whether nothing is left to be made, and what was made last is still to be seen by a scan.
    pub fn is_unseen(&self) -> bool {
        let waiting = !self.queue.is_empty() || !self.over_quota.is_empty();
        self.idle() && !waiting && self.finished.keys().any(|chunk| self.is_finished(chunk))
    }

    /// A task ended, well or not.
    fn landed(&mut self, donor: DonorId, purpose: &Purpose) {
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
            Purpose::Probe { .. } | Purpose::Audit { .. } | Purpose::Scrub => return,
        };
        lower(&mut self.writing, donor, writes);
        reads.iter().for_each(|(source, bytes)| lower(&mut self.reading, *source, *bytes));
    }

    /// A chunk was made.
    fn made(&mut self, chunk: ChunkName, len: u32, now: Tick) {
        self.finished.insert(chunk, now);
        self.made += 1;
        self.made_bytes += u64::from(len);
        self.wrote(u64::from(len), now);
    }

    /// When something was made last.
    pub fn made_last(&self) -> Option<Tick> {
        self.made_last
    }

    /// So many bytes were made.
    fn wrote(&mut self, bytes: u64, now: Tick) {
        self.made_last = Some(now);
        self.lately.push_back((now, bytes));
        self.forget_earlier(now);
    }

    fn forget_earlier(&mut self, now: Tick) {
        while self.lately.front().is_some_and(|(at, _)| now.saturating_sub(*at) > LATELY) {
            self.lately.pop_front();
        }
    }

    /// Makes so many bytes a second at most from now on, in all and of one donor.
    pub fn set_rates(&mut self, pool_rate: u64, donor_rate: u64) {
        self.pool.set_rate(pool_rate);
        self.donor_rate = donor_rate;
        let buckets = self.readers.values_mut().chain(self.writers.values_mut());
        buckets.for_each(|bucket| bucket.set_rate(donor_rate));
    }

    fn rate(&mut self, now: Tick) -> u64 {
        self.forget_earlier(now);
        self.lately.iter().map(|(_, bytes)| bytes).sum::<u64>() / LATELY.as_secs()
    }

    fn bucket(
        buckets: &mut BTreeMap<DonorId, Bucket>,
        donor: DonorId,
        rate: u64,
        now: Tick,
    ) -> &mut Bucket {
        buckets.entry(donor).or_insert_with(|| Bucket::new(rate, now))
    }
}

fn lower(burdens: &mut BTreeMap<DonorId, u64>, donor: DonorId, bytes: u64) {
    if let Some(burden) = burdens.get_mut(&donor) {
        *burden = burden.saturating_sub(bytes);
    }
}

/// Where tasks of one round go: asked of the pool once, and kept in step with what is handed out.
struct Round<'a> {
    takers: Vec<Helper>,
    /// Whether an owner waits, so that budgets are not asked.
    over_quota: bool,
    now: Tick,
    source: &'a dyn Fn(Contact) -> Option<Source>,
}

impl Round<'_> {
    /// Whether nobody may be given more: nothing needs to be looked at. Without any taker jobs are
    /// looked at and found stuck.
    fn all_busy(&self) -> bool {
        !self.takers.is_empty() && self.takers.iter().all(|taker| !taker.allowed)
    }
}

impl Pool {
    /// Hands out what waits, as far as budgets allow; `source` makes a donor one that can be asked.
    pub fn hand_out(&mut self, now: Tick, source: &dyn Fn(Contact) -> Option<Source>) {
        self.drop_expired(now);
        let rests = self.repairs.paused.is_some() || self.too_many_dead().is_some();
        if rests && self.repairs.over_quota.is_empty() {
            return;
        }
        let mut round = Round { takers: self.takers(now), over_quota: true, now, source };
        round.takers.iter_mut().for_each(|taker| {
            taker.free = taker
                .free
                .saturating_sub(self.repairs.writing.get(&taker.donor).copied().unwrap_or(0));
        });
        self.allow(&mut round);
        self.hand_out_jobs(&mut round);
        if rests {
            return;
        }
        round.over_quota = false;
        self.allow(&mut round);
        self.hand_out_jobs(&mut round);
        if !self.repairs.restores() {
            self.hand_out_encodings(&mut round);
        } else if !self.repairs.encodings.waiting.is_empty() {
            self.repairs.note_held_back();
        }
    }

    /// Hands out what waits; of what owners wait for, without asking budgets. A pause holds up
    /// repair, not them: all these chunks can be had.
    fn hand_out_jobs(&mut self, round: &mut Round<'_>) {
        let over_quota = round.over_quota;
        let restores = self.repairs.restores();
        for key in self.repairs.waiting(over_quota).round() {
            if round.all_busy() || (!over_quota && !self.repairs.pool.ready(round.now)) {
                return;
            }
            let Some(job) = self.repairs.waiting(over_quota).take(key) else { continue };
            if job.is_goal() && (restores || self.repairs.stuck.for_room) {
                self.repairs.waiting(over_quota).put_back(key, job);
                self.repairs.note_held_back();
                continue;
            }
            if let Some(rest) = self.hand_out_job(job, round) {
                self.repairs.waiting(over_quota).put_back(key, rest);
            }
        }
    }

    /// Says of each taker whether it may be given more.
    fn allow(&mut self, round: &mut Round<'_>) {
        for taker in &mut round.takers {
            self.repairs.allow(taker, round.now, round.over_quota);
        }
    }

    /// Gives what is left of a job to be handed out later.
    fn hand_out_job(&mut self, mut job: Job, round: &mut Round<'_>) -> Option<Job> {
        let mut later = Vec::new();
        for make in std::mem::take(&mut job.make) {
            let chunk = job.shards[make.shard].name;
            if self.repairs.under_way.contains(&chunk) {
                later.push(make);
                continue;
            }
            if self.repairs.is_finished(&chunk) {
                continue; // the next scan sees whether it lacks more
            }
            match self.hand_out_chunk(&mut job, make.shard, make.missing, round) {
                Handed::Out => {}
                Handed::Later => later.push(make),
                Handed::Stuck(why) => self.repairs.note_stuck(why, job.is_goal()),
            }
        }
        job.make = later;
        (!job.make.is_empty()).then_some(job)
    }

    fn hand_out_chunk(
        &mut self,
        job: &mut Job,
        shard: usize,
        missing: bool,
        round: &mut Round<'_>,
    ) -> Handed {
        let wanted = job.shards[shard].clone();
        let len = u64::from(wanted.len);
        let mut used = job.used.clone();
        used.extend(self.targets_of(job.unit, &round.takers));
        let able: Vec<Helper> = round
            .takers
            .iter()
            .filter(|taker| !wanted.at.contains(&taker.donor))
            .cloned()
            .collect();
        let chosen = match target(&able, len, &used, missing) {
            Ok(chosen) => chosen.clone(),
            Err(NoTarget::Later) => return Handed::Later,
            Err(NoTarget::Full) => return Handed::Stuck(NO_ROOM),
            Err(NoTarget::NoneApart) => {
                return Handed::Stuck(
                    "too few donors: each copy or chunk of a group needs a donor of its own",
                );
            }
        };
        let from: Vec<&ShardAt> = if wanted.from.is_empty() {
            let others = job.shards.iter().enumerate();
            others
                .filter(|(at, other)| *at != shard && !other.from.is_empty())
                .map(|(_, s)| s)
                .collect()
        } else {
            vec![&wanted]
        };
        let need = if wanted.from.is_empty() { job.group.map_or(1, |(_, data)| data) } else { 1 };
        let (shards, reads) = match self.sources(&from, need, round) {
            Ok(found) => found,
            Err(why) => return why,
        };
        let chunk = wanted.name;
        let purpose =
            Purpose::Make { unit: job.unit, chunk, len: wanted.len, reads: reads.clone() };
        let rebuilt = wanted.from.is_empty().then_some(job.group).flatten();
        let kind = job.kind;
        let work = match rebuilt {
            None => Work::Copy {
                chunk,
                len: wanted.len,
                ack: AckLevel::Disk,
                kind,
                from: shards.into_iter().flat_map(|shard| shard.from).collect(),
            },
            Some((ec, data)) => Work::Rebuild {
                chunk,
                len: wanted.len,
                ack: AckLevel::Disk,
                kind,
                ec,
                position: wanted.position,
                data: data as u8,
                shards,
            },
        };
        self.repairs.tasks.give(chosen.donor, round.now, purpose, work);
        self.repairs.under_way.insert(chunk);
        self.repairs.makers.entry(job.unit).or_default().push(chosen.donor);
        self.charge(chosen.donor, len, &reads, round);
        job.used.push((chosen.donor, chosen.domain));
        Handed::Out
    }

    /// Charges budgets, and looks anew whether the taker may be given more.
    fn charge(
        &mut self,
        taker: DonorId,
        bytes: u64,
        reads: &[(DonorId, u64)],
        round: &mut Round<'_>,
    ) {
        let rate = self.repairs.donor_rate;
        let budgeted = !round.over_quota;
        if budgeted {
            self.repairs.pool.take(bytes);
            Repairs::bucket(&mut self.repairs.writers, taker, rate, round.now).take(bytes);
        }
        *self.repairs.writing.entry(taker).or_default() += bytes;
        for (source, bytes) in reads {
            if budgeted {
                Repairs::bucket(&mut self.repairs.readers, *source, rate, round.now).take(*bytes);
            }
            *self.repairs.reading.entry(*source).or_default() += bytes;
        }
        if let Some(taker) = round.takers.iter_mut().find(|helper| helper.donor == taker) {
            taker.free = taker.free.saturating_sub(bytes);
            self.repairs.allow(taker, round.now, round.over_quota);
        }
    }

    /// Targets of tasks under way for the same unit.
    fn targets_of(
        &self,
        unit: (VersionId, u32, bool),
        takers: &[Helper],
    ) -> Vec<(DonorId, potluck_core::repair_plan::Domain)> {
        let Some(makers) = self.repairs.makers.get(&unit) else { return Vec::new() };
        takers
            .iter()
            .filter(|taker| makers.contains(&taker.donor))
            .map(|taker| (taker.donor, taker.domain))
            .collect()
    }

    /// Whom to ask for `need` of `shards`, the least burdened first, and what that reads where;
    /// else whether budgets do not allow it now, or too few are there to be asked. Shards beyond
    /// `need` are named in case one fails.
    fn sources(
        &mut self,
        shards: &[&ShardAt],
        need: usize,
        round: &Round<'_>,
    ) -> Result<(Vec<Shard>, Reads), Handed> {
        let mut found: Vec<(Helper, &ShardAt, Vec<DonorId>)> = Vec::new();
        let mut able = 0;
        for shard in shards {
            let mut helpers = Vec::new();
            for donor in &shard.from {
                if self.donors.is_live(*donor, round.now, &self.limits) {
                    helpers.push(self.helper(*donor, round.now, round.over_quota));
                }
            }
            let alone = |helper: &Helper| self.repairs.is_left_alone(helper.donor, round.now);
            able += usize::from(!helpers.iter().all(alone));
            by_burden(&mut helpers);
            let Some(best) = helpers.first().cloned() else { continue };
            let sources = helpers.iter().take(1 + SPARE_SOURCES).map(|helper| helper.donor);
            found.push((best, shard, sources.collect()));
        }
        found.sort_by_key(|(best, shard, _)| (!best.allowed, best.outstanding, shard.position));
        if able < need {
            return Err(Handed::Stuck(UNREACHABLE));
        }
        let chosen = &found[..need];
        if chosen.iter().any(|(helper, ..)| !helper.allowed) {
            return Err(Handed::Later);
        }
        let reads =
            chosen.iter().map(|(helper, shard, _)| (helper.donor, u64::from(shard.len))).collect();
        // Tickets cost more than all the rest: only for what is sent.
        let source = |donor| (round.source)(self.contact(donor, round.now)?);
        let sent = |(_, shard, sources): (Helper, &ShardAt, Vec<DonorId>)| Shard {
            position: shard.position,
            chunk: shard.name,
            len: shard.len,
            from: sources.into_iter().filter_map(source).collect(),
        };
        Ok((found.into_iter().map(sent).collect(), reads))
    }

    fn helper(&mut self, donor: DonorId, now: Tick, over_quota: bool) -> Helper {
        let rate = self.repairs.donor_rate;
        let alone = self.repairs.is_left_alone(donor, now);
        let ready =
            over_quota || Repairs::bucket(&mut self.repairs.readers, donor, rate, now).ready(now);
        let outstanding = self.repairs.reading.get(&donor).copied().unwrap_or(0);
        let ahead = self.repairs.ahead(over_quota);
        let allowed = ready && !alone && (outstanding == 0 || outstanding < ahead);
        Helper { donor, domain: 0, free: 0, outstanding, allowed }
    }

    fn drop_expired(&mut self, now: Tick) {
        for (donor, task) in self.repairs.tasks.expired(now) {
            self.repairs.landed(donor, &task.purpose);
            self.repairs.left_alone.insert(donor, now + LEFT_ALONE);
            // Nobody else tells that it is still to be made.
            self.repairs.more = true;
        }
        self.repairs.left_alone.retain(|_, until| now < *until);
    }

    /// Nothing said to the donor's earlier incarnation holds.
    pub(crate) fn forget_tasks(&mut self, donor: DonorId) {
        for task in self.repairs.tasks.forget(donor) {
            self.repairs.landed(donor, &task.purpose);
        }
    }

    /// A donor answered a task; what that was for.
    pub fn task_answered(&mut self, donor: DonorId, number: u64, now: Tick) -> Option<Purpose> {
        let task = self.repairs.tasks.take(donor, number, now)?;
        self.repairs.landed(donor, &task.purpose);
        Some(task.purpose)
    }

    /// A chunk was made.
    pub fn chunk_made(&mut self, chunk: ChunkName, len: u32, now: Tick) {
        self.repairs.made(chunk, len, now);
    }

    /// A donor computed a group's parity, and holds it.
    pub fn parity_made(&mut self, group: &Encode, now: Tick) {
        self.repairs.wrote(group.parity_bytes(), now);
    }

    /// Has a donor read back all it holds.
    pub fn order_scrub(&mut self, donor: DonorId, rate: u64, now: Tick) {
        self.repairs.tasks.give(donor, now, Purpose::Scrub, Work::Scrub { rate });
    }

    /// A donor did not answer whom a task had sent to it. It is left alone for a while, unless it has
    /// registered since the task was given, which names where it was before.
    pub fn source_is_away(&mut self, source: DonorId, task: u64, now: Tick) {
        if self.donors.registration(source).is_none_or(|registration| task > registration.last_task)
        {
            self.leave_alone(source, now);
        }
    }

    /// A donor failed at what it was asked for; it is asked for nothing for a while.
    pub fn leave_alone(&mut self, donor: DonorId, now: Tick) {
        self.repairs.left_alone.insert(donor, now + LEFT_ALONE);
    }
}

#[cfg(test)]
mod tests;
