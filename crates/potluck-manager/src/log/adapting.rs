//! The pool's own metadata adapts to the donors there are. A scan tells how many copies can be
//! had; here that is written down, and what is lost or has no place any more is given up. Nothing is
//! lost by that: the catalog itself is here, and writes it anew to donors that take it.

use super::any_taker;
use crate::service::Service;
use potluck_catalog::Error;
use potluck_pool::redundancy::Metadata;

/// Follows what a scan found; whether anything changed, so that another should look.
pub async fn adapt(service: &Service, found: &Metadata) -> Result<bool, Error> {
    if service.gc_frozen().is_some() {
        return Ok(false); // a newer catalog may know more of it
    }
    if found.health.files > 0 && has_no_place(service, found) {
        tracing::info!(
            files = found.health.files,
            "no donor keeps the pool's own metadata any more: it is on the manager's own disk only"
        );
        service.catalog.give_up_metadata(service.when()).await?;
        return Ok(true);
    }
    let is_lost = found.lost > 0 && any_taker(service);
    if found.adapted.is_empty() && !is_lost {
        return Ok(false);
    }
    if is_lost {
        tracing::warn!(
            files = found.lost,
            "some of the pool's own metadata is lost: it is written anew"
        );
    }
    service.catalog.adapt_metadata(found.adapted.clone(), is_lost).await?;
    Ok(true)
}

/// Whether it is to be on no donor: nobody asks for it, or all that hold it leave, and nothing of
/// users waits there that would be found again by it.
fn has_no_place(service: &Service, found: &Metadata) -> bool {
    if service.config().metadata_copies == 0 {
        return true;
    }
    let users_wait = service.scan_state.kept().moving.values().any(|moving| moving.chunks > 0);
    found.homeless > 0 && !users_wait && service.pool().all_leave(service.time.tick())
}
