//! The GC freeze: while the pool may know more than this catalog does, nothing is reclaimed (promise D5).
//!
//! Every donor remembers the highest epoch it heard, which start of a manager that was, and how
//! many changes it told of. A manager that meets a term outside its catalog's history, or one that
//! went on after the history left it ([`potluck_catalog::term_history`]), runs on a catalog older than one that ran
//! before: a copy that was put back, or a second one that runs elsewhere. Chunks that it counts as
//! unused may be files of the newer one.

use crate::audit;
use crate::service::Service;
use potluck_catalog::Error;
use potluck_catalog::term_history::Term;
use potluck_core::ids::{DonorId, Epoch};

/// Nobody starts managers so many times while one runs: who says so lies.
const FAR: u64 = 1 << 24;
/// No epoch is raised beyond by hearsay: numbers of orders and blocks of the log begin at 2³² times an
/// epoch.
pub const LAST: Epoch = Epoch(1 << 31);

/// Compares what a donor has heard before with this manager, and holds garbage collection if another
/// one ran later. The own epoch is raised above that one's, so that donors obey again.
pub async fn compare(service: &Service, donor: DonorId, heard: Term) -> Result<(), Error> {
    let own = service.epoch();
    if (heard.epoch, heard.start) == (own, service.start) {
        return Ok(());
    }
    if heard.epoch.0.saturating_sub(own.0) > FAR {
        let why = format!("it says that it heard a manager of epoch {}", heard.epoch);
        return audit::quarantine(service, donor, why).await;
    }
    let later = heard.epoch > own || (heard.epoch == own && heard.start != 0);
    if !later && !service.catalog.is_unknown_term(heard).await? {
        return Ok(());
    }
    let why = format!(
        "donor {donor} was served by a manager of epoch {}, and this catalog, now of epoch {own}, does \
         not know all that it did: it is older than one that ran before",
        heard.epoch
    );
    tracing::debug!(%donor, ?heard, %own, "a newer catalog ran before");
    begin(service, why, heard.epoch).await
}

/// Holds garbage collection, raises the epoch above `above`, and has every copy of the log begin anew.
async fn begin(service: &Service, why: String, above: Epoch) -> Result<(), Error> {
    // Held before it is durable: what was ordered meanwhile cannot be taken back.
    service.freeze_gc(Some(why.clone()));
    {
        let mut pool = service.pool();
        pool.cancel_deletions();
        pool.keep_unknown();
    }
    let (own, start) = (service.epoch(), service.start);
    let above = (above < LAST).then_some(above);
    let epoch = service.catalog.freeze_gc(why, above, own, start).await?;
    service.raise_epoch(epoch);
    Ok(())
}

/// Lets garbage collection go on: what a newer catalog may have known is given up.
pub async fn end(service: &Service) -> Result<(), Error> {
    service.catalog.end_gc_freeze().await?;
    service.freeze_gc(None);
    Ok(())
}
