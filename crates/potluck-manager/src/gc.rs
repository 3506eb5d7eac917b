//! Garbage collection: chunks that no file has used for a while are deleted, in two phases that
//! are at least one step apart (promise D5).
//!
//! Why no chunk that somebody needs is ever deleted:
//! 1. A chunk is condemned only while no file uses it and no session has offered it.
//! 2. Who needs it afterwards must offer it, is told that it is not held, and puts it again.
//! 3. An order carries what the donor had counted at a moment when no session had the chunk
//!    ([`Pool::decide`](potluck_pool::Pool::decide)), so that later put voids it.
//! 4. A file committed from a put before that moment belongs to a session that had ended by then;
//!    its commit is in the catalog, which is asked again after that moment.

use crate::background::Step;
use crate::service::Service;
use potluck_catalog::Error;
use potluck_catalog::chunks::ChunkId;
use potluck_catalog::gc::{Condemned, Waiting};
use potluck_core::ids::DonorId;
use std::time::Duration;

/// Chunks handled in one step, each phase.
const PER_STEP: usize = 4096;
/// How long a chunk that is gone from everywhere is remembered, in case that a writer whose
/// session is over still sends it: then it is found and reclaimed again (promise D2).
const REMEMBERED: Duration = Duration::from_secs(3600);

/// The collector, and how far it is round.
#[derive(Debug)]
pub struct Gc {
    /// Condemned chunks up to here were looked at in this round, …
    condemned: ChunkId,
    /// … and unused ones up to here.
    unused: Waiting,
}

impl Default for Gc {
    fn default() -> Self {
        Self { condemned: ChunkId::FIRST, unused: Waiting::FIRST }
    }
}

impl Gc {
    /// One step of both phases.
    pub async fn step(&mut self, service: &Service) -> Result<Step, Error> {
        if service.gc_frozen().is_some() {
            return Ok(Step::Idle);
        }
        // Orders first, so that what is condemned in this step is ordered in the next at the
        // earliest.
        let ordered = self.order(service).await?;
        let condemned = self.condemn(service).await?;
        Ok(if ordered || condemned { Step::Busy } else { Step::Idle })
    }

    /// Orders the deletion of condemned chunks; whether there were any.
    async fn order(&mut self, service: &Service) -> Result<bool, Error> {
        let after = self.condemned;
        let page = service.catalog.condemned_chunks(after, PER_STEP).await?;
        self.condemned = match page.last() {
            Some(last) if page.len() == PER_STEP => last.id,
            _ => ChunkId::FIRST,
        };
        if page.is_empty() {
            return Ok(false);
        }
        self.forget(service, &page).await?;

        let now = service.time.tick();
        let condemned = page.iter().map(|chunk| (&chunk.name, &chunk.donors[..]));
        let decided = service.pool().decide(condemned, now);
        let names = decided.names();
        if names.is_empty() {
            return Ok(true);
        }
        let still = service.catalog.still_condemned(names).await?;
        service.pool().order_deletions(&decided, &still, now);
        tracing::debug!(chunks = still.len(), "ordered deletions");
        Ok(true)
    }

    /// Forgets copies at donors that were removed from the pool, and chunks without copies.
    async fn forget(&self, service: &Service, page: &[Condemned]) -> Result<(), Error> {
        let removed: Vec<(ChunkId, Vec<DonorId>)> = {
            let pool = service.pool();
            let gone = |chunk: &Condemned| {
                let unknown = chunk.donors.iter().filter(|donor| !pool.knows_donor(**donor));
                (chunk.id, unknown.copied().collect::<Vec<_>>(), chunk.donors.is_empty())
            };
            let forgettable =
                page.iter().map(gone).filter(|(_, donors, empty)| *empty || !donors.is_empty());
            forgettable.map(|(chunk, donors, _)| (chunk, donors)).collect()
        };
        if removed.is_empty() {
            return Ok(());
        }
        service.catalog.forget_copies(removed, service.time.now_ms()).await
    }

    /// Condemns chunks that no file has used for the grace period; whether there were any.
    async fn condemn(&mut self, service: &Service) -> Result<bool, Error> {
        let grace = service.config().gc_grace.as_millis() as u64;
        let Some(before) = service.time.now_ms().checked_sub(grace) else { return Ok(false) };
        let after = self.unused;
        let page = service.catalog.unused_chunks(before, after, PER_STEP).await?;
        // Chunks that sessions have offered stay in the queue: go on behind them.
        self.unused = match page.last() {
            Some((last, _)) if page.len() == PER_STEP => *last,
            _ => Waiting::FIRST,
        };
        let names: Vec<_> = page.into_iter().map(|(_, name)| name).collect();
        let names = service.pool().unoffered(&names);
        if names.is_empty() {
            return Ok(false);
        }
        // A session that offers one of them from here on is told that it is not held.
        service.catalog.condemn(names, before).await?;
        Ok(true)
    }
}

/// Forgets chunks that have been gone for long.
pub async fn prune(service: &Service) -> Result<(), Error> {
    let Some(before) = service.time.now_ms().checked_sub(REMEMBERED.as_millis() as u64) else {
        return Ok(());
    };
    service.catalog.prune_chunks(before).await
}
