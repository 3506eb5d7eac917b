//! Taking lent space back.

use super::{Answer, concerned, no_donor};
use crate::callers::Caller;
use crate::departure::{self, Departure, Loss};
use crate::give_back;
use crate::service::Service;
use potluck_core::ids::DonorId;
use potluck_core::size::count;
use potluck_wire::control::{Departing, GiveBack, GiveBackStatus, GivingBack};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::token::Role;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Answer for GiveBack {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<GivingBack, Failure> {
        let donor = concerned(&service, &caller, self.donor)?;
        if self.cancel {
            give_back::cancel(&service, donor).await?;
            return Ok(give_back::progress(&service, donor).await?);
        }
        // Before anything is asked of the donor: afterwards the files are not told apart.
        let departure = Departure::of(donor);
        let mut outlook = departure::look(&service, &departure).await?;
        let listing = outlook.loss.digest();
        if self.now && self.agreed.is_some_and(|agreed| agreed != listing) && outlook.loss.files > 0
        {
            return Err(not_agreed(&outlook.loss));
        }
        let lose = self.now.then_some(std::mem::take(&mut outlook.loss.versions));
        give_back::begin(&service, donor, lose, outlook.leaving).await?;
        if !self.now {
            (outlook.loss, outlook.less_safe) = Default::default();
        }
        let told = give_back::planned(&service, &departure, outlook).await?;
        Ok(GivingBack { listing: Some(listing), ..told })
    }
}

impl Answer for Departing {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<GivingBack, Failure> {
        let who = caller.member()?;
        let own = (who.role == Role::Donor).then_some(DonorId(who.member.0));
        let mut donors: BTreeSet<DonorId> = self.donors.into_iter().collect();
        if donors.is_empty() {
            donors.insert(concerned(&service, &caller, None)?);
        }
        if let Some(own) = own.filter(|own| !donors.contains(own)) {
            let what = format!("donor {own} may not ask about others alone");
            return Err(Failure::new(ErrorKind::Auth, code::NOT_ALLOWED, what)
                .hint("use the identity of an admin"));
        }
        if let Some(unknown) = donors.iter().find(|donor| !service.pool().knows_donor(**donor)) {
            return Err(no_donor(*unknown));
        }
        let departure = Departure { donors, over: self.over, told: own };
        let outlook = departure::look(&service, &departure).await?;
        Ok(give_back::planned(&service, &departure, outlook).await?)
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
        Ok(give_back::progress(&service, donor).await?)
    }
}
