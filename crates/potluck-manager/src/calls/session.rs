//! Write sessions: reserve, offer, grow, renew, abort.

use super::Answer;
use crate::callers::Caller;
use crate::failure;
use crate::held_up::donors_reported;
use crate::service::{InSession, Service};
use crate::ticketing;
use potluck_catalog::Error;
use potluck_catalog::chunks::{Found, Kept};
use potluck_catalog::sessions::StoredSession;
use potluck_core::chunk::INLINE_MAX;
use potluck_core::ids::SessionId;
use potluck_core::placement::{Plan, Refusal};
use potluck_core::policy::AckLevel;
use potluck_pool::{NewSession, Pool, Ticketed};
use potluck_wire::control::{
    Abort, Done, Grow, Grown, Held, Offer, Offered, Renew, Reserve, Reserved,
};
use potluck_wire::error::Failure;
use std::sync::Arc;
use std::time::Duration;

/// Lets one of a session's calls in.
pub fn enter(
    service: &Arc<Service>,
    session: SessionId,
    caller: &Caller,
) -> Result<(Ticketed, InSession), Failure> {
    let now = service.time.tick();
    let member = caller.member()?.member;
    let ticketed = service.pool().enter(&session, member, now).map_err(Failure::from)?;
    Ok((ticketed, InSession::new(Arc::clone(service), session)))
}

/// Ends a session; what it offered is accounted for in the background.
pub async fn end(service: &Service, session: SessionId) -> Result<(), Error> {
    service.catalog.end_session(session).await?;
    service.pool().end_session(&session);
    service.chores.notify_one();
    Ok(())
}

/// Ends a session that was interrupted, or keeps what it stored for when it is taken up again.
pub async fn interrupt(service: &Service, session: SessionId) -> Result<(), Error> {
    let now = service.time.tick();
    let window = service.config().resume_window;
    if !window.is_zero() && service.pool().park_session(&session, now) {
        tracing::info!(?session, "an interrupted upload is kept for a while");
        return Ok(());
    }
    end(service, session).await
}

/// How long a request waits for room that interrupted uploads held.
const MAKING_ROOM: Duration = Duration::from_secs(8);
/// Between two looks whether it is there.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Does what needs room; where it lacks, interrupted uploads make some.
async fn with_room<T>(
    service: &Service,
    place: impl Fn(&mut Pool) -> Result<T, Refusal>,
) -> Result<Result<T, Refusal>, Error> {
    let began = service.time.tick();
    let mut making = false;
    loop {
        let placed = place(&mut service.pool());
        let Err(Refusal::NoSpace { ask, have }) = placed else { return Ok(placed) };
        let parked = service.pool().parked_for(ask.saturating_sub(have));
        making |= !parked.is_empty();
        for session in parked {
            end(service, session).await?;
        }
        if !making || service.time.tick().saturating_sub(began) > MAKING_ROOM {
            return Ok(placed);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

impl Answer for Reserve {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<Reserved, Failure> {
        let member = caller.member()?.member;
        let space = service.catalog.admit_write(self.path, self.condition).await?;
        let policy = space.policy.with(&self.policy).map_err(|why| failure::of_policy(&why))?;
        let new = NewSession {
            id: SessionId(service.env.entropy.bytes()),
            member,
            space: space.id,
            policy,
            asked: self.policy,
        };
        // A file that lives in the catalog needs no donor.
        let bytes = self.bytes.map(|bytes| if bytes <= INLINE_MAX { 0 } else { bytes });
        if bytes != Some(0) {
            donors_reported(&service, Pool::expects_reports).await;
        }
        let redundancy = new.policy.redundancy();
        let opened = with_room(&service, |pool| {
            let now = service.time.tick();
            let ticketed = pool.open_session(new.clone(), bytes, now)?;
            let contacts = ticketing::contacts(pool, ticketed.plan.donors(), now);
            Ok((ticketed, contacts))
        });
        let refused = |why| {
            let (pool, now) = (service.pool(), service.time.tick());
            let donors = (pool.donor_count(), pool.expected_donors(0, now));
            failure::of_placement(why, redundancy, donors)
        };
        let (ticketed, contacts) = opened.await?.map_err(refused)?;
        keep(&service, &new, &ticketed).await?;
        Ok(Reserved {
            session: new.id,
            lease_ms: service.config().lease.as_millis() as u64,
            policy: new.policy,
            space: space.id,
            space_key: space.key,
            donors: ticketing::for_writing(&service, new.id, &ticketed, contacts),
            plan: ticketed.plan,
        })
    }
}

/// Keeps a new session, so that it survives the manager; a session that cannot be kept is none.
async fn keep(service: &Service, new: &NewSession, ticketed: &Ticketed) -> Result<(), Failure> {
    let stored = StoredSession {
        id: new.id,
        member: new.member,
        space: new.space,
        policy: new.policy.clone(),
        asked: new.asked,
        plan: ticketed.plan.clone(),
        bytes: ticketed.bytes,
        ended: false,
    };
    let kept = service.catalog.open_session(stored).await;
    if kept.is_err() {
        service.pool().forget_session(&new.id);
    }
    Ok(kept?)
}

impl Answer for Grow {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<Grown, Failure> {
        let (entered, _in_session) = enter(&service, self.session, &caller)?;
        donors_reported(&service, Pool::expects_reports).await;
        let (session, redundancy) = (self.session, entered.policy.redundancy());
        if self.bytes == 0 {
            let contacts = {
                let now = service.time.tick();
                ticketing::contacts(&service.pool(), entered.plan.donors(), now)
            };
            let donors = ticketing::for_writing(&service, session, &entered, contacts);
            return Ok(Grown { plan: Plan { sections: Vec::new(), ..entered.plan }, donors });
        }
        let grown = with_room(&service, |pool| {
            let now = service.time.tick();
            let plan = pool.grow_session(&session, self.bytes, &self.avoid, self.whole, now)?;
            let contacts = ticketing::contacts(pool, plan.donors(), now);
            Ok((plan, pool.ticketed(&session), contacts))
        });
        let refused = |why| {
            let (pool, now) = (service.pool(), service.time.tick());
            let donors = (pool.donor_count(), pool.expected_donors(0, now));
            failure::of_placement(why, redundancy, donors)
        };
        let (plan, ticketed, contacts) = grown.await?.map_err(refused)?;
        let ticketed = ticketed.ok_or_else(|| Failure::from(Error::NoSession))?;
        service.catalog.grow_session(session, ticketed.plan.clone(), ticketed.bytes).await?;
        Ok(Grown { plan, donors: ticketing::for_writing(&service, session, &ticketed, contacts) })
    }
}

impl Answer for Renew {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<Done, Failure> {
        enter(&service, self.session, &caller)?;
        Ok(Done {})
    }
}

impl Answer for Abort {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<Done, Failure> {
        // Whoever aborts what is over already has what it wants.
        if let Ok((_, _in_session)) = enter(&service, self.session, &caller) {
            match self.keep {
                true => interrupt(&service, self.session).await?,
                false => end(&service, self.session).await?,
            }
        }
        Ok(Done {})
    }
}

impl Answer for Offer {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<Offered, Failure> {
        let (_, _in_session) = enter(&service, self.session, &caller)?;
        // Copies of a donor that has not listed them count for nothing: all would be sent again.
        donors_reported(&service, Pool::expects_listings).await;
        let (session, names, ack) = (self.session, self.chunks.0, self.ack);
        // First the protection, then the question: what is found in use now stays (pool.rs).
        let new = service.pool().offer(&session, &names)?;
        let asked = Arc::new(names);
        let found = service.catalog.offer(session, new, Arc::clone(&asked), ack).await?;

        // A chunk that is on its way out, or at a donor that is not trusted, is sent again: that is how a
        // damaged file is mended by whoever has it.
        let view = service.pool().view(service.time.tick());
        // Chunks that donors told of were stored in memory, as far as is known.
        let uncommitted: Vec<_> = {
            let pool = service.pool();
            let told = |name| pool.uncommitted(name).filter(|_| ack == AckLevel::Memory);
            asked.iter().map(told).collect()
        };
        let mut held = Vec::new();
        let mut unused = Vec::new();
        for (index, (name, (found, uncommitted))) in
            (0..).zip(asked.iter().zip(found.into_iter().zip(uncommitted)))
        {
            let Found { used, mut donors } = found;
            let (len, told) = uncommitted.filter(|_| !used).unwrap_or_default();
            donors.extend(told);
            donors.retain(|donor| view.counts(*donor, name));
            donors.sort_unstable();
            donors.dedup();
            match donors.is_empty() {
                true => {}
                false if used => held.push(Held { index, donors, unused: false }),
                false => unused.push((index, Kept { name: *name, len, donors })),
            }
        }
        if !unused.is_empty() {
            held.extend(service.catalog.keep_unused(unused, service.time.now_ms()).await?);
        }
        Ok(Offered { held })
    }
}
