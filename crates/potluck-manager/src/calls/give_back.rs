//! Answers the calls by which owners take lent space back.

use super::{Answer, concerned, no_donor};
use crate::callers::CallingMember;
use crate::departure::{Departure, Departures, not_agreed};
use crate::give_back::GiveBacks;
use crate::handles::handles;
use crate::shared_pool::SharedPool;
use potluck_core::ids::DonorId;
use potluck_wire::control::{Departing, GiveBack, GiveBackStatus, GivingBack};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::token::Role;
use std::collections::BTreeSet;

handles! {
    /// The handles for answering calls about taking space back.
    pub struct GiveBackCalls {
        pool: SharedPool,
        departures: Departures,
        give_backs: GiveBacks,
    }
}

impl Answer<GiveBack> for GiveBackCalls {
    async fn answer(self, call: GiveBack, caller: CallingMember) -> Result<GivingBack, Failure> {
        let donor = concerned(&self.pool, &caller, call.donor)?;
        if call.cancel {
            self.give_backs.cancel(donor).await?;
            return Ok(self.give_backs.progress(donor).await?);
        }
        // The files are looked at before the donor's copies begin to leave, because afterwards the effects of that
        // cannot be told from others.
        let departure = Departure::of(donor);
        let mut outlook = self.departures.look(&departure).await?;
        let listing = outlook.loss.digest();
        if call.now && call.agreed.is_some_and(|agreed| agreed != listing) && outlook.loss.files > 0
        {
            return Err(not_agreed(&outlook.loss));
        }
        let lose = call.now.then_some(std::mem::take(&mut outlook.loss.versions));
        self.give_backs.begin(donor, lose, outlook.leaving).await?;
        if !call.now {
            (outlook.loss, outlook.less_safe) = Default::default();
        }
        let told = self.give_backs.planned(&departure, outlook).await?;
        Ok(GivingBack { listing: Some(listing), removal: None, ..told })
    }
}

impl Answer<Departing> for GiveBackCalls {
    async fn answer(self, call: Departing, caller: CallingMember) -> Result<GivingBack, Failure> {
        let who = caller.member()?;
        let own = (who.role == Role::Donor).then_some(DonorId(who.member.0));
        let mut donors: BTreeSet<DonorId> = call.donors.into_iter().collect();
        if donors.is_empty() {
            donors.insert(concerned(&self.pool, &caller, None)?);
        }
        if let Some(own) = own.filter(|own| !donors.contains(own)) {
            let what = format!("donor {own} may not ask about others alone");
            return Err(Failure::new(ErrorKind::Auth, code::NOT_ALLOWED, what)
                .hint("use the identity of an admin"));
        }
        if let Some(unknown) = donors.iter().find(|donor| !self.pool.lock().knows_donor(**donor)) {
            return Err(no_donor(*unknown));
        }
        let departure = Departure { donors, over: call.over, told: own };
        let outlook = self.departures.look(&departure).await?;
        Ok(self.give_backs.planned(&departure, outlook).await?)
    }
}

impl Answer<GiveBackStatus> for GiveBackCalls {
    async fn answer(
        self,
        call: GiveBackStatus,
        caller: CallingMember,
    ) -> Result<GivingBack, Failure> {
        let donor = concerned(&self.pool, &caller, call.donor)?;
        Ok(self.give_backs.progress(donor).await?)
    }
}
