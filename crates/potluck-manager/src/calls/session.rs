//! Write sessions: reserve, offer, grow, renew, abort.

use super::settling::settled;
use super::{Answer, ticketing};
use crate::catalog::check_condition;
use crate::catalog::dir_policies;
use crate::catalog::entries::{self, Place};
use crate::catalog::sessions::{self, StoredSession};
use crate::catalog::spaces::{self, Space};
use crate::catalog::{Durability, Error, chunks, placements};
use crate::failure;
use crate::members::Caller;
use crate::pool::{NewSession, Pool, Ticketed};
use crate::service::{InSession, Service};
use potluck_core::chunk::{ChunkName, INLINE_MAX};
use potluck_core::ids::{DonorId, SessionId};
use potluck_core::path::PoolPath;
use potluck_core::policy::AckLevel;
use potluck_wire::control::{
    Abort, Condition, Done, Grow, Grown, Held, Offer, Offered, Renew, Reserve, Reserved,
};
use potluck_wire::error::Failure;
use rusqlite::Connection;
use std::sync::Arc;

/// Lets one of a session's calls in.
pub fn enter(
    service: &Arc<Service>,
    session: SessionId,
    caller: &Caller,
) -> Result<(Ticketed, InSession), Failure> {
    let now = service.time.tick();
    let member = caller.member()?.member;
    let ticketed = service.pool().enter(&session, member, now).map_err(failure::of_session)?;
    Ok((ticketed, InSession::new(Arc::clone(service), session)))
}

/// Ends a session; what it offered is accounted for in the background.
pub async fn end(service: &Service, session: SessionId) -> Result<(), Error> {
    service.catalog.write(Durability::Process, move |db| sessions::end(db, &session)).await?;
    service.pool().end_session(&session);
    service.chores.notify_one();
    Ok(())
}

impl Answer for Reserve {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<Reserved, Failure> {
        let member = caller.member()?.member;
        let (path, condition) = (self.path, self.condition);
        let space = service.catalog.read(move |db| admissible(db, &path, condition)).await?;
        let policy = space.policy.with(&self.policy).map_err(|why| failure::of_policy(&why))?;
        let new = NewSession {
            id: SessionId(service.env.entropy.bytes()),
            member,
            space: space.id,
            policy,
            asked: self.policy.redundancy(),
        };
        // What lives in the catalog needs no donor.
        let bytes = self.bytes.map(|bytes| if bytes <= INLINE_MAX { 0 } else { bytes });
        if bytes != Some(0) {
            settled(&service, Pool::expects_reports).await;
        }
        let redundancy = new.policy.redundancy();
        let (ticketed, contacts) = {
            let now = service.time.tick();
            let mut pool = service.pool();
            let joined = pool.donor_count();
            let ticketed = pool
                .open_session(new.clone(), bytes, now)
                .map_err(|why| failure::of_placement(why, redundancy, joined))?;
            let contacts = ticketing::contacts(&pool, ticketed.plan.donors(), now);
            (ticketed, contacts)
        };
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

/// The space that a file or tree at `path` would be written to, with the policy that holds at
/// `path`, unless that is bound to fail. Of a tree, its root decides how all files of the session
/// are written; what is to keep each of them its own directory says, at the commit.
fn admissible(db: &Connection, path: &PoolPath, condition: Condition) -> Result<Space, Error> {
    if path.space().is_empty() {
        return Err(Error::OutsideSpaces(path.clone()));
    }
    let policy = dir_policies::effective(db, path)?;
    let space = Space { policy, ..spaces::named(db, path.space())? };
    let there = match entries::resolve(db, path)?.map(|found| found.place) {
        Some(Place::Dir(_)) => return Ok(space), // the files below it have their own conditions
        Some(Place::File(version)) => Some(version),
        None => None,
    };
    check_condition(db, path, condition, there)?;
    Ok(space)
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
    let kept =
        service.catalog.write(Durability::Process, move |db| sessions::insert(db, &stored)).await;
    if kept.is_err() {
        service.pool().forget_session(&new.id);
    }
    Ok(kept?)
}

impl Answer for Grow {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<Grown, Failure> {
        let (entered, _in_session) = enter(&service, self.session, &caller)?;
        settled(&service, Pool::expects_reports).await;
        let (session, redundancy) = (self.session, entered.policy.redundancy());
        let (plan, ticketed, contacts) = {
            let now = service.time.tick();
            let mut pool = service.pool();
            let joined = pool.donor_count();
            let plan = pool
                .grow_session(&session, self.bytes, &self.avoid, now)
                .map_err(|why| failure::of_placement(why, redundancy, joined))?;
            let ticketed =
                pool.ticketed(&session).ok_or_else(|| failure::of_catalog(Error::NoSession))?;
            let contacts = ticketing::contacts(&pool, plan.donors(), now);
            (plan, ticketed, contacts)
        };
        let (whole, bytes) = (ticketed.plan.clone(), ticketed.bytes);
        service
            .catalog
            .write(Durability::Process, move |db| sessions::grow(db, &session, &whole, bytes))
            .await?;
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
            end(&service, self.session).await?;
        }
        Ok(Done {})
    }
}

impl Answer for Offer {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<Offered, Failure> {
        let (_, _in_session) = enter(&service, self.session, &caller)?;
        // Copies of a donor that has not listed them count for nothing: all would be sent again.
        settled(&service, Pool::expects_listings).await;
        let (session, names, ack) = (self.session, self.chunks.0, self.ack);
        // First the protection, then the question: what is found in use now stays (pool.rs).
        let new = service.pool().offer(&session, &names);
        let keep = move |db: &_| sessions::offer(db, &session, &new);
        service.catalog.write(Durability::Process, keep).await?;
        let found = service.catalog.read(move |db| in_use(db, &names, ack)).await?;

        // What is on its way out, or at a donor that is not trusted, is sent again: that is how a
        // damaged file is mended by whoever has it.
        let standings = service.pool().standings(service.time.tick());
        let held = found.into_iter().filter_map(|(index, name, mut donors)| {
            donors.retain(|donor| standings.counts(*donor, &name));
            (!donors.is_empty()).then_some(Held { index, donors })
        });
        Ok(Offered { held: held.collect() })
    }
}

/// Those of `names` that files use, with the donors that have them at level `ack`.
fn in_use(
    db: &Connection,
    names: &[ChunkName],
    ack: AckLevel,
) -> Result<Vec<(u32, ChunkName, Vec<DonorId>)>, Error> {
    let mut found = Vec::new();
    for (index, name) in (0..).zip(names) {
        if let Some(chunk) = chunks::get(db, name)?
            && chunk.refs > 0
        {
            found.push((index, *name, placements::holders_at(db, chunk.id, ack)?));
        }
    }
    Ok(found)
}
