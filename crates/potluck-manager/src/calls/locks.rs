//! Answers the calls about the authority over locks of files.

use super::Answer;
use crate::access::Access;
use crate::callers::CallingMember;
use crate::handles::handles;
use crate::lock_table::{HolderKey, LockTable, SharedLockTable, Taking};
use crate::pool_time::PoolTime;
use potluck_catalog::{Catalog, Error};
use potluck_core::path::PoolPath;
use potluck_core::rights::Right;
use potluck_wire::control::{
    Done, LOCK_LEASE, LOCK_WAIT, LockAuthority, LockGive, LockKeep, LockKept, LockLevel, LockTake,
    LockTaken, NameFree, NameReserve, NameReserved,
};
use potluck_wire::error::Failure;
use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard};

handles! {
    /// The handles for answering calls about locks.
    pub struct LockCalls {
        time: PoolTime,
        access: Access,
        catalog: Catalog,
        locks: SharedLockTable,
    }
}

impl LockCalls {
    fn table(&self) -> MutexGuard<'_, LockTable> {
        self.locks.lock().expect("no holder panics")
    }

    /// Returns true for [`LOCK_LEASE`] after a restart: a holder may have an authority that an earlier manager granted,
    /// and may not have said so yet.
    fn is_just_restarted(&self) -> bool {
        self.time.is_restarted_within(LOCK_LEASE)
    }

    /// Tries to take the exclusive authority over a file for one call, for [`LOCK_WAIT`], or after a restart until all
    /// holders were heard that there can be.
    ///
    /// Errors: [`code::TOO_MANY_LOCKS`](potluck_wire::error::code::TOO_MANY_LOCKS).
    pub(super) async fn lock_for_call(
        &self,
        key: HolderKey,
        path: &PoolPath,
    ) -> Result<CallLock, Failure> {
        let lock = CallLock { locks: Arc::clone(&self.locks), key, path: path.clone() };
        let authority = LockAuthority { path: path.clone(), level: LockLevel::Exclusive };
        let call = LockTake { holder: key.1, is_first: true, authority, waits: true };
        loop {
            match tokio::time::timeout(LOCK_WAIT, self.try_to_take(key, &call)).await {
                Ok(taken) => return taken.map(|_| lock),
                Err(_) if self.is_just_restarted() => {}
                Err(_) => return Ok(lock),
            }
        }
    }

    async fn try_to_take(&self, key: HolderKey, call: &LockTake) -> Result<LockTaken, Failure> {
        let mut is_first = call.is_first;
        loop {
            let (may_grant, now) = (!self.is_just_restarted(), self.time.tick());
            let taking = self.table().take(key, is_first, &call.authority, may_grant, now)?;
            let freed = match taking {
                Taking::Granted => return Ok(LockTaken::Granted),
                Taking::Unknown => return Ok(LockTaken::Unknown),
                Taking::Busy(_) if !call.waits => return Ok(LockTaken::Busy),
                Taking::Busy(freed) | Taking::Waits(freed) => freed,
            };
            is_first = false;
            let mut freed = std::pin::pin!(freed.notified());
            // From here on any authority that is given back wakes this task, also before it waits.
            freed.as_mut().enable();
            let taking = self.table().take(key, false, &call.authority, may_grant, now)?;
            match taking {
                Taking::Granted => return Ok(LockTaken::Granted),
                Taking::Busy(_) if !call.waits => return Ok(LockTaken::Busy),
                _ => freed.await,
            }
        }
    }
}

/// The part of one call in the locks of a file: the exclusive authority, or a try to get it. It ends when this is
/// dropped.
pub(super) struct CallLock {
    locks: SharedLockTable,
    key: HolderKey,
    path: PoolPath,
}

impl CallLock {
    /// Returns the holders that kept the authority; none if the call has it.
    pub(super) fn refused_by(&self) -> Vec<HolderKey> {
        self.locks.lock().expect("no holder panics").held_beside(self.key, &self.path)
    }
}

impl Drop for CallLock {
    fn drop(&mut self) {
        let mut table = self.locks.lock().expect("no holder panics");
        table.leave_row(self.key, &self.path);
        table.release(self.key);
    }
}

fn needed(level: LockLevel) -> Right {
    match level {
        LockLevel::Shared => Right::Read,
        LockLevel::Exclusive => Right::Write,
    }
}

impl Answer<LockTake> for LockCalls {
    async fn answer(self, call: LockTake, caller: CallingMember) -> Result<LockTaken, Failure> {
        let authority = &call.authority;
        self.access.need_in_a_space(&caller, needed(authority.level), &authority.path).await?;
        let key = (caller.member()?.member, call.holder);
        let taken = tokio::time::timeout(LOCK_WAIT, self.try_to_take(key, &call)).await;
        let late = if self.is_just_restarted() { LockTaken::NotYet } else { LockTaken::Busy };
        let taken = taken.unwrap_or(Ok(late));
        if !call.waits && !matches!(taken, Ok(LockTaken::Granted)) {
            self.table().leave_row(key, &authority.path);
        }
        taken
    }
}

impl Answer<LockKeep> for LockCalls {
    async fn answer(self, call: LockKeep, caller: CallingMember) -> Result<LockKept, Failure> {
        let LockKeep { holder, held, reserved, busy } = call;
        let key = (caller.member()?.member, holder);
        let (mut lost, mut lost_names) = (Vec::new(), Vec::new());
        let says_all = held.is_some();
        let said = held.as_ref().map_or(0, Vec::len) + reserved.len();
        LockTable::check_claim(said.max(busy.len()))?;
        let busy: BTreeSet<PoolPath> = busy.into_iter().collect();
        if let Some(held) = held {
            // Read once, because a call may name very many spaces, of which there need not be one.
            let seen = self.access.seen(&caller).await?;
            let may = |path: &PoolPath, right| {
                !path.space().is_empty() && seen.rights(path.space()).allow(right)
            };
            let (allowed, refused): (Vec<_>, Vec<_>) =
                held.into_iter().partition(|it| may(&it.path, needed(it.level)));
            let (names, refused_names): (Vec<_>, Vec<_>) =
                reserved.into_iter().partition(|path| may(path, Right::Write));
            lost.extend(refused.into_iter().map(|authority| authority.path));
            lost_names.extend(refused_names);
            let (is_believed, now) = (self.is_just_restarted(), self.time.tick());
            let mut table = self.table();
            lost.extend(table.reclaim(key, allowed, is_believed, now)?);
            lost_names.extend(table.reclaim_names(key, names, is_believed));
        }
        let woken = self.table().hear(key, self.time.tick());
        let Some(woken) = woken else {
            return Ok(LockKept { unknown: true, ..LockKept::default() });
        };
        let mut woken = std::pin::pin!(woken.notified());
        woken.as_mut().enable();
        let before = {
            let mut table = self.table();
            busy.iter().for_each(|path| table.refuse(key, path));
            table.wanted(key)
        };
        let is_news = before.iter().any(|wanted| !busy.contains(&wanted.path));
        // A call that says all may be long, and the next long call of the same owner is not read before its answer.
        if !says_all && lost.is_empty() && !is_news {
            let _ = tokio::time::timeout(LOCK_WAIT, woken).await; // after that the reply says that nothing changed
        }
        // The holder counts as heard when the call came, not now, because it may have died during the wait.
        let wanted = self.table().wanted(key);
        Ok(LockKept { unknown: false, lost, lost_names, wanted })
    }
}

impl Answer<LockGive> for LockCalls {
    async fn answer(self, call: LockGive, caller: CallingMember) -> Result<Done, Failure> {
        let key = (caller.member()?.member, call.holder);
        self.table().give(key, &call.path, call.keeps);
        Ok(Done {})
    }
}

impl Answer<NameReserve> for LockCalls {
    async fn answer(
        self,
        call: NameReserve,
        caller: CallingMember,
    ) -> Result<NameReserved, Failure> {
        let NameReserve { holder, is_first, path } = call;
        self.access.need_in_a_space(&caller, Right::Write, &path).await?;
        let key = (caller.member()?.member, holder);
        let (may_grant, now) = (!self.is_just_restarted(), self.time.tick());
        let reserved = self.table().reserve(key, is_first, &path, may_grant, now)?;
        if reserved != NameReserved::Reserved {
            return Ok(reserved);
        }
        // A file of this name that was published before has freed it only then, so it is found now.
        let there = self.catalog.stat(path.clone()).await;
        if matches!(there, Err(Error::NoEntry(_))) {
            return Ok(NameReserved::Reserved);
        }
        self.table().free(key, &path);
        there?;
        Ok(NameReserved::Taken)
    }
}

impl Answer<NameFree> for LockCalls {
    async fn answer(self, call: NameFree, caller: CallingMember) -> Result<Done, Failure> {
        let key = (caller.member()?.member, call.holder);
        self.table().free(key, &call.path);
        Ok(Done {})
    }
}
