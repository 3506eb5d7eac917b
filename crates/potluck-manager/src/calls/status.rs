//! The pool at one moment.

use super::Answer;
use crate::callers::Caller;
use crate::held_up::all_seen;
use crate::pool_status::pool_status;
use crate::service::Service;
use potluck_wire::control::{Check, PoolStatus, Status, Verdict};
use potluck_wire::error::Failure;
use std::sync::Arc;

impl Answer for Status {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<PoolStatus, Failure> {
        Ok(pool_status(&service).await?)
    }
}

impl Answer for Check {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Verdict, Failure> {
        all_seen(&service).await;
        Ok(pool_status(&service).await?.verdict)
    }
}
