//! The pool at one moment.

use super::Answer;
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
    }
}

impl Answer<Status> for StatusCalls {
    async fn answer(self, _call: Status, _: Caller) -> Result<PoolStatus, Failure> {
        Ok(self.overview.pool_status().await?)
    }
}

impl Answer<Check> for StatusCalls {
    async fn answer(self, _call: Check, _: Caller) -> Result<Verdict, Failure> {
        self.reports.all_seen().await;
        Ok(self.overview.pool_status().await?.verdict)
    }
}
