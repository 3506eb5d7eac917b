//! Trim: copies that no unit needs are deleted, by the same two phases as garbage (tasks/gc.rs).
//!
//! These are the reasons why no unit ever loses a copy that it relies on:
//! 1. One scan saw every version in the whole catalog that uses the chunk, and each can do without
//!    the copy. When the copy is marked, all these versions are there, their redundancy is to be the
//!    one that they were judged by, and all references to the chunk are theirs. If they can do
//!    without the copy because its donor gives space back, the donor still does.
//! 2. The copies that those versions rely on instead are there at that very moment, on donors that
//!    are live, compared, trusted and keep them.
//! 3. A chunk that a session offered keeps its copies. A session that offers it after the copy was
//!    marked is not told of the copy; one that did so before is seen when the deletion is ordered,
//!    and the copy stays.
//! 4. The order carries the donor's count of puts from before the copy was marked, so that a later put voids it.

use crate::gc_freeze::GcFreeze;
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::shared_pool::SharedPool;
use potluck_catalog::{Catalog, Error};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::DonorId;
use potluck_pool::redundancy::Excess;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

handles! {
    /// The handles for trimming.
    pub struct Trim {
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        gc_freeze: Arc<GcFreeze>,
    }
}

/// The most copies marked in one job.
const PER_JOB: usize = 512;
/// The most versions asked about in one job, so that commits do not wait long.
const VOTES_PER_JOB: usize = 8192;

/// The outcome of trimming copies in excess.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Trimmed {
    /// The number of deletions ordered.
    pub ordered: u64,
    /// The number of copies that all their versions can do without and that could not be trimmed yet.
    pub waiting: u64,
}

type Found = BTreeMap<(ChunkName, DonorId), Excess>;

impl Trim {
    /// Returns whether nothing is deleted now, however long it waits.
    pub fn is_frozen(&self) -> bool {
        self.gc_freeze.why().is_some()
    }

    /// Has copies deleted that a scan found to be too many.
    pub async fn run(&self, excess: Found) -> Result<Trimmed, Error> {
        let mut agreed: Vec<_> =
            excess.into_iter().filter(|(_, excess)| excess.is_agreed()).collect();
        let mut trimmed = Trimmed { ordered: 0, waiting: agreed.len() as u64 };
        if self.is_frozen() {
            return Ok(trimmed);
        }
        while !agreed.is_empty() {
            let mut votes = 0;
            let fits = agreed.iter().take(PER_JOB).take_while(|(_, excess)| {
                votes += excess.votes.len();
                votes <= VOTES_PER_JOB
            });
            let rest = agreed.split_off(fits.count().max(1));
            trimmed.ordered += self.trim_some(agreed).await?;
            agreed = rest;
        }
        trimmed.waiting -= trimmed.ordered;
        Ok(trimmed)
    }

    async fn trim_some(&self, copies: Vec<((ChunkName, DonorId), Excess)>) -> Result<u64, Error> {
        let now = self.time.tick();
        let (decided, snapshot, chosen) = {
            let pool = self.pool.lock();
            let by_name: Vec<(ChunkName, [DonorId; 1])> =
                copies.iter().map(|((name, donor), _)| (*name, [*donor])).collect();
            // Each chunk loses one copy at a time: the next scan judges whether another may go.
            let mut seen = BTreeSet::new();
            let once = by_name.iter().filter(|(name, _)| seen.insert(*name));
            let decided = pool.decide(once.map(|(name, donors)| (name, &donors[..])), now);
            let stays = |(relied, at): &(ChunkName, DonorId)| !pool.has_deletion(*at, relied);
            let mut chosen = copies;
            chosen.retain(|((name, donor), excess)| {
                decided.has(name, *donor) && excess.keep.iter().all(stays)
            });
            (decided, pool.snapshot(now), chosen)
        };
        if chosen.is_empty() {
            return Ok(0);
        }
        let relied: BTreeMap<_, _> =
            chosen.iter().map(|(copy, excess)| (*copy, excess.keep.clone())).collect();
        let marked = self.catalog.mark_excess(snapshot, chosen).await?;
        let mut pool = self.pool.lock();
        // Garbage collection may have ordered the deletion of a copy that is relied on, for a chunk that
        // came into use at that very moment.
        let stays = |(name, donor): &(ChunkName, DonorId)| !pool.has_deletion(*donor, name);
        let goes = |copy: &&(ChunkName, DonorId)| relied[*copy].iter().all(stays);
        let names: Vec<ChunkName> = marked.iter().filter(goes).map(|(name, _)| *name).collect();
        let free = pool.unoffered(&names);
        pool.order_deletions(&decided, &free, now);
        for (name, donor) in marked {
            if !free.contains(&name) {
                pool.stay(donor, name, now);
            }
        }
        Ok(free.len() as u64)
    }
}
