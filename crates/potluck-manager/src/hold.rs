//! The hold: while the pool may know more than this catalog does, nothing is reclaimed (PROMISES D5).
//!
//! Every donor remembers the highest epoch it heard and which start of a manager that was. A manager
//! that meets a higher epoch than its own, or its own from another start, runs on a catalog older
//! than one that ran before: a copy that was put back, or a second one that runs elsewhere. Chunks
//! that it counts as unused may be files of the newer one.

use crate::catalog::{Durability, Error, notes, schema};
use crate::service::Service;
use potluck_core::ids::{DonorId, Epoch};

/// Compares what a donor has heard before with this manager, and holds garbage collection if another
/// one ran later. The own epoch is raised above that one's, so that donors obey again.
pub async fn compare(service: &Service, donor: DonorId, heard: (Epoch, u64)) -> Result<(), Error> {
    let (epoch, start) = heard;
    let own = service.epoch();
    let newer = epoch > own || (epoch == own && start != 0 && start != service.start);
    if !newer {
        return Ok(());
    }
    if service.collecting.is_some() {
        // It reclaims nothing, and only learns what its successor's epoch must be.
        let raise = move |db: &_| schema::raise_epoch(db, epoch);
        let raised = service.catalog.write(Durability::Disk, raise).await?;
        service.raise_epoch(raised);
        return Ok(());
    }
    let why = format!(
        "donor {donor} was served by a manager of epoch {epoch}, and this catalog is of epoch {own}: it is older than one that ran before"
    );
    tracing::error!(%donor, heard = %epoch, own = %own, "a newer catalog ran before; nothing is reclaimed");
    begin(service, why, epoch).await
}

async fn begin(service: &Service, why: String, above: Epoch) -> Result<(), Error> {
    let note = why.clone();
    let raise = move |db: &_| {
        if notes::get(db, notes::GC_HELD)?.is_none() {
            notes::set(db, notes::GC_HELD, &note)?;
        }
        schema::raise_epoch(db, above)
    };
    // Held before it is durable: what was ordered meanwhile cannot be taken back.
    service.hold_gc(Some(why));
    service.pool().cancel_deletions();
    let epoch = service.catalog.write(Durability::Disk, raise).await?;
    service.raise_epoch(epoch);
    Ok(())
}

/// Lets garbage collection go on: what a newer catalog may have known is given up.
pub async fn end(service: &Service) -> Result<(), Error> {
    let clear = |db: &_| notes::clear(db, notes::GC_HELD);
    service.catalog.write(Durability::Disk, clear).await?;
    if let Some(why) = service.gc_held() {
        tracing::warn!(why, "garbage collection goes on by an admin's order");
    }
    service.hold_gc(None);
    Ok(())
}
