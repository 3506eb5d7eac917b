//! Names of files that programs made with `O_EXCL` and that are not published yet. The manager reserves them for this
//! mount for as long as it keeps its authorities over locks, so that of all mounts one gets a name.

use super::{Locks, MountLocks, PAUSE};
use crate::errno::errno;
use potluck_core::path::PoolPath;
use potluck_wire::control::{LOCK_LEASE, NameFree, NameReserve, NameReserved};
use rustix::io::Errno;
use std::sync::Arc;
use tokio::runtime::Handle;

/// The state of a name that a program of this mount makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameState {
    /// The manager is being asked for the name.
    Asked,
    /// The manager counts the name as reserved for this mount.
    Reserved,
    /// The manager has not heard the mount for too long, and others may have had the name since.
    Lost,
}

/// A name that is reserved for this mount until it is freed, or a file is published under it. One that is dropped is
/// freed a moment later.
pub struct ReservedName {
    locks: Arc<MountLocks>,
    path: PoolPath,
    is_free: bool,
}

impl Locks {
    /// Returns whether the manager counts nothing as this mount's.
    pub(super) fn has_nothing(&self) -> bool {
        let has_names = self.names.values().any(|state| *state == NameState::Reserved);
        !has_names && self.files.values().all(|file| !file.is_granted())
    }

    /// Notes that the manager does not count names as reserved for this mount any more.
    pub(super) fn lose_names(&mut self, lost: &[PoolPath]) {
        let states = self.names.iter_mut().filter(|(path, _)| lost.contains(path));
        states.for_each(|(_, state)| *state = NameState::Lost);
    }

    /// Returns the names that the manager counts as reserved for this mount.
    pub(super) fn reserved(&self) -> Vec<PoolPath> {
        let reserved = self.names.iter().filter(|(_, state)| **state == NameState::Reserved);
        reserved.map(|(path, _)| path.clone()).collect()
    }
}

impl MountLocks {
    /// Reserves the name of a file that a program makes.
    ///
    /// Errors: [`Errno::EXIST`] if somebody in the pool has the name; those of the call to the manager.
    pub async fn reserve(self: &Arc<Self>, path: PoolPath) -> Result<ReservedName, Errno> {
        {
            let mut state = self.state();
            if state.names.contains_key(&path) {
                return Err(Errno::EXIST); // another program of this machine makes it
            }
            state.names.insert(path.clone(), NameState::Asked);
        }
        let name = ReservedName { locks: Arc::clone(self), path, is_free: false };
        match self.ask_for_name(&name.path).await {
            Ok(true) => Ok(name),
            Ok(false) => {
                name.published();
                Err(Errno::EXIST)
            }
            Err(why) => Err(why),
        }
    }

    /// Asks the manager for a name; returns whether the mount has it.
    async fn ask_for_name(self: &Arc<Self>, path: &PoolPath) -> Result<bool, Errno> {
        loop {
            let is_first = self.state().has_nothing();
            let asked = self.pool.now();
            let call = NameReserve { holder: self.holder, is_first, path: path.clone() };
            match self.pool.call(&call).await.map_err(|failure| errno(&failure))? {
                NameReserved::Reserved => {
                    let mut state = self.state();
                    if is_first {
                        state.valid_until = state.valid_until.max(asked + LOCK_LEASE);
                    }
                    state.names.insert(path.clone(), NameState::Reserved);
                    drop(state);
                    self.has_to_be_kept();
                    return Ok(true);
                }
                NameReserved::Taken => return Ok(false),
                NameReserved::NotYet => {}
                NameReserved::Unknown => {
                    self.state().is_unknown = true;
                    self.changed.notify_waiters(); // the task that keeps the lease tells the manager all
                }
            }
            self.changed_within(PAUSE).await;
        }
    }

    async fn free(&self, path: PoolPath) {
        let call = NameFree { holder: self.holder, path };
        // If this fails, the name is free for others when this mount has ended.
        if let Err(failure) = self.pool.call(&call).await {
            tracing::debug!(%failure, "a reserved name was not freed");
        }
    }

    /// Frees the names that the manager was told to be reserved and that no program needs any more.
    pub(super) async fn free_outdated(&self, told: Vec<PoolPath>) {
        for path in told {
            let is_needed = self.state().names.contains_key(&path);
            if !is_needed {
                self.free(path).await;
            }
        }
    }
}

impl ReservedName {
    /// Reserves the name anew if it was lost.
    ///
    /// Errors: [`Errno::EXIST`] if somebody else has it now; those of the call to the manager.
    pub async fn is_still_reserved(&self) -> Result<(), Errno> {
        let is_lost = self.locks.state().names.get(&self.path) == Some(&NameState::Lost);
        if is_lost && !self.locks.ask_for_name(&self.path).await? {
            return Err(Errno::EXIST);
        }
        Ok(())
    }

    /// Notes that the manager does not count the name as reserved any more, because a file was published under it.
    pub fn published(mut self) {
        self.forget();
    }

    /// Frees the name. The mount forgets it only then: a program that reserved it anew before would lose it by this call.
    pub async fn free(mut self) {
        self.locks.free(self.path.clone()).await;
        self.forget();
    }

    fn forget(&mut self) {
        self.is_free = true;
        self.locks.state().names.remove(&self.path);
    }
}

impl Drop for ReservedName {
    fn drop(&mut self) {
        if self.is_free {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return self.forget() };
        let (locks, path) = (Arc::clone(&self.locks), self.path.clone());
        runtime.spawn(async move {
            locks.free(path.clone()).await;
            locks.state().names.remove(&path);
        });
    }
}
