//! The hold: while the pool may know more than this catalog does, nothing is reclaimed (promise D5).
//!
//! Every donor remembers the highest epoch it heard, which start of a manager that was, and how
//! many changes it told of. A manager that meets a term outside its catalog's history, or one that
//! went on after the history left it ([`term_history`]), runs on a catalog older than one that ran
//! before: a copy that was put back, or a second one that runs elsewhere. Chunks that it counts as
//! unused may be files of the newer one.

use crate::audit;
use crate::service::Service;
use potluck_catalog::log_position::{Copy, Position};
use potluck_catalog::term_history::{self, Term};
use potluck_catalog::{Durability, Error, notes, schema};
use potluck_core::ids::{DonorId, Epoch};

/// Nobody starts managers so many times while one runs: who says so lies.
const FAR: u64 = 1 << 24;
/// No epoch is raised beyond by hearsay: numbers of orders and segments begin at 2³² times an
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
    if !later && !service.catalog.read(move |db| term_history::unknown(db, heard)).await? {
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
    let (note, own, start) = (why.clone(), service.epoch(), service.start);
    let raise = move |db: &_| {
        let begins = notes::get(db, notes::GC_FROZEN)?.is_none();
        if begins {
            notes::set(db, notes::GC_FROZEN, &note)?;
        }
        let epoch = if above < LAST { schema::raise_epoch(db, above)? } else { own };
        if begins || epoch > own {
            // The newer one's log goes on from where this catalog was copied: what this one writes
            // must not be taken for a part of that, nor that for a part of this.
            Position::clear(db, Copy::OnDonors)?;
            Position::clear(db, Copy::InFile)?;
        }
        term_history::go_on(db, epoch, start)?;
        Ok(epoch)
    };
    // Held before it is durable: what was ordered meanwhile cannot be taken back.
    service.hold_gc(Some(why));
    {
        let mut pool = service.pool();
        pool.cancel_deletions();
        pool.keep_unknown();
    }
    let epoch = service.catalog.write(Durability::Disk, raise).await?;
    service.raise_epoch(epoch);
    Ok(())
}

/// Lets garbage collection go on: what a newer catalog may have known is given up.
pub async fn end(service: &Service) -> Result<(), Error> {
    let clear = |db: &_| {
        term_history::give_up(db)?;
        notes::clear(db, notes::GC_FROZEN)
    };
    service.catalog.write(Durability::Disk, clear).await?;
    service.hold_gc(None);
    Ok(())
}
