//! The pool at one moment.

use super::Answer;
use crate::access::Access;
use crate::callers::Caller;
use crate::handles::handles;
use crate::pool_status::Overview;
use crate::reports::Reports;
use potluck_wire::control::{Check, PoolStatus, Status, Verdict};
use potluck_wire::error::Failure;

handles! {
    /// The handles for telling the state of the pool.
    pub struct StatusCalls {
        reports: Reports,
        overview: Overview,
        access: Access,
    }
}

impl Answer<Status> for StatusCalls {
    async fn answer(self, _call: Status, caller: Caller) -> Result<PoolStatus, Failure> {
        let seen = self.access.seen(&caller).await?;
        Ok(self.overview.pool_status(&seen).await?)
    }
}

impl Answer<Check> for StatusCalls {
    async fn answer(self, _call: Check, caller: Caller) -> Result<Verdict, Failure> {
        let seen = self.access.seen(&caller).await?;
        self.reports.all_seen().await;
        Ok(self.overview.pool_status(&seen).await?.verdict)
    }
}
