//! Converting: versions that have the redundancy they were to have give the earlier one up.

use crate::service::Service;
use potluck_catalog::Error;
use potluck_core::ids::VersionId;
use potluck_core::policy::Redundancy;
use std::sync::Arc;

/// Versions in one job, which all wait for one disk.
const PER_JOB: usize = 256;

/// Changes those of `found` that still have all they are to have; how many those were.
pub async fn arrive(
    service: &Arc<Service>,
    mut found: Vec<(VersionId, Redundancy)>,
) -> Result<u64, Error> {
    let mut arrived = 0;
    while !found.is_empty() {
        let some: Vec<_> = found[..found.len().min(PER_JOB)].to_vec();
        let snapshot = service.pool().snapshot(service.time.tick());
        let now_ms = service.time.now_ms();
        let (looked_at, there) = service.catalog.arrive(snapshot, some, now_ms).await?;
        found.drain(..looked_at);
        arrived += there;
    }
    Ok(arrived)
}
