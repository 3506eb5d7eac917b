//! Answers the calls by which admins decide about the safety of data.

use super::Answer;
use crate::callers::Caller;
use crate::gc_freeze;
use crate::service::Service;
use potluck_wire::control::{Done, GcResume, ReclaimUnknown, ReclaimingUnknown};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::sync::Arc;

impl Answer for GcResume {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Done, Failure> {
        gc_freeze::end(&service).await?;
        Ok(Done {})
    }
}

impl Answer for ReclaimUnknown {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<ReclaimingUnknown, Failure> {
        if let Some(why) = service.gc_frozen() {
            let what = format!("nothing may be reclaimed now: {why}");
            return Err(Failure::new(ErrorKind::Conflict, code::GC_FROZEN, what).hint(
                "see that all files are where they should be; then `potluck gc resume`, and this again",
            ));
        }
        let now = service.time.tick();
        let (asked, absent) = service.pool().give_up_unknown(now);
        tracing::info!(
            "chunks that this catalog does not know are given up on {} donors",
            asked.len()
        );
        Ok(ReclaimingUnknown { asked, absent })
    }
}
