//! Answers the calls by which admins end the GC freeze and give up chunks that the catalog does not know.

use super::Answer;
use crate::callers::CallingMember;
use crate::gc_freeze::GcFreeze;
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::shared_pool::SharedPool;
use crate::stale_catalog::StaleCatalog;
use potluck_wire::control::{Done, GcResume, ReclaimUnknown, ReclaimingUnknown};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::sync::Arc;

handles! {
    /// The handles for deciding about the GC freeze.
    pub struct GcFreezeCalls {
        time: PoolTime,
        pool: SharedPool,
        gc_freeze: Arc<GcFreeze>,
        stale_catalog: StaleCatalog,
    }
}

impl Answer<GcResume> for GcFreezeCalls {
    async fn answer(self, _call: GcResume, _: CallingMember) -> Result<Done, Failure> {
        self.stale_catalog.end().await?;
        Ok(Done {})
    }
}

impl Answer<ReclaimUnknown> for GcFreezeCalls {
    async fn answer(
        self,
        _call: ReclaimUnknown,
        _: CallingMember,
    ) -> Result<ReclaimingUnknown, Failure> {
        if let Some(why) = self.gc_freeze.why() {
            let what = format!("nothing may be reclaimed now: {why}");
            return Err(Failure::new(ErrorKind::Conflict, code::GC_FROZEN, what).hint(
                "see that all files are where they should be; then `potluck gc resume`, and this again",
            ));
        }
        let now = self.time.tick();
        let (asked, absent) = self.pool.lock().give_up_unknown(now);
        tracing::info!(
            "chunks that this catalog does not know are given up on {} donors",
            asked.len()
        );
        Ok(ReclaimingUnknown { asked, absent })
    }
}
