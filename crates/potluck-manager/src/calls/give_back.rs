//! Taking lent space back.

use super::{Answer, concerned};
use crate::departure::{self, Loss};
use crate::give_back;
use crate::members::Caller;
use crate::service::Service;
use potluck_core::size::count;
use potluck_wire::control::{GiveBack, GiveBackStatus, GivingBack};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::sync::Arc;

impl Answer for GiveBack {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<GivingBack, Failure> {
        let donor = concerned(&service, &caller, self.donor)?;
        if self.cancel {
            give_back::cancel(&service, donor).await?;
            return Ok(give_back::progress(&service, donor, None).await?);
        }
        // Before anything is asked of the donor: afterwards the files are not told apart.
        let outlook = departure::look(&service, donor).await?;
        let loss = if self.now || self.dry_run { outlook.loss.clone() } else { Loss::default() };
        let listing = loss.digest();
        if !self.dry_run {
            if self.now && self.agreed.is_some_and(|agreed| agreed != listing) && loss.files > 0 {
                return Err(not_agreed(&loss));
            }
            let lose = self.now.then_some(loss.versions);
            give_back::begin(&service, donor, lose, &outlook).await?;
        }
        let progress = give_back::progress(&service, donor, Some(&outlook)).await?;
        Ok(GivingBack {
            lost: loss.paths,
            lost_files: loss.files,
            listing: Some(listing),
            ..progress
        })
    }
}

/// Files changed since the list was made that somebody agreed to.
fn not_agreed(loss: &Loss) -> Failure {
    let shown = loss.paths.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    let more = if loss.files > 3 { ", …" } else { "" };
    let what = format!(
        "what would be lost is not what was agreed to: by now it is {}, {shown}{more}",
        count(loss.files, "file")
    );
    Failure::new(ErrorKind::Conflict, code::NOT_AGREED, what)
        .hint("look at the whole list with `-n`, and decide again")
}

impl Answer for GiveBackStatus {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<GivingBack, Failure> {
        let donor = concerned(&service, &caller, self.donor)?;
        Ok(give_back::progress(&service, donor, None).await?)
    }
}
