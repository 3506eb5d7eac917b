//! Finds out that a newer catalog than this one ran before, and freezes garbage collection (promise D5).
//!
//! Every donor remembers the highest epoch it heard, which start of a manager had it, and how many changes that manager
//! told of. A manager that meets a term outside its catalog's history, or one that went on after the history left it
//! ([`potluck_catalog::term_history`]), runs on a catalog older than one that ran before: a copy that was put back, or
//! a second one that runs elsewhere. Chunks that it counts as unused may belong to files of the newer one.
//!
//! A donor repeats the other manager's statement with that manager's proof. One donor is enough, for it may be the only
//! one that met the other manager. A statement without proof freezes nothing; a donor that repeats such statements is
//! quarantined ([`crate::unproven_terms`]).

use crate::gc_freeze::GcFreeze;
use crate::handles::handles;
use crate::inquiries::Inquiries;
use crate::own_term::OwnTerm;
use crate::shared_pool::SharedPool;
use crate::unproven_terms::UnprovenTerms;
use potluck_catalog::{Catalog, Error, LAST_EPOCH, Term};
use potluck_core::chunk::Digest;
use potluck_core::ids::{DonorId, Epoch};
use potluck_recovery::pool_authority::PoolAuthority;
use std::sync::Arc;

handles! {
    /// The handles for freezing garbage collection and thawing it.
    pub struct StaleCatalog {
        term: Arc<OwnTerm>,
        pool: SharedPool,
        catalog: Catalog,
        gc_freeze: Arc<GcFreeze>,
        inquiries: Inquiries,
        unproven_terms: Arc<UnprovenTerms>,
        authority: Arc<PoolAuthority>,
    }
}

impl StaleCatalog {
    /// Compares the term that a donor has heard of with this manager's, and freezes garbage collection if another
    /// manager provably ran later. The own epoch is raised above that one's, so that donors obey again. A donor that
    /// tells of other terms without proof again and again is quarantined. Returns true if the donor told of another
    /// term without proof.
    pub async fn compare(
        &self,
        donor: DonorId,
        heard: Term,
        proof: Option<Digest>,
    ) -> Result<bool, Error> {
        let own = self.term.epoch();
        let itself = (heard.epoch, heard.start) == (own, self.term.start);
        let later = heard.epoch > own || (heard.epoch == own && heard.start != 0);
        if itself || (!later && !self.catalog.is_unknown_term(heard).await?) {
            self.unproven_terms.ended(donor);
            return Ok(false);
        }
        let Term { epoch, start, changes } = heard;
        if !proof.is_some_and(|proof| self.authority.is_proven(epoch, start, changes, proof)) {
            if self.unproven_terms.told(donor, heard) {
                let why = format!(
                    "it says again that it heard another manager, now one of epoch {epoch}, and cannot prove it"
                );
                self.distrust(donor, why).await?;
            }
            return Ok(true);
        }
        self.unproven_terms.ended(donor);
        let why = format!(
            "this catalog does not know all that a manager of epoch {epoch} did, which served donor {donor}: it is older \
             than one that ran before"
        );
        tracing::debug!(%donor, ?heard, %own, "a newer catalog ran before");
        self.begin(why, epoch).await?;
        Ok(false)
    }

    /// Quarantines a donor, unless it is quarantined already: it may repeat its statements all the time.
    async fn distrust(&self, donor: DonorId, why: String) -> Result<(), Error> {
        if self.pool.lock().is_quarantined(donor) {
            return Ok(());
        }
        self.inquiries.quarantine(donor, why).await
    }

    /// Freezes garbage collection, raises the epoch above `above`, and has every copy of the log begin anew.
    async fn begin(&self, why: String, above: Epoch) -> Result<(), Error> {
        // The freeze begins before it is durable, for what was ordered meanwhile cannot be taken back.
        self.gc_freeze.freeze(why.clone());
        {
            let mut pool = self.pool.lock();
            pool.cancel_deletions();
            pool.keep_unknown();
        }
        let (own, start) = (self.term.epoch(), self.term.start);
        let above = (above < LAST_EPOCH).then_some(above);
        let epoch = self.catalog.freeze_gc(why, above, own, start).await?;
        self.term.raise_epoch(epoch);
        Ok(())
    }

    /// Ends the freeze: chunks that only the newer catalog knew may be collected.
    pub async fn end(&self) -> Result<(), Error> {
        self.catalog.end_gc_freeze().await?;
        self.gc_freeze.thaw();
        Ok(())
    }
}
