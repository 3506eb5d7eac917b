//! Adapts the pool's own metadata to the donors there are. A scan tells how many copies the donors can hold; here that
//! number is written down, and files that are lost or have no place any more are given up. Nothing is lost by that:
//! the manager has the catalog itself, and writes its metadata anew to donors that take it.

use super::any_taker;
use crate::gc_freeze::GcFreeze;
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::scan_state::ScanState;
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use potluck_catalog::{Catalog, Error};
use potluck_pool::redundancy::Metadata;
use std::sync::Arc;

handles! {
    /// The handles for adapting the pool's own metadata.
    pub struct Adapting {
        settings: Arc<Settings>,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        gc_freeze: Arc<GcFreeze>,
        scan_state: Arc<ScanState>,
    }
}

impl Adapting {
    /// Adapts the metadata to the findings of a scan. Returns true if anything changed, so that another scan should
    /// look.
    pub async fn adapt(&self, found: &Metadata) -> Result<bool, Error> {
        if self.gc_freeze.why().is_some() {
            return Ok(false); // a newer catalog may know more of the metadata
        }
        if found.health.files > 0 && self.has_no_place(found) {
            tracing::info!(
                files = found.health.files,
                "no donor keeps the pool's own metadata any more: it is on the manager's own disk only"
            );
            self.catalog.give_up_metadata(self.time.when()).await?;
            return Ok(true);
        }
        let is_lost = found.lost > 0 && any_taker(&self.pool, &self.time);
        if found.adapted.is_empty() && !is_lost {
            return Ok(false);
        }
        if is_lost {
            tracing::warn!(
                files = found.lost,
                "some of the pool's own metadata is lost: it is written anew"
            );
        }
        self.catalog.adapt_metadata(found.adapted.clone(), is_lost).await?;
        Ok(true)
    }

    /// Returns whether the metadata is to be on no donor: the settings ask for no copies, or all donors that hold it
    /// leave, and no chunk of users' files waits there which a restore would find by the metadata.
    fn has_no_place(&self, found: &Metadata) -> bool {
        if self.settings.get().metadata_copies == 0 {
            return true;
        }
        let users_wait = self.scan_state.kept().moving.values().any(|moving| moving.chunks > 0);
        found.without_donors > 0 && !users_wait && self.pool.lock().all_leave(self.time.tick())
    }
}
