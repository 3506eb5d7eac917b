//! The pool at one moment.

use super::Answer;
use crate::access::Access;
use crate::callers::CallingMember;
use crate::handles::handles;
use crate::pool_status::Overview;
use crate::waiting_for_donors::WaitingForDonors;
use potluck_wire::control::{Check, PoolStatus, Status, Verdict};
use potluck_wire::error::Failure;

handles! {
    /// The handles for telling the state of the pool.
    pub struct StatusCalls {
        wait_until: WaitingForDonors,
        overview: Overview,
        access: Access,
    }
}

impl Answer<Status> for StatusCalls {
    async fn answer(self, _call: Status, caller: CallingMember) -> Result<PoolStatus, Failure> {
        let seen = self.access.seen(&caller).await?;
        Ok(self.overview.pool_status(&seen).await?)
    }
}

impl Answer<Check> for StatusCalls {
    async fn answer(self, _call: Check, caller: CallingMember) -> Result<Verdict, Failure> {
        let seen = self.access.seen(&caller).await?;
        self.wait_until.all_seen().await;
        Ok(self.overview.pool_status(&seen).await?.verdict)
    }
}
