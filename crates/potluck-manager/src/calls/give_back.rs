//! Taking lent space back.

use super::{Answer, concerned};
use crate::give_back;
use crate::members::Caller;
use crate::service::Service;
use potluck_wire::control::{GiveBack, GiveBackStatus, GivingBack};
use potluck_wire::error::Failure;
use std::sync::Arc;

impl Answer for GiveBack {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<GivingBack, Failure> {
        let donor = concerned(&service, &caller, self.donor)?;
        if self.cancel {
            give_back::cancel(&service, donor).await?;
            return Ok(give_back::progress(&service, donor).await?);
        }
        // Before anything is asked of the donor: afterwards the files are not told apart.
        let lost = match self.now || self.dry_run {
            true => give_back::would_lose(&service, donor).await?,
            false => (Vec::new(), 0),
        };
        if !self.dry_run {
            let held = service.pool().held(donor);
            let goal = self.bytes.map_or(0, |bytes| held.saturating_sub(bytes));
            give_back::begin(&service, donor, goal, self.now).await?;
        }
        let mut progress = give_back::progress(&service, donor).await?;
        (progress.lost, progress.lost_files) = lost;
        Ok(progress)
    }
}

impl Answer for GiveBackStatus {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<GivingBack, Failure> {
        let donor = concerned(&service, &caller, self.donor)?;
        Ok(give_back::progress(&service, donor).await?)
    }
}
