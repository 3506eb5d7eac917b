//! Open write sessions: lets their members' calls in, and ends them.

use crate::callers::CallingMember;
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::recurring_notices::{Notice, RecurringNotices};
use crate::session_rates::SessionRates;
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use crate::wakeup::Wakeup;
use potluck_catalog::{Catalog, Error, QuotaLimits};
use potluck_core::ids::{SessionId, SpaceId};
use potluck_core::path::PoolPath;
use potluck_pool::Ticketed;
use potluck_wire::control::Condition;
use potluck_wire::error::Failure;
use std::sync::Arc;

handles! {
    /// The handles for letting sessions' calls in and ending sessions.
    pub struct WriteSessions {
        settings: Arc<Settings>,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        rates: Arc<SessionRates>,
        background: Wakeup,
        notices: Arc<RecurringNotices>,
    }
}

impl WriteSessions {
    /// Lets one of a session's calls in; while the guard lives, the session's lease does not end. A session that was
    /// parked goes on, as far as quotas allow it: what it stored did not count meanwhile, and others may have been
    /// promised as much.
    pub async fn enter(
        &self,
        session: SessionId,
        caller: &CallingMember,
    ) -> Result<(Ticketed, SessionGuard), Failure> {
        let member = caller.member()?.member;
        let mut limits: Option<QuotaLimits> = None;
        let ticketed = loop {
            let parked_in = {
                let mut pool = self.pool.lock();
                match (pool.parked_in(&session, member), &limits) {
                    (Some(space), None) => space,
                    (None, _) => break pool.enter(&session, member, self.time.tick())?,
                    (Some(_), Some(limits)) => {
                        let own = pool.draws_on(&session);
                        let promised = |spaces: &_| pool.promised_in(spaces, own);
                        limits.admit_whole(promised, pool.counted(&session))?;
                        break pool.enter(&session, member, self.time.tick())?;
                    }
                }
            };
            limits = Some(self.limits(parked_in).await?);
        };
        Ok((ticketed, self.guard(session)))
    }

    /// Lets the call in that interrupts a session or ends it, whatever quotas say.
    pub fn enter_to_leave(
        &self,
        session: SessionId,
        caller: &CallingMember,
    ) -> Result<SessionGuard, Failure> {
        let member = caller.member()?.member;
        self.pool.lock().enter(&session, member, self.time.tick())?;
        Ok(self.guard(session))
    }

    fn guard(&self, session: SessionId) -> SessionGuard {
        SessionGuard::new(self.pool.clone(), self.time.clone(), session)
    }

    /// Returns the quotas that the files of a space come under.
    pub async fn limits(&self, space: SpaceId) -> Result<QuotaLimits, Error> {
        let space = self.catalog.space(space).await?.ok_or(Error::NoSession)?;
        let root = PoolPath::space_root(&space.name).map_err(|why| Error::Bug(why.to_string()))?;
        Ok(self.catalog.admit_write(root, Condition::Always, 0).await?.limits)
    }

    /// Ends a session; the chunks that it offered are accounted for in the background.
    pub async fn end(&self, session: SessionId) -> Result<(), Error> {
        self.catalog.end_session(session).await?;
        self.close(session, false).await
    }

    /// Ends a session whose member may not write any more: donors take nothing more of it, either.
    pub async fn cut_off(&self, session: SessionId) -> Result<(), Error> {
        self.pool.lock().cut_off(&session, self.time.tick());
        self.end(session).await
    }

    /// Closes a session that has ended in the catalog: the space that was promised to it is free, and the chunks that
    /// it offered are accounted for in the background. It `is_done` if it has committed all that it will.
    pub async fn close(&self, session: SessionId, is_done: bool) -> Result<(), Error> {
        let now = self.time.tick();
        {
            let mut pool = self.pool.lock();
            if is_done {
                pool.session_is_done(&session, now);
            }
            pool.end_session(&session);
        }
        self.rates.ended(session, now);
        self.background.wake();
        self.keep_reservation(session).await
    }

    /// Saves the rest of the reservation on which a session draws, for when the manager is started again.
    pub async fn keep_reservation(&self, session: SessionId) -> Result<(), Error> {
        let left = self.pool.lock().reservation_plan(&session);
        match left {
            Some((reservation, plan, bytes)) => {
                self.catalog.grow_session(reservation, plan, bytes, 0).await
            }
            None => Ok(()),
        }
    }

    /// Returns whether the log is to tell now of an event of a session; see [`RecurringNotices::tells`].
    pub fn tells(&self, what: Notice, session: SessionId) -> bool {
        let member = self.pool.lock().member_of(&session);
        member.is_none_or(|member| self.notices.tells(what, member, 1, self.time.tick()))
    }

    /// Ends a session that was interrupted, or keeps the chunks that it stored until the upload is resumed.
    pub async fn interrupt(&self, session: SessionId) -> Result<(), Error> {
        let now = self.time.tick();
        let window = self.settings.get().resume_window;
        if !window.is_zero() && self.pool.lock().park_session(&session, now) {
            if self.tells(Notice::UploadKept, session) {
                tracing::info!(?session, "an interrupted upload is kept for a while");
            }
            return Ok(());
        }
        self.end(session).await
    }
}

/// The guard of a session's call that is being answered: the session's lease does not end meanwhile.
pub struct SessionGuard {
    pool: SharedPool,
    time: PoolTime,
    session: SessionId,
}

impl SessionGuard {
    /// Makes the guard of a call that [`Pool::enter`](potluck_pool::Pool::enter) let in.
    pub fn new(pool: SharedPool, time: PoolTime, session: SessionId) -> Self {
        Self { pool, time, session }
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.pool.lock().leave(&self.session, self.time.tick());
    }
}
