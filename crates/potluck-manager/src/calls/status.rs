//! Answers the calls that ask for the state of the pool at one moment.

use super::{Answer, concerned};
use crate::access::Access;
use crate::call_turns::CallTurns;
use crate::callers::CallingMember;
use crate::handles::handles;
use crate::pool_status::{Overview, StatusReader};
use crate::shared_pool::SharedPool;
use crate::waiting_for_donors::WaitingForDonors;
use potluck_wire::control::{Check, OwnDonorStatus, OwnStatus, PoolStatus, Status, Verdict};
use potluck_wire::error::Failure;
use std::sync::Arc;

handles! {
    /// The handles for telling the state of the pool.
    pub struct StatusCalls {
        wait_until: WaitingForDonors,
        overview: Overview,
        pool: SharedPool,
        call_turns: Arc<CallTurns>,
        access: Access,
    }
}

impl Answer<Status> for StatusCalls {
    async fn answer(self, _call: Status, caller: CallingMember) -> Result<PoolStatus, Failure> {
        let seen = self.access.seen(&caller).await?;
        let _turn = self.call_turns.take_among_own(caller.member()?.member).await?;
        Ok(self.overview.pool_status(&seen, &StatusReader::of(caller.member()?)).await?)
    }
}

impl Answer<Check> for StatusCalls {
    async fn answer(self, _call: Check, caller: CallingMember) -> Result<Verdict, Failure> {
        let seen = self.access.seen(&caller).await?;
        self.wait_until.all_seen().await;
        let _turn = self.call_turns.take_among_own(caller.member()?.member).await?;
        let reader = StatusReader::of(caller.member()?);
        Ok(self.overview.pool_status(&seen, &reader).await?.verdict)
    }
}

impl Answer<OwnStatus> for StatusCalls {
    async fn answer(
        self,
        _call: OwnStatus,
        caller: CallingMember,
    ) -> Result<OwnDonorStatus, Failure> {
        let donor = concerned(&self.pool, &caller, None)?;
        let _turn = self.call_turns.take_among_own(caller.member()?.member).await?;
        Ok(self.overview.donor_status(donor).await?)
    }
}
