//! What admins decide about the safety of data.

use super::Answer;
use crate::hold;
use crate::members::Caller;
use crate::service::Service;
use potluck_wire::control::{Done, GcResume};
use potluck_wire::error::Failure;
use std::sync::Arc;

impl Answer for GcResume {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Done, Failure> {
        hold::end(&service).await?;
        Ok(Done {})
    }
}
