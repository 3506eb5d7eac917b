//! Answers the calls of write sessions: reserve, offer, grow, renew, abort.

use super::Answer;
use crate::access::Access;
use crate::callers::CallingMember;
use crate::failure;
use crate::handles::handles;
use crate::own_term::OwnTerm;
use crate::pool_time::PoolTime;
use crate::session_rates::SessionRates;
use crate::sessions::{SessionGuard, WriteSessions};
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use crate::ticket_issuer;
use crate::ticket_issuer::TicketIssuer;
use crate::waiting_for_donors::WaitingForDonors;
use potluck_catalog::{
    AdmittedWrite, Catalog, ChunkAsker, Error, KnownChunk, StoredSession, UnusedChunk,
};
use potluck_core::chunk::INLINE_MAX;
use potluck_core::ids::{KeyNumber, MemberId, SessionId};
use potluck_core::placement::{Plan, Refusal};
use potluck_core::policy::{AckLevel, AskedPolicy};
use potluck_core::rights::Right;
use potluck_pool::{NewSession, Pool, QuotaRoom, Ticketed};
use potluck_wire::control::{
    Abort, Condition, Done, DonorAccess, Grow, GrowingFile, Grown, Held, Interrupted, Offer,
    Offered, Renew, Renewed, Reserve, Reserved,
};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

handles! {
    /// The handles for answering the calls of write sessions.
    pub struct WriteSessionCalls {
        settings: Arc<Settings>,
        env: Env,
        term: Arc<OwnTerm>,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        rates: Arc<SessionRates>,
        wait_until: WaitingForDonors,
        tickets: TicketIssuer,
        sessions: WriteSessions,
        access: Access,
    }
}

/// The time for which a request waits for room that interrupted uploads held.
const MAKING_ROOM: Duration = Duration::from_secs(8);
/// The time between two looks at whether the room is there.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl WriteSessionCalls {
    /// Places something of `member` that needs room in the pool. If there is too little, it ends interrupted uploads
    /// that may give way, and waits for their room, no longer than [`MAKING_ROOM`].
    async fn with_room<T>(
        &self,
        member: MemberId,
        interrupted: &Interrupted,
        place: impl Fn(&mut Pool) -> Result<T, Refusal>,
    ) -> Result<Result<T, Refusal>, Error> {
        let began = self.time.tick();
        let mut making = false;
        loop {
            let placed = place(&mut self.pool.lock());
            let Err(Refusal::NoSpace { ask, have }) = placed else { return Ok(placed) };
            let (stay, go_on) = match interrupted {
                Interrupted::Stay => return Ok(placed),
                Interrupted::GiveWay => (BTreeSet::new(), false),
                Interrupted::GoOn(offering) => {
                    self.pool.lock().gone_on_with(offering, member, self.time.tick())
                }
            };
            let parked = self.pool.lock().parked_for(ask.saturating_sub(have), &stay);
            // An upload that is gone on with and is not silent yet may be soon.
            making |= !parked.is_empty() || go_on;
            for session in parked {
                self.sessions.end(session).await?;
            }
            if !making || self.time.tick().saturating_sub(began) > MAKING_ROOM {
                return Ok(placed);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

impl Answer<Reserve> for WriteSessionCalls {
    async fn answer(self, call: Reserve, caller: CallingMember) -> Result<Reserved, Failure> {
        let member = caller.member()?.member;
        let rights = self.access.need(&caller, Right::Write, &call.path).await?;
        if self.pool.lock().has_most_sessions(member) {
            let what = "this member has as many write sessions as one may have at once";
            return Err(Failure::new(ErrorKind::Retry, code::TOO_MANY_SESSIONS, what)
                .hint("let some of its uploads end first, or join as another member"));
        }
        let path = call.path.clone();
        let bytes = call.bytes.unwrap_or_default();
        let admitted = self.catalog.admit_write(call.path, call.condition, bytes).await?;
        let AdmittedWrite { space, limits, replaced } = admitted;
        if space.keys.is_some() {
            caller.need_unsealing()?;
        }
        let policy = space.policy.with(&call.policy).map_err(|why| failure::of_policy(&why))?;
        let asked = AskedPolicy { over: call.policy, may_lower: rights.allow(Right::Manage) };
        if !asked.is_allowed_by(&space.policy) {
            return Err(Error::LessSafe(path).into());
        }
        let new = NewSession {
            id: SessionId::in_term(self.term.start, self.env.entropy.u64()),
            member,
            space: space.id,
            policy,
            asked,
            room: None,
            peer: Some(caller.peer),
            link: call.link,
        };
        // A file whose content is in the catalog needs no donor.
        let more = bytes;
        let bytes = call.bytes.map(|bytes| if bytes <= INLINE_MAX { 0 } else { bytes });
        if bytes != Some(0) {
            self.wait_until.donors_reported(Pool::expects_reports).await;
        }
        let redundancy = new.policy.redundancy();
        let opened = self.with_room(member, &call.interrupted, |pool| {
            let now = self.time.tick();
            let own = pool.reservation_at(&path);
            let promised = |spaces: &_| pool.promised_in(spaces, own);
            // The files that a tree replaces are not known before its commit.
            if let Some(Err(over)) = replaced.map(|gone| limits.admit_beside(promised, more, gone))
            {
                return Ok(Err(over));
            }
            let quotas = QuotaRoom {
                left: limits.left(promised).saturating_add(replaced.unwrap_or_default()),
                whole: limits.whole(promised),
            };
            let ticketed = pool.open_session_at(&path, new.clone(), bytes, quotas, now)?;
            let contacts = ticket_issuer::contacts(pool, ticketed.plan.donors(), now);
            Ok(Ok((ticketed, contacts)))
        });
        let refused = |why| {
            let (pool, now) = (self.pool.lock(), self.time.tick());
            failure::of_placement(why, redundancy, &pool, now)
        };
        let (ticketed, contacts) = opened.await?.map_err(refused)??;
        let (key, space_key) = match space.keys {
            Some(keys) => (Some(keys.current), keys.current_key().cloned()),
            None => (None, None),
        };
        self.keep(&new, &ticketed, key).await?;
        self.rates.opened(new.id, self.time.tick());
        self.sessions.keep_reservation(new.id).await?;
        Ok(Reserved {
            session: new.id,
            lease_ms: self.settings.get().lease.as_millis() as u64,
            policy: new.policy,
            space: space.id,
            space_key,
            donors: self.tickets.for_writing(new.id, &ticketed, contacts),
            plan: ticketed.plan,
            striping: ticketed.striping,
        })
    }
}

impl WriteSessionCalls {
    /// Enters a session for a call that may name the file that it writes. A member who lost the right to write that
    /// file is told so, and not only that the session is over.
    async fn enter(
        &self,
        caller: &CallingMember,
        session: SessionId,
        file: Option<&GrowingFile>,
    ) -> Result<(Ticketed, SessionGuard), Failure> {
        if let Some(GrowingFile { path, .. }) = file {
            self.access.need(caller, Right::Write, path).await?;
        }
        self.sessions.enter(session, caller).await
    }

    /// Refuses a file that is written to donors while it grows, as soon as a quota would refuse its commit.
    async fn admit_growing(
        &self,
        session: SessionId,
        file: Option<GrowingFile>,
    ) -> Result<(), Failure> {
        let Some(GrowingFile { path, bytes }) = file else { return Ok(()) };
        let admission = self.catalog.admit_write(path.clone(), Condition::Always, bytes).await?;
        let AdmittedWrite { limits, replaced: Some(replaced), .. } = admission else {
            return Ok(());
        };
        let pool = self.pool.lock();
        let own = pool.draws_on(&session).or_else(|| pool.reservation_at(&path));
        Ok(limits.admit_beside(|spaces| pool.reserved_in(spaces, own), bytes, replaced)?)
    }

    /// Returns how a session reaches the donors of its plan. Donors in whose names its member had false receipts are
    /// shown as away, so that their chunks are sent to others, unless there are too few others for the redundancy.
    fn access(
        &self,
        caller: &CallingMember,
        session: SessionId,
        ticketed: &Ticketed,
    ) -> Result<Vec<DonorAccess>, Failure> {
        let (member, now) = (caller.member()?.member, self.time.tick());
        let contacts = {
            let pool = self.pool.lock();
            let distrusted = pool.distrusted_by(member, now);
            let mut contacts = ticket_issuer::contacts(&pool, ticketed.plan.donors(), now);
            let others = contacts.iter().filter(|it| it.live && !distrusted.contains(&it.donor));
            if others.count() >= ticketed.policy.redundancy().donors() as usize {
                for contact in contacts.iter_mut().filter(|it| distrusted.contains(&it.donor)) {
                    contact.live = false;
                }
            }
            contacts
        };
        Ok(self.tickets.for_writing(session, ticketed, contacts))
    }

    /// Keeps a new session, whose files are sealed with key `key`, in the catalog, so that it survives a restart of the
    /// manager. If that fails, the session is
    /// taken back.
    async fn keep(
        &self,
        new: &NewSession,
        ticketed: &Ticketed,
        key: Option<KeyNumber>,
    ) -> Result<(), Failure> {
        let (draws_on, counted) = {
            let pool = self.pool.lock();
            (pool.draws_on(&new.id), pool.counted(&new.id))
        };
        let stored = StoredSession {
            id: new.id,
            member: new.member,
            space: new.space,
            policy: new.policy.clone(),
            asked: new.asked,
            plan: ticketed.plan.clone(),
            bytes: ticketed.bytes,
            ended: false,
            room: None,
            draws_on,
            counted,
            key,
        };
        let kept = self.catalog.open_session(stored).await;
        if kept.is_err() {
            self.pool.lock().take_back(&new.id);
        }
        Ok(kept?)
    }
}

impl Answer<Grow> for WriteSessionCalls {
    async fn answer(self, call: Grow, caller: CallingMember) -> Result<Grown, Failure> {
        let (entered, _guard) = self.enter(&caller, call.session, call.file.as_ref()).await?;
        self.admit_growing(call.session, call.file).await?;
        self.wait_until.donors_reported(Pool::expects_reports).await;
        let (session, redundancy) = (call.session, entered.policy.redundancy());
        self.pool.lock().calls_from(&session, caller.peer);
        if call.bytes == 0 {
            let mut donors = self.access(&caller, session, &entered)?;
            let others = call.holders.into_iter().collect::<BTreeSet<_>>();
            let others = &others - &entered.plan.donors().into_iter().collect();
            let contacts = ticket_issuer::contacts(&self.pool.lock(), others, self.time.tick());
            donors.extend(self.tickets.for_reading(caller.member()?.member, contacts));
            return Ok(Grown { plan: Plan { sections: Vec::new(), ..entered.plan }, donors });
        }
        let limits = self.sessions.limits(entered.space).await?;
        let member = caller.member()?.member;
        let grown = self.with_room(member, &Interrupted::GiveWay, |pool| {
            let now = self.time.tick();
            let own = pool.draws_on(&session);
            let promised = |spaces: &_| pool.promised_in(spaces, own);
            let quotas = QuotaRoom { left: limits.left(promised), whole: limits.whole(promised) };
            let (bytes, places) = (call.bytes, (&call.avoid[..], call.whole));
            let before = pool.counted(&session);
            let plan = pool.grow_session_within(&session, bytes, quotas, places, now)?;
            let contacts = ticket_issuer::contacts(pool, plan.donors(), now);
            let counted = pool.counted(&session).saturating_sub(before);
            Ok((plan, pool.ticketed(&session), counted, contacts))
        });
        let refused = |why| {
            let (pool, now) = (self.pool.lock(), self.time.tick());
            if !pool.goes_on(&session) {
                return Failure::from(Error::NoSession);
            }
            failure::of_placement(why, redundancy, &pool, now)
        };
        let (plan, ticketed, counted, contacts) = grown.await?.map_err(refused)?;
        let ticketed = ticketed.ok_or_else(|| Failure::from(Error::NoSession))?;
        let (kept, bytes) = (ticketed.plan.clone(), ticketed.bytes);
        self.catalog.grow_session(session, kept, bytes, counted).await?;
        self.sessions.keep_reservation(session).await?;
        Ok(Grown { plan, donors: self.tickets.for_writing(session, &ticketed, contacts) })
    }
}

impl Answer<Renew> for WriteSessionCalls {
    async fn answer(self, call: Renew, caller: CallingMember) -> Result<Renewed, Failure> {
        let (mut ticketed, _guard) = self.sessions.enter(call.session, &caller).await?;
        {
            let mut pool = self.pool.lock();
            pool.told_traffic(ticketed.member, &call.traffic, self.time.tick());
            pool.allow_more(&call.session, &call.refused);
            ticketed = pool.ticketed(&call.session).unwrap_or(ticketed);
        }
        Ok(Renewed { donors: self.access(&caller, call.session, &ticketed)? })
    }
}

impl Answer<Abort> for WriteSessionCalls {
    async fn answer(self, call: Abort, caller: CallingMember) -> Result<Done, Failure> {
        // If the session is over already, there is nothing to abort, and the call succeeds.
        if let Ok(_guard) = self.sessions.enter_to_leave(call.session, &caller) {
            match call.keep {
                true => self.sessions.interrupt(call.session).await?,
                false => self.sessions.end(call.session).await?,
            }
        }
        Ok(Done {})
    }
}

impl Answer<Offer> for WriteSessionCalls {
    async fn answer(self, call: Offer, caller: CallingMember) -> Result<Offered, Failure> {
        let (_, _guard) = self.enter(&caller, call.session, call.so_far.as_ref()).await?;
        self.admit_growing(call.session, call.so_far).await?;
        // Copies at a donor that has not listed them do not count yet, and would all be sent again.
        self.wait_until.donors_reported(Pool::expects_listings).await;
        let (session, names, ack) = (call.session, call.chunks.0, call.ack);
        // The chunks are protected first and looked up then: no chunk that a session has offered is condemned, so one
        // that is found in use stays.
        let new = self.pool.lock().offer(&session, &names)?;
        let asked = Arc::new(names);
        let asker = ChunkAsker { seen: self.access.seen(&caller).await?, session: Some(session) };
        let sees_all = asker.seen.are_all();
        let found = self.catalog.offer(session, new, Arc::clone(&asked), ack, asker).await?;

        let (mut held, mut unused) = (Vec::new(), Vec::new());
        {
            let (pool, now) = (self.pool.lock(), self.time.tick());
            for (index, (name, found)) in (0..).zip(asked.iter().zip(found)) {
                let KnownChunk { used, is_hidden, mut donors } = found;
                let is_told = used || sees_all || pool.tells_of_unused(&session, name);
                if is_hidden || !is_told {
                    continue;
                }
                // Chunks that donors told of, and that the catalog does not know, may be in memory only, and be lost
                // with it.
                let told = pool.uncommitted_since_start(name);
                let told = told.filter(|_| ack == AckLevel::Memory && !used);
                let (len, told) = told.unwrap_or_default();
                donors.extend(told);
                // A chunk whose copies are leaving or at donors that are not trusted is sent again: this is how writing
                // a damaged file again mends it. Few offers have copies, so that not all donors are looked at for each.
                donors.retain(|donor| pool.relies_on(*donor, name, now));
                donors.sort_unstable();
                donors.dedup();
                match donors.is_empty() {
                    true => {}
                    false if used => held.push(Held { index, donors, unused: false }),
                    false => unused.push((index, UnusedChunk { name: *name, len, donors })),
                }
            }
        }
        if !unused.is_empty() {
            held.extend(self.catalog.keep_unused(unused, self.time.now_ms()).await?);
        }
        self.pool.lock().told(&session, held.iter().map(|it| &asked[it.index as usize]));
        Ok(Offered { held })
    }
}
