//! Garbage collection: chunks that no file has used for a while are deleted, in two phases that
//! are at least one step apart (promise D5).
//!
//! These are the reasons why no chunk that is needed is ever deleted:
//! 1. A chunk is condemned only while no file uses it and no session has offered it.
//! 2. A writer that needs it afterwards must offer it, is told that it is not held, and puts it again.
//! 3. An order carries what the donor had counted at a moment when no session had the chunk
//!    ([`Pool::decide`](potluck_pool::Pool::decide)), so that a later put voids it.
//! 4. A file committed from a put before that moment belongs to a session that had ended by then;
//!    its commit is in the catalog, which is asked again after that moment.

use crate::gc_freeze::GcFreeze;
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::recurring_notices::Notice;
use crate::sessions::WriteSessions;
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use potluck_catalog::{Catalog, Condemned, Error, UnusedSince, Upkeep};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{ChunkId, DonorId, SessionId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

handles! {
    /// The handles for collecting garbage.
    pub struct Garbage {
        settings: Arc<Settings>,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        gc_freeze: Arc<GcFreeze>,
        sessions: WriteSessions,
    }
}

/// The most chunks that each phase handles in one step.
const PER_STEP: usize = 4096;
/// The most chunks that are changed in one transaction.
const PER_JOB: usize = 1024;
/// The most copies of removed donors, or chunks that are gone, that are forgotten in one transaction.
const COPIES: usize = 2000;
/// The most transactions in one round that forget copies, and the most that forget chunks.
const STEPS: usize = 64;
/// The least time for which a chunk that is gone from everywhere is remembered, in case a writer whose session is over
/// still sends it: then it is found and reclaimed again (promise D2).
const REMEMBERED: Duration = Duration::from_secs(3600);

/// The place that the collector has reached in its round.
#[derive(Debug)]
pub struct GcRound {
    /// The stored bytes of the chunks seen in this round that would be condemned if no session had offered them, for
    /// one session of each chunk.
    kept: BTreeMap<SessionId, u64>,
    /// The condemned chunk up to which this round has looked.
    condemned: ChunkId,
    /// The unused chunk up to which this round has looked.
    unused: UnusedSince,
}

impl Default for GcRound {
    fn default() -> Self {
        Self { kept: BTreeMap::new(), condemned: ChunkId::FIRST, unused: UnusedSince::FIRST }
    }
}

impl Garbage {
    /// Takes a step of both phases.
    pub async fn step(&self, round: &mut GcRound) -> Result<(), Error> {
        if self.gc_freeze.why().is_some() {
            return Ok(());
        }
        // Orders come first, so that what is condemned in this step is ordered in the next at the earliest.
        self.order(round).await?;
        self.condemn(round).await
    }

    /// Orders the deletion of condemned chunks.
    async fn order(&self, round: &mut GcRound) -> Result<(), Error> {
        let after = round.condemned;
        let page = self.catalog.condemned_chunks(after, PER_STEP).await?;
        round.condemned = match page.last() {
            Some(last) if page.len() == PER_STEP => last.id,
            _ => ChunkId::FIRST,
        };
        if page.is_empty() {
            return Ok(());
        }
        self.forget(&page).await?;

        let now = self.time.tick();
        let condemned = page.iter().map(|chunk| (&chunk.name, &chunk.donors[..]));
        let decided = self.pool.lock().decide(condemned, now);
        let names = decided.names();
        if names.is_empty() {
            return Ok(());
        }
        let known = self.catalog.chunks(names).await?.into_iter();
        let still: Vec<ChunkName> =
            known.filter(|chunk| chunk.is_condemned).map(|chunk| chunk.name).collect();
        self.pool.lock().order_deletions(&decided, &still, now);
        tracing::debug!(chunks = still.len(), "ordered deletions");
        Ok(())
    }

    /// Forgets copies at donors that were removed from the pool, and chunks without copies.
    async fn forget(&self, page: &[Condemned]) -> Result<(), Error> {
        let removed: Vec<(ChunkId, Vec<DonorId>)> = {
            let pool = self.pool.lock();
            let gone = |chunk: &Condemned| {
                let unknown = chunk.donors.iter().filter(|donor| !pool.knows_donor(**donor));
                (chunk.id, unknown.copied().collect::<Vec<_>>(), chunk.donors.is_empty())
            };
            let forgettable =
                page.iter().map(gone).filter(|(_, donors, empty)| *empty || !donors.is_empty());
            forgettable.map(|(chunk, donors, _)| (chunk, donors)).collect()
        };
        for removed in removed.chunks(PER_JOB) {
            self.catalog.forget_copies(removed.to_vec(), self.time.now_ms()).await?;
        }
        Ok(())
    }

    /// Condemns chunks that no file has used for the GC delay.
    async fn condemn(&self, round: &mut GcRound) -> Result<(), Error> {
        let gc_delay = self.settings.get().gc_delay.as_millis() as u64;
        // In a pool that is younger than the delay, only chunks that need not wait are condemned.
        let before = self.time.now_ms().saturating_sub(gc_delay);
        let after = round.unused;
        let page = self.catalog.unused_chunks(before, after, PER_STEP).await?;
        // Chunks that sessions have offered stay in the queue, so the next page begins behind them.
        round.unused = match page.last() {
            Some((last, _)) if page.len() == PER_STEP => *last,
            _ => UnusedSince::FIRST,
        };
        let names = page.into_iter().map(|(_, name)| name);
        let (kept, names): (Vec<_>, Vec<_>) = {
            let pool = self.pool.lock();
            names.partition(|name| pool.is_offered(name))
        };
        // A session that offers one of these chunks from here on is told that the pool does not hold it.
        for names in names.chunks(PER_JOB) {
            self.catalog.condemn(names.to_vec(), before).await?;
        }
        self.count_kept(round, kept).await
    }

    /// Counts chunks that stay because sessions offered them. At the end of a round, ends the sessions for which more
    /// stays than they may store: to offer a chunk costs nothing, and what stays so counts for no quota.
    async fn count_kept(&self, round: &mut GcRound, names: Vec<ChunkName>) -> Result<(), Error> {
        if !names.is_empty() {
            let known = self.catalog.chunks(names).await?;
            let pool = self.pool.lock();
            for chunk in known.iter().filter(|chunk| !chunk.is_used) {
                let copies = chunk.holders.len() + chunk.leaving.len();
                if let Some((session, bytes)) = pool.kept_for(&chunk.name, chunk.len, copies) {
                    *round.kept.entry(session).or_default() += bytes;
                }
            }
        }
        if round.unused != UnusedSince::FIRST {
            return Ok(());
        }
        let kept = std::mem::take(&mut round.kept);
        let over = self.pool.lock().keep_too_much(&kept);
        for session in over {
            if self.sessions.tells(Notice::UploadGivenUp, session) {
                tracing::info!(
                    ?session,
                    "a write session keeps more unused chunks than it may store"
                );
            }
            self.sessions.end(session).await?;
        }
        Ok(())
    }

    /// Forgets the copies of donors that were removed from the pool, a bounded number in one round, and none while the
    /// GC freeze lasts.
    pub async fn forget_removed_donors(&self) -> Result<(), Error> {
        for _ in 0..STEPS {
            let frozen = self.gc_freeze.why().is_some();
            let now_ms = self.time.now_ms();
            let step = Upkeep::RemovedDonors { copies: COPIES };
            if frozen || !self.catalog.upkeep(step, now_ms).await? {
                break;
            }
        }
        Ok(())
    }

    /// Forgets chunks that have been gone for [`REMEMBERED`] longer than any donor has been silent: a silent donor may
    /// come back with copies that it had no time to tell of.
    pub async fn prune(&self) -> Result<(), Error> {
        let silent = self.pool.lock().longest_silence(self.time.tick());
        let remembered = (REMEMBERED + silent).as_millis() as u64;
        let now_ms = self.time.now_ms();
        let Some(before_ms) = now_ms.checked_sub(remembered) else { return Ok(()) };
        let step = Upkeep::ReclaimedChunks { before_ms, chunks: COPIES };
        for _ in 0..STEPS {
            if !self.catalog.upkeep(step, now_ms).await? {
                break;
            }
        }
        Ok(())
    }
}
