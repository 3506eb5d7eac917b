//! Converting: versions that have the redundancy they were to have give the earlier one up.

use crate::catalog::conversions;
use crate::catalog::{Durability, Error, units, versions};
use crate::service::Service;
use potluck_core::ids::VersionId;
use potluck_core::policy::Redundancy;
use potluck_pool::Standings;
use potluck_pool::redundancy::reaches_goal;
use rusqlite::Connection;
use std::sync::Arc;

/// Versions in one job, which all wait for one disk, …
const PER_JOB: usize = 256;
/// … and chunks after which it ends, so that commits do not wait long.
const CHUNKS_PER_JOB: u64 = 4096;

/// Changes those of `found` that still have all they are to have; how many those were.
pub async fn arrive(
    service: &Arc<Service>,
    mut found: Vec<(VersionId, Redundancy)>,
) -> Result<u64, Error> {
    let mut arrived = 0;
    while !found.is_empty() {
        let some: Vec<_> = found[..found.len().min(PER_JOB)].to_vec();
        let shared = Arc::clone(service);
        let job = move |db: &_| {
            let standings = shared.pool().standings(shared.time.tick());
            arrive_some(db, &standings, &some, shared.time.now_ms())
        };
        let (looked_at, there) = service.catalog.write(Durability::Disk, job).await?;
        found.drain(..looked_at);
        arrived += there;
    }
    Ok(arrived)
}

/// The same of the first of them, at least one: how many were looked at, and how many changed.
///
/// They are judged anew: since a survey found them complete a donor may have died that the new
/// redundancy relies on, and the earlier one is what then keeps the file.
pub fn arrive_some(
    db: &Connection,
    standings: &Standings,
    found: &[(VersionId, Redundancy)],
    now_ms: u64,
) -> Result<(usize, u64), Error> {
    let (mut looked_at, mut chunks, mut arrived) = (0, 0, 0);
    for (id, goal) in found {
        looked_at += 1;
        let version = versions::find(db, *id)?.filter(|version| version.goal == Some(*goal));
        if let Some(version) = version {
            chunks += version.chunks;
            let there = reaches_goal(&units::layout(db, &version)?, standings);
            if there && conversions::arrive(db, *id, *goal, now_ms)? {
                tracing::debug!(version = %id, %goal, "a version has the redundancy it was to have");
                arrived += 1;
            }
        }
        if chunks >= CHUNKS_PER_JOB {
            break;
        }
    }
    Ok((looked_at, arrived))
}
