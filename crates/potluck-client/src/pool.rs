//! A client of one pool.

use crate::buffer::Buffers;
use crate::chunk_cache::ChunkCache;
use crate::chunk_source::{ChunkSource, OriginSource};
use crate::donors::Donors;
use crate::fetch::ReadMemory;
use crate::leases::OpenLeases;
use crate::measured_traffic::{MeasuredTraffic, SeenDonor};
use crate::progress::{Progress, Quiet};
use crate::retry_limits::RetryLimits;
use crate::source::Cutter;
use potluck_core::chunk::DEFAULT_CHUNK;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_core::placement::striping::Striping;
use potluck_core::policy::{Policy, Width};
use potluck_core::traffic::Direction;
use potluck_wire::call::Caller;
use potluck_wire::control::{Find, TellTraffic, Unreached};
use potluck_wire::env::Env;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

/// The bytes of chunks that a client may hold in memory for reading, and as many again for writing: enough for the full
/// windows of four donors and a batch of offers. Either budget is larger where a chunk is larger than a quarter of
/// this, or where more donors take part.
const MEMORY: usize = 96 << 20;
/// The most donors whose full windows the memory is meant for; with more donors, some have less on its way.
const MOST_DONORS: usize = Width::AUTO_MOST as usize;
/// The number of chunks in memory for each donor of a write: the one that is being sent, and the one that follows.
const WRITTEN_AHEAD: usize = 2;
/// The number of chunks of a write that are cut and offered while others are sent, for all donors together.
const CUT_AHEAD: usize = 12;

/// The time for which the manager is not told again that the same donor cannot be reached.
const MISSED_AGAIN: Duration = Duration::from_secs(60);

/// The time for which the noted whereabouts of donors are not asked for again, in milliseconds.
const FOUND_AGAIN_MS: i64 = 600_000;
/// The time that the manager may take to say where donors are.
const FIND_TIMEOUT: Duration = Duration::from_secs(2);

/// A client of one pool. It is cheap to clone; clones share the connection to the manager, and memory.
#[derive(Clone)]
pub struct Pool {
    /// The outside world: time, chance, and the network.
    pub(crate) env: Env,
    /// The caller of the manager.
    pub(crate) caller: Caller,
    /// The memory for chunks that are written.
    pub(crate) buffers: Buffers,
    /// The limits of how long the client waits for a manager or donors that do not answer.
    pub(crate) retry_limits: RetryLimits,
    /// The watcher that is told of the client's waits.
    pub(crate) watcher: Arc<dyn Progress>,
    /// The memory for what is read; `None` until the first read.
    reading: Arc<Mutex<Option<ReadMemory>>>,
    /// The cache of chunks that were read, if there is one.
    pub(crate) cache: Option<ChunkCache>,
    /// The place near the client where chunks are looked for before donors are asked, if there is one.
    pub(crate) lookaside: Option<Arc<dyn ChunkSource>>,
    /// The way to the origins of cached files, if the client goes there.
    pub(crate) origins: Option<Arc<dyn OriginSource>>,
    /// The number of chunks that came from origins.
    pub(crate) from_origin: Arc<AtomicU64>,
    /// The memory that write sessions of the client share; `None` until the first session. A session that needs more
    /// replaces it for itself and for later sessions.
    writing: Arc<Mutex<Option<Buffers>>>,
    background: Arc<Mutex<JoinSet<()>>>,
    /// The versions that are open under a lease.
    pub(crate) leases: OpenLeases,
    bad_copies: Arc<AtomicU64>,
    /// The moment at which the manager was last told of each donor that this client does not reach.
    missed: Arc<Mutex<BTreeMap<DonorId, Tick>>>,
    /// The donors to which a link was open at some time, so that this machine does reach them.
    reached: Arc<Mutex<BTreeSet<DonorId>>>,
    /// The traffic with each donor.
    pub(crate) traffic: MeasuredTraffic,
    /// How the files of the latest write session are striped.
    striping: Arc<Mutex<Option<Striping>>>,
}

impl Pool {
    /// Makes a client that calls its manager through `caller`.
    pub fn new(env: Env, caller: Caller) -> Self {
        let traffic = MeasuredTraffic::new(env.clock.clone());
        Self {
            env,
            caller,
            buffers: Buffers::new(MEMORY),
            retry_limits: RetryLimits::default(),
            watcher: Arc::new(Quiet),
            reading: Arc::default(),
            cache: None,
            lookaside: None,
            origins: None,
            from_origin: Arc::default(),
            writing: Arc::default(),
            background: Arc::default(),
            leases: OpenLeases::default(),
            bad_copies: Arc::default(),
            missed: Arc::default(),
            reached: Arc::default(),
            traffic,
            striping: Arc::default(),
        }
    }

    /// Returns a client that acts on behalf of the user whose access key this is, as a gateway does. It shares the
    /// connections and the memory of this one.
    pub fn on_behalf(&self, key: &str) -> Self {
        // Leases are renewed by the caller that took the first of them.
        let (caller, leases) = (self.caller.on_behalf(key), OpenLeases::default());
        Self { caller, leases, striping: Arc::default(), ..self.clone() }
    }

    /// Returns how the files of the latest write session are striped, and why; `None` before the first session.
    pub fn latest_striping(&self) -> Option<Striping> {
        *self.striping.lock().expect("no holder panics")
    }

    pub(crate) fn note_striping(&self, striping: Striping) {
        *self.striping.lock().expect("no holder panics") = Some(striping);
    }

    /// Returns this client with other limits: it waits as long as `retry_limits` say.
    pub fn with_retry_limits(&self, retry_limits: RetryLimits) -> Self {
        Self { retry_limits, ..self.clone() }
    }

    /// Returns this client with `cache`, in which it keeps what it reads and looks before it asks donors.
    pub fn with_cache(&self, cache: ChunkCache) -> Self {
        Self { cache: Some(cache), ..self.clone() }
    }

    /// Returns how many bytes were found in the cache of chunks so far.
    pub fn found_in_cache(&self) -> u64 {
        self.cache.as_ref().map_or(0, ChunkCache::found)
    }

    /// Returns this client with a place near it, where it looks for chunks before it asks donors.
    pub fn with_lookaside(&self, lookaside: Arc<dyn ChunkSource>) -> Self {
        Self { lookaside: Some(lookaside), ..self.clone() }
    }

    /// Returns this client with a way to the origins of cached files, from which it fetches what no donor has.
    pub fn with_origins(&self, origins: Arc<dyn OriginSource>) -> Self {
        Self { origins: Some(origins), ..self.clone() }
    }

    /// Returns the number of chunks that this client, and all that share its state, fetched from origins.
    pub fn chunks_from_origins(&self) -> u64 {
        self.from_origin.load(Ordering::Relaxed)
    }

    /// Returns the limits of how long the client waits for a manager or donors that do not answer.
    pub fn retry_limits(&self) -> RetryLimits {
        self.retry_limits
    }

    /// Returns the time since some fixed moment; it never goes back.
    pub fn now(&self) -> Tick {
        self.env.clock.now()
    }

    /// Returns random bytes that nobody can guess.
    pub fn random(&self) -> [u8; 16] {
        self.env.entropy.bytes()
    }

    /// Returns the time of day, in milliseconds since 1970.
    pub fn wall_ms(&self) -> i64 {
        self.env.clock.wall()
    }

    /// Returns the watcher that is told of the client's waits.
    pub fn watcher(&self) -> Arc<dyn Progress> {
        Arc::clone(&self.watcher)
    }

    /// Asks the manager where some donors are, and notes that in the guide: donors know where a manager is that moved.
    /// Does nothing while the guide has enough donors that were asked for not long ago, or where there is no guide.
    pub async fn remember_donors(&self) {
        let now = self.wall_ms();
        let guide = self.caller.guide();
        let Some(guide) = guide.filter(|it| it.is_poorer_than(now - FOUND_AGAIN_MS)) else {
            return;
        };
        // If there is no answer now, the next call of this asks again.
        if let Ok(Ok(found)) = tokio::time::timeout(FIND_TIMEOUT, self.caller.call(&Find {})).await
        {
            if let Some(manager) = &found.manager {
                self.caller.learn_from_manager(manager);
            }
            guide.remember(found.donors, now);
        }
    }

    /// Returns this client for the rest of work that has begun: each of its calls waits for a manager that is away as
    /// long as in the middle of a transfer.
    pub fn under_way(&self) -> Self {
        self.with_retry_limits(RetryLimits {
            at_first: self.retry_limits.under_way,
            ..self.retry_limits
        })
    }

    /// Returns this client with `watcher`, which it tells of its waits.
    pub fn watched(&self, watcher: Arc<dyn Progress>) -> Self {
        Self { watcher, ..self.clone() }
    }

    /// Returns the memory for reading files with chunks of at most `chunk` bytes on so many `donors`, of which `unit`
    /// bytes are read together. All reads through this client share one memory, until a file needs a larger one.
    pub(crate) fn memory_for_reading(
        &self,
        chunk: usize,
        unit: usize,
        donors: usize,
    ) -> ReadMemory {
        let least = ReadMemory::least(chunk, unit, donors.min(MOST_DONORS));
        let mut reading = self.reading.lock().expect("no holder panics");
        if reading.as_ref().is_none_or(|memory| memory.size() < least) {
            *reading = None;
        }
        reading.get_or_insert_with(|| ReadMemory::new(MEMORY.max(least))).clone()
    }

    /// Returns this client with memory for a session under `policy` to so many `donors`, at least for one group being
    /// sent while the next is cut. All sessions of this client share one memory, until a session needs a larger one.
    pub(crate) fn for_writing(&self, policy: &Policy, donors: usize) -> Self {
        let least = least_for_writing(policy, donors);
        let mut writing = self.writing.lock().expect("no holder panics");
        if writing.as_ref().is_none_or(|buffers| buffers.size() < least) {
            *writing = None;
        }
        let buffers = writing.get_or_insert_with(|| Buffers::new(MEMORY.max(least))).clone();
        Self { buffers, ..self.clone() }
    }

    /// Returns the number of copies that this client, and all that share its state, found missing or spoiled while
    /// reading. After [`Pool::settle`] the number leaves out copies that the manager says had been let go.
    pub fn bad_copies(&self) -> u64 {
        self.bad_copies.load(Ordering::Relaxed)
    }

    pub(crate) fn meet_bad_copy(&self) {
        self.bad_copies.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back one bad copy that [`Pool::meet_bad_copy`] counted, since the copy had been let go.
    pub(crate) fn met_no_bad_copy(&self) {
        self.bad_copies.fetch_sub(1, Ordering::Relaxed);
    }

    /// Tells the manager, at most once in [`MISSED_AGAIN`], of a donor that it calls live and that this client cannot
    /// reach.
    pub(crate) fn miss(&self, donor: DonorId) {
        let now = self.env.clock.now();
        {
            let mut missed = self.missed.lock().expect("no holder panics");
            match missed.get(&donor) {
                Some(told) if now.saturating_sub(*told) < MISSED_AGAIN => return,
                _ => missed.insert(donor, now),
            };
        }
        let caller = self.caller.clone();
        self.in_background(async move {
            if let Err(failure) = caller.call(&Unreached { donor }).await {
                tracing::debug!(%failure, "nobody was told that the donor is not reached");
            }
        });
    }

    /// Notes that a donor let this client in: if it falls silent later, it or the link to it is away for a while.
    pub(crate) fn reach(&self, donor: DonorId) {
        self.reached.lock().expect("no holder panics").insert(donor);
    }

    /// Returns the donors that this client, or any that shares its state, has reached in any work. The set is a copy,
    /// so that its user does not hold the lock that new links wait for.
    pub(crate) fn reached(&self) -> BTreeSet<DonorId> {
        self.reached.lock().expect("no holder panics").clone()
    }

    /// Runs work in the background, such as telling the manager of a bad copy; only [`Pool::settle`] waits for it.
    pub(crate) fn in_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        // Without a runtime the work is lost, which its nature allows.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let mut background = self.background.lock().expect("no holder panics");
            while background.try_join_next().is_some() {}
            background.spawn_on(work, &runtime);
        }
    }

    /// Returns the donors with which this client, or any that shares its state, had traffic.
    pub fn seen_donors(&self) -> Vec<SeenDonor> {
        self.traffic.seen()
    }

    /// Waits at most two seconds until the work in the background is done, and the manager was told of the traffic.
    /// Call this before the process ends.
    pub async fn settle(&self) {
        let traffic = self.traffic.take_if_worth_telling();
        if !traffic.is_empty() {
            let caller = self.caller.clone();
            self.in_background(async move {
                if let Err(failure) = caller.call(&TellTraffic { traffic }).await {
                    tracing::debug!(%failure, "the manager was not told of the traffic");
                }
            });
        }
        let mut background =
            std::mem::take(&mut *self.background.lock().expect("no holder panics"));
        let all = async { while background.join_next().await.is_some() {} };
        if tokio::time::timeout(Duration::from_secs(2), all).await.is_err() {
            tracing::debug!("some reports to the manager were not delivered");
        }
    }

    /// Makes an empty set of donors for one session or read, whose links receive into `buffers`.
    pub(crate) fn donors(&self, buffers: Buffers, direction: Direction) -> Donors {
        let donors = Donors::new(self.env.clone(), buffers, direction);
        donors.told_to(self.clone())
    }
}

/// Returns the least memory in bytes that a write under `policy` to so many `donors` needs.
fn least_for_writing(policy: &Policy, donors: usize) -> usize {
    let units = if policy.ec.is_some() { 2 } else { 4 };
    // A chunk that goes to several donors is in memory once.
    let sent = (WRITTEN_AHEAD * donors.min(MOST_DONORS)).div_ceil(policy.copies as usize);
    let ahead = (sent + CUT_AHEAD) * policy.chunk_size.min(DEFAULT_CHUNK) as usize;
    (units * Cutter::room(policy)).max(ahead)
}
