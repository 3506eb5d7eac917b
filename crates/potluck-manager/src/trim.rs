//! Trim: copies that no unit needs are deleted, by the same two phases as garbage (gc.rs).
//!
//! Why no unit ever loses a copy it relies on:
//! 1. Every use of the chunk in the whole catalog was seen by one survey, and each can do without
//!    the copy: the votes are as many as the references, and still are when the copy is marked.
//! 2. The copies that those units rely on instead are there, on live donors whose inventories were
//!    compared and who are not about to delete them, at that very moment.
//! 3. Sessions that offered the chunk keep it as it is. One that offers it after it was marked is
//!    not told of the copy; one that did so before is seen when the deletion is ordered, and the
//!    copy stays.
//! 4. The order carries what the donor had counted before all this, so that a later put voids it.

use crate::catalog::chunks::{self, ChunkState};
use crate::catalog::placements::{self, CopyState};
use crate::catalog::{Durability, Error};
use crate::service::Service;
use crate::survey::Excess;
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Copies marked in one job.
const PER_JOB: usize = 512;

/// What became of copies in excess.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Trimmed {
    /// Deletions ordered.
    pub ordered: u64,
    /// Copies that are in excess and could not be trimmed yet.
    pub waiting: u64,
}

type Found = BTreeMap<(ChunkName, DonorId), Excess>;

/// Has copies deleted that a survey found to be too many.
pub async fn trim(service: &Arc<Service>, excess: Found) -> Result<Trimmed, Error> {
    let mut agreed: Vec<_> = excess
        .into_iter()
        .filter(|(_, excess)| !excess.needed && excess.votes == excess.refs)
        .collect();
    let mut trimmed = Trimmed { ordered: 0, waiting: agreed.len() as u64 };
    if service.gc_held().is_some() {
        return Ok(trimmed);
    }
    while !agreed.is_empty() {
        let rest = agreed.split_off(agreed.len().min(PER_JOB));
        trimmed.ordered += trim_some(service, agreed).await?;
        agreed = rest;
    }
    trimmed.waiting -= trimmed.ordered;
    Ok(trimmed)
}

async fn trim_some(
    service: &Arc<Service>,
    copies: Vec<((ChunkName, DonorId), Excess)>,
) -> Result<u64, Error> {
    let now = service.time.tick();
    let by_name: Vec<(ChunkName, [DonorId; 1])> =
        copies.iter().map(|((name, donor), _)| (*name, [*donor])).collect();
    // One chunk at a time loses a copy: what the next relies on is judged by the next survey.
    let mut seen = BTreeSet::new();
    let once = by_name.iter().filter(|(name, _)| seen.insert(*name));
    let decided = service.pool().decide(once.map(|(name, donors)| (name, &donors[..])), now);
    let chosen: Vec<_> =
        copies.into_iter().filter(|((name, donor), _)| decided.has(name, *donor)).collect();
    if chosen.is_empty() {
        return Ok(0);
    }
    let shared = Arc::clone(service);
    let mark = move |db: &Connection| {
        let mut marked = Vec::new();
        for ((name, donor), excess) in chosen {
            if may_go(db, &shared, &name, donor, &excess, now)? {
                placements::mark_leaving(db, &name, donor)?;
                marked.push((name, donor));
            }
        }
        Ok(marked)
    };
    let marked = service.catalog.write(Durability::Disk, mark).await?;
    let names: Vec<ChunkName> = marked.iter().map(|(name, _)| *name).collect();
    let mut pool = service.pool();
    let free = pool.unoffered(&names);
    pool.order_deletions(&decided, &free, now);
    for (name, donor) in marked {
        if !free.contains(&name) {
            pool.stay(donor, name, now);
        }
    }
    Ok(free.len() as u64)
}

/// Whether the copy can still be done without, by what is true inside this job.
fn may_go(
    db: &Connection,
    service: &Service,
    name: &ChunkName,
    donor: DonorId,
    excess: &Excess,
    now: Tick,
) -> Result<bool, Error> {
    let Some(chunk) = chunks::get(db, name)? else { return Ok(false) };
    if chunk.state != ChunkState::Here || chunk.refs != excess.votes {
        return Ok(false);
    }
    let copy = placements::state_of(db, chunk.id, donor)?;
    if !matches!(copy, Some(CopyState::Here | CopyState::Leaving)) {
        return Ok(false);
    }
    for (relied, holder) in &excess.keep {
        let Some(chunk) = chunks::get(db, relied)? else { return Ok(false) };
        if placements::state_of(db, chunk.id, *holder)? != Some(CopyState::Here) {
            return Ok(false);
        }
    }
    let pool = service.pool();
    let stands = |(relied, holder): &(ChunkName, DonorId)| {
        pool.vouches(*holder, now) && !pool.has_deletion(*holder, relied)
    };
    Ok(!pool.is_offered(name) && excess.keep.iter().all(stands))
}
