//! Locks that programs take through this mount. The manager grants the mount the authority over the locks of a file;
//! the mount keeps it by a call that also tells what other mounts want. Between programs of this machine the mount
//! arbitrates by itself (docs/notes/0014-locks-between-mounts.md).

mod names;
mod ranges;

pub use names::ReservedName;
pub use ranges::RangeLock;

use crate::errno::errno;
use names::NameState;
use potluck_client::{Pool, RetryLimits};
use potluck_core::clock::Tick;
use potluck_core::ids::LockHolderId;
use potluck_core::path::PoolPath;
use potluck_wire::control::{
    LOCK_LEASE, LockAuthority, LockGive, LockKeep, LockLevel, LockTake, LockTaken,
};
use potluck_wire::env;
use potluck_wire::error::Failure;
use ranges::RangeLocks;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard};

/// The pause after a call to the manager that failed.
const PAUSE: Duration = Duration::from_millis(500);

/// All locks of a mount.
pub struct MountLocks {
    pool: Pool,
    /// The pool for calls that do not wait for a manager that is away, so that the end of a lease is noticed.
    keeping: Pool,
    holder: LockHolderId,
    state: Mutex<Locks>,
    /// Notified when something about locks, authorities or the lease changes.
    changed: Notify,
    /// Notified when a program gave up a lock, or the manager told what others want: an authority may have to be given
    /// back.
    concerned: Notify,
}

#[derive(Default)]
struct Locks {
    files: HashMap<u64, LockedFile>,
    /// The names of files that programs make and that are not published yet.
    names: BTreeMap<PoolPath, NameState>,
    /// The end of the lease, until which the granted authorities hold.
    valid_until: Tick,
    /// True while a task keeps the authorities.
    is_kept: bool,
    /// True if the manager has to be told all authorities of this mount.
    is_unknown: bool,
}

/// The locks of a file, by its number in the mount.
#[derive(Default)]
struct LockedFile {
    ranges: RangeLocks,
    authority: Option<Authority>,
    /// The authority that is being given back. It is held until the manager has it: others must not get it before they
    /// find in the pool what was written under it.
    returning: Option<LockAuthority>,
    /// The path for which the manager is being asked for an authority.
    asked: Option<PoolPath>,
    /// The owners of locks that were lost, until they unlock. What they have read may be out of date.
    lost: Vec<u64>,
    /// True while something that was written under lost locks might still be published, which must not happen.
    has_lost_draft: bool,
    /// The lock of the task that asks the manager about the file.
    turn: Arc<AsyncMutex<()>>,
}

/// The authority of this mount over the locks of a file.
#[derive(Clone)]
struct Authority {
    /// The path under which the authority was granted, which is kept when the file is renamed; `None` for a file
    /// without a name, which needs no grant.
    path: Option<PoolPath>,
    level: LockLevel,
    /// The level that other mounts want, if any does.
    wanted: Option<LockLevel>,
    /// True once programs find what others wrote before the mount had the authority.
    is_fresh: bool,
}

impl Authority {
    /// Returns whether programs may get a lock of this level by the authority. If no program has a lock (`is_in_use`),
    /// an authority that others want is given back first.
    fn allows(&self, level: LockLevel, is_in_use: bool) -> bool {
        let is_wanted = self.wanted.is_some_and(|wanted| !wanted.goes_with(level));
        self.is_fresh && self.level >= level && (is_in_use || !is_wanted)
    }
}

/// The outcome of a try to lock.
pub enum Locking {
    /// The program has the lock.
    Done,
    /// Another program of this machine has a lock that conflicts.
    Conflict,
    /// The authority has to be taken from the manager first.
    NeedsAuthority,
    /// The lease has run out, and it is not known yet whether it will be renewed.
    Uncertain,
}

/// The authority over a file that is to be given back to the manager, or reduced to the level `keeps`.
pub struct ReturnedAuthority {
    /// The number of the file in the mount.
    pub inode: u64,
    /// The turn of the file, so that its authority is not taken again before this is dropped.
    turn: OwnedMutexGuard<()>,
    path: PoolPath,
    keeps: Option<LockLevel>,
}

impl MountLocks {
    /// Makes the locks of a mount, which has none yet; `holder` is to be drawn at random.
    pub fn new(pool: Pool, holder: LockHolderId) -> Self {
        let at_once = RetryLimits { at_first: Duration::ZERO, ..pool.retry_limits() };
        let keeping = pool.with_retry_limits(at_once);
        let (state, changed, concerned) = Default::default();
        Self { pool, keeping, holder, state, changed, concerned }
    }

    fn state(&self) -> MutexGuard<'_, Locks> {
        self.state.lock().expect("no holder panics")
    }

    /// Returns a lock of another program of this mount that conflicts.
    pub fn conflict(&self, inode: u64, wanted: &RangeLock) -> Option<RangeLock> {
        self.state().files.get(&inode)?.ranges.conflict(wanted)
    }

    /// Tries to lock by the authority that the mount has.
    ///
    /// Errors: [`Errno::IO`] where the program lost locks of the file, [`Errno::NOLCK`] for too many.
    pub fn try_lock(&self, inode: u64, lock: RangeLock) -> Result<Locking, Errno> {
        let now = self.pool.now();
        let mut state = self.state();
        let is_valid = now < state.valid_until;
        let Some(file) = state.files.get_mut(&inode) else { return Ok(Locking::NeedsAuthority) };
        if file.lost.contains(&lock.owner) {
            return Err(Errno::IO);
        }
        if file.ranges.conflict(&lock).is_some() {
            return Ok(Locking::Conflict);
        }
        let is_in_use = file.ranges.level().is_some();
        match &file.authority {
            Some(authority) if !authority.allows(lock.level, is_in_use) => {
                Ok(Locking::NeedsAuthority)
            }
            Some(authority) if !is_valid && authority.path.is_some() => Ok(Locking::Uncertain),
            Some(_) => {
                file.ranges.add(lock).map_err(|_| Errno::NOLCK)?;
                // A shared lock in the place of an exclusive one may let others go on.
                drop(state);
                self.changed.notify_waiters();
                Ok(Locking::Done)
            }
            None => Ok(Locking::NeedsAuthority),
        }
    }

    /// Asks the manager for the authority that a lock needs. If it is new, locks are granted after [`Self::is_fresh`].
    /// `path` is `None` for a file without a name, which no other mount can open.
    ///
    /// Errors: those of the call to the manager.
    pub async fn take(
        self: &Arc<Self>,
        inode: u64,
        path: Option<PoolPath>,
        level: LockLevel,
        waits: bool,
    ) -> Result<Taken, Errno> {
        let turn = Arc::clone(&self.state().files.entry(inode).or_default().turn);
        let turn = turn.lock_owned().await;
        let (had, authority) = {
            let state = self.state();
            let file = state.files.get(&inode);
            let had = file.and_then(|file| file.authority.clone());
            let is_in_use = file.is_some_and(|file| file.ranges.level().is_some());
            if had.as_ref().is_some_and(|had| had.allows(level, is_in_use)) {
                return Ok(Taken::Granted { is_new: false }); // another program took it meanwhile
            }
            if had.as_ref().is_some_and(|had| had.level >= level && !had.is_fresh) {
                return Ok(Taken::Granted { is_new: true });
            }
            let path = had.as_ref().map_or(path, |had| had.path.clone());
            (had.map(|had| (had, is_in_use)), path.map(|path| LockAuthority { path, level }))
        };
        let Some(authority) = authority else {
            self.granted(inode, Authority { path: None, level, wanted: None, is_fresh: true });
            return Ok(Taken::Granted { is_new: false });
        };
        let is_held_beside = self.state().is_held_beside(inode, &authority.path);
        if let (Some((_, false)), false) = (&had, is_held_beside) {
            // Other mounts want the authority, or this lock needs a higher level. It is given back first: two mounts
            // that keep it shared, and want more, would wait for one another.
            if let Some(file) = self.state().files.get_mut(&inode) {
                file.returning = file.granted();
                file.authority = None;
            }
            let path = authority.path;
            return Ok(Taken::Outgrown(ReturnedAuthority { inode, turn, path, keeps: None }));
        }
        let _asking = self.ask(inode, &authority.path).await;
        let is_new = had.is_none();
        let is_first = self.state().has_nothing();
        let asked = self.pool.now();
        let call = LockTake { holder: self.holder, is_first, authority, waits };
        let taken = self.pool.call(&call).await.map_err(|failure| errno(&failure))?;
        match taken {
            LockTaken::Granted => {
                if is_first {
                    self.state().valid_until = asked + LOCK_LEASE;
                }
                let LockAuthority { path, level } = call.authority;
                let wanted = had.and_then(|(had, _)| had.wanted);
                let path = Some(path);
                self.granted(inode, Authority { path, level, wanted, is_fresh: !is_new });
                Ok(Taken::Granted { is_new })
            }
            LockTaken::Busy => Ok(Taken::Busy),
            LockTaken::NotYet => Ok(Taken::NotYet),
            LockTaken::Unknown => {
                self.state().is_unknown = true;
                self.changed.notify_waiters(); // the task that keeps the authorities tells the manager all of them
                Ok(Taken::NotYet)
            }
        }
    }

    /// Notes that the manager is asked for a path, after waiting until no other file of this mount gives the authority
    /// over that path back.
    async fn ask(&self, inode: u64, path: &PoolPath) -> Asking<'_> {
        self.changed(|| self.state().ask(inode, path).then_some(())).await;
        Asking { locks: self, inode }
    }

    /// Notes that programs now find in a file what others wrote before the mount got the authority.
    pub fn is_fresh(&self, inode: u64) {
        if let Some(file) = self.state().files.get_mut(&inode)
            && let Some(authority) = &mut file.authority
        {
            authority.is_fresh = true;
        }
        self.changed.notify_waiters();
    }

    fn granted(self: &Arc<Self>, inode: u64, authority: Authority) {
        self.state().files.entry(inode).or_default().authority = Some(authority);
        self.has_to_be_kept();
        self.changed.notify_waiters();
    }

    /// Begins to renew the lease, unless a task does so already.
    fn has_to_be_kept(self: &Arc<Self>) {
        let starts = !std::mem::replace(&mut self.state().is_kept, true);
        if starts {
            env::spawn(Arc::clone(self).keep());
        }
    }

    /// Removes the locks of `owner` from a range of a file.
    ///
    /// Errors: [`Errno::NOLCK`] if that would split a lock and the file has too many.
    pub fn unlock(&self, inode: u64, owner: u64, start: u64, end: u64) -> Result<(), Errno> {
        let mut state = self.state();
        let Some(file) = state.files.get_mut(&inode) else { return Ok(()) };
        file.ranges.remove(owner, start, end).map_err(|_| Errno::NOLCK)?;
        if !file.ranges.has_owner(owner) {
            file.lost.retain(|lost| *lost != owner);
        }
        drop(state);
        self.given_up();
        Ok(())
    }

    /// Removes all locks of `owner` from a file that it closes.
    pub fn unlock_all(&self, inode: u64, owner: u64) {
        let mut state = self.state();
        let Some(file) = state.files.get_mut(&inode) else { return };
        file.lost.retain(|lost| *lost != owner);
        let had = file.ranges.remove_owner(owner);
        drop(state);
        if had {
            self.given_up();
        }
    }

    fn given_up(&self) {
        self.changed.notify_waiters();
        self.concerned.notify_one();
    }

    /// Returns whether another owner has an exclusive lock on a file, and so may be in the middle of changing it.
    pub fn is_written_by_another(&self, inode: u64, owner: u64) -> bool {
        let state = self.state();
        state.files.get(&inode).is_some_and(|file| file.ranges.is_written_by_another(owner))
    }

    /// Returns whether the mount has the authority over a file, because programs lock it and so share it while they
    /// have it open.
    pub fn is_locked(&self, inode: u64) -> bool {
        self.state().files.get(&inode).is_some_and(|file| file.authority.is_some())
    }

    /// Returns whether a file may be published: true unless locks of it were lost. If the lease has run out, this waits
    /// until it is known, for as long as calls under way wait for a manager that is away.
    ///
    /// Errors: [`Errno::TIMEDOUT`] if it does not become known in that time.
    pub async fn may_publish(&self, inode: u64) -> Result<bool, Errno> {
        let may = || {
            let (now, state) = (self.pool.now(), self.state());
            let Some(file) = state.files.get(&inode) else { return Some(true) };
            let is_certain = now < state.valid_until || !file.is_granted();
            let is_unlocked = file.ranges.level().is_none() && file.returning.is_none();
            match file.lost.is_empty() && !file.has_lost_draft {
                true => (is_certain || is_unlocked).then_some(true),
                false => Some(false),
            }
        };
        let known = tokio::time::timeout(self.pool.retry_limits().under_way, self.changed(may));
        known.await.map_err(|_| Errno::TIMEDOUT)
    }

    /// Waits until `check` returns a value. It is called at once, and again whenever something about locks changes.
    async fn changed<T>(&self, check: impl Fn() -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(done) = check() {
                return done;
            }
            changed.await;
        }
    }

    /// Returns once something about locks changed, or `at_most` has passed.
    pub async fn changed_within(&self, at_most: Duration) {
        let _ = tokio::time::timeout(at_most, self.changed.notified()).await; // both outcomes are fine
    }

    /// Notes that no program has a file open any more; returns the authority if it is to be given back to the manager.
    pub fn closed(&self, inode: u64) -> Option<ReturnedAuthority> {
        let mut state = self.state();
        let file = state.files.get_mut(&inode)?;
        if file.ranges.level().is_some() {
            return None; // a lock has just come
        }
        let turn = Arc::clone(&file.turn).try_lock_owned().ok()?;
        let granted = file.granted();
        file.authority = None;
        match granted.filter(|granted| !state.is_held_beside(inode, &granted.path)) {
            Some(granted) => {
                let path = granted.path.clone();
                state.files.entry(inode).or_default().returning = Some(granted);
                Some(ReturnedAuthority { inode, turn, path, keeps: None })
            }
            None => {
                drop(turn);
                state.forget_unused(inode);
                None
            }
        }
    }

    /// Returns the authorities that other mounts want and no program needs. From now on no program gets a lock by them
    /// that conflicts with the wanted level.
    pub fn to_give_back(&self) -> Vec<ReturnedAuthority> {
        let mut state = self.state();
        let numbers: Vec<u64> = state.files.keys().copied().collect();
        numbers.into_iter().filter_map(|inode| state.give_back(inode)).collect()
    }

    /// Tells the manager that an authority is given back. By then others must find in the pool what was written under
    /// it.
    pub async fn give_back(&self, given: ReturnedAuthority) {
        let ReturnedAuthority { inode, turn, path, keeps } = given;
        let is_last = self.state().is_last(inode, &path);
        let call = LockGive { holder: self.holder, path, keeps };
        while is_last && let Err(failure) = self.pool.call(&call).await {
            tracing::debug!(%failure, "an authority over locks was not given back yet");
            tokio::time::sleep(PAUSE).await;
        }
        if let Some(file) = self.state().files.get_mut(&inode) {
            file.returning = None;
        }
        drop(turn);
        self.state().forget_unused(inode);
        self.given_up(); // another file of the same path may be the last one now
    }

    /// Returns the files of which locks were lost, and whose drafts must not be published.
    pub fn with_lost_drafts(&self) -> Vec<u64> {
        let state = self.state();
        let lost = state.files.iter().filter(|(_, file)| file.has_lost_draft);
        lost.map(|(inode, _)| *inode).collect()
    }

    /// Notes that the draft of a file was given up after its locks were lost.
    pub fn draft_is_lost(&self, inode: u64) {
        if let Some(file) = self.state().files.get_mut(&inode) {
            file.has_lost_draft = false;
        }
    }

    /// Waits until an authority may have to be given back: the manager answered, or a program gave up a lock.
    pub async fn concerned(&self) {
        self.concerned.notified().await;
    }

    /// Renews the lease of the authorities and reserved names until the mount has none.
    async fn keep(self: Arc<Self>) {
        loop {
            let (held, mut reserved, busy, says_all) = {
                let mut state = self.state();
                if state.has_nothing() {
                    state.is_kept = false;
                    return;
                }
                (state.held(), state.reserved(), state.busy(), state.is_unknown)
            };
            let asked = self.pool.now();
            let held = says_all.then_some(held);
            reserved.retain(|_| says_all);
            let (holder, busy_now) = (self.holder, busy.clone());
            let call = LockKeep { holder, held, reserved: reserved.clone(), busy: busy_now };
            let is_outdated = || {
                let state = self.state();
                (state.is_unknown || state.busy() != busy).then_some(())
            };
            let kept = tokio::select! {
                kept = self.keeping.call(&call) => kept,
                () = self.changed(is_outdated), if !says_all => continue,
            };
            match kept {
                Ok(kept) if kept.unknown => self.state().is_unknown = true,
                Ok(kept) => {
                    let strangers = {
                        let mut state = self.state();
                        state.is_unknown &= !says_all;
                        kept.lost.iter().for_each(|path| state.lose(path));
                        state.lose_names(&kept.lost_names);
                        state.valid_until = asked + LOCK_LEASE;
                        state.set_wanted(kept.wanted)
                    };
                    self.changed.notify_waiters();
                    self.concerned.notify_one();
                    self.free_outdated(reserved).await;
                    for path in strangers {
                        self.give_stranger(path).await;
                    }
                }
                Err(failure) => {
                    tracing::debug!(%failure, "authorities over locks were not renewed");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Gives back an authority that the manager granted in an answer that did not arrive.
    async fn give_stranger(&self, path: PoolPath) {
        let call = LockGive { holder: self.holder, path, keeps: None };
        let given: Result<_, Failure> = self.keeping.call(&call).await;
        if let Err(failure) = given {
            tracing::debug!(%failure, "it is told of again");
        }
    }
}

/// The mark that the manager is being asked for a path, which ends when this is dropped.
struct Asking<'a> {
    locks: &'a MountLocks,
    inode: u64,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut state = self.locks.state();
        if let Some(file) = state.files.get_mut(&self.inode) {
            file.asked = None;
        }
    }
}

/// The outcome of [`MountLocks::take`].
pub enum Taken {
    /// The mount has the authority; with `is_new` others may have had it since the mount had it last.
    Granted { is_new: bool },
    /// Other mounts need the authority.
    Busy,
    /// The manager does not know yet who has the authority, or it does not know what this mount has.
    NotYet,
    /// The mount has an authority that no program needs, which is to be given back before the next try.
    Outgrown(ReturnedAuthority),
}

impl LockedFile {
    /// Returns whether nothing has to be remembered of the file.
    fn is_unused(&self) -> bool {
        let has_nothing = !self.is_granted() && self.authority.is_none();
        let has_nothing = has_nothing && self.asked.is_none() && self.ranges.level().is_none();
        // A task that has the turn of the file, or waits for it, needs the entry.
        let is_alone = Arc::strong_count(&self.turn) == 1;
        has_nothing && is_alone && self.lost.is_empty() && !self.has_lost_draft
    }

    fn is_granted(&self) -> bool {
        let has_path = |authority: &Authority| authority.path.is_some();
        self.returning.is_some() || self.authority.as_ref().is_some_and(has_path)
    }

    /// Returns the authority that the manager counts as granted to the mount.
    fn granted(&self) -> Option<LockAuthority> {
        if let Some(returning) = &self.returning {
            return Some(returning.clone());
        }
        let Authority { path, level, .. } = self.authority.clone()?;
        Some(LockAuthority { path: path?, level })
    }
}

impl Locks {
    fn forget_unused(&mut self, inode: u64) {
        if self.files.get(&inode).is_some_and(LockedFile::is_unused) {
            self.files.remove(&inode);
        }
    }

    /// Notes that the manager is asked for a path; returns false while a file of this mount gives the authority over
    /// that path back.
    fn ask(&mut self, inode: u64, path: &PoolPath) -> bool {
        let mut returning = self.files.values().filter_map(|file| file.returning.as_ref());
        let is_free = returning.all(|returning| returning.path != *path);
        if is_free {
            self.files.entry(inode).or_default().asked = Some(path.clone());
        }
        is_free
    }

    /// Returns the other files of this mount that have, give back or ask for the authority over a path. There may be
    /// several, for a file keeps the path under which it was first locked, and another may have that path now. For the
    /// manager they are one.
    fn beside(&self, inode: u64, path: &PoolPath) -> impl Iterator<Item = &LockedFile> {
        self.files.iter().filter(move |(number, _)| **number != inode).map(|(_, file)| file).filter(
            move |file| {
                let granted = file.authority.as_ref().and_then(|authority| authority.path.as_ref());
                let returning = file.returning.as_ref().map(|returning| &returning.path);
                [granted, returning, file.asked.as_ref()].contains(&Some(path))
            },
        )
    }

    /// Returns whether the manager is to be told that a file gives its path back. If other files of this mount have the
    /// same path, this one only drops it, and the last one tells the manager.
    fn is_last(&mut self, inode: u64, path: &PoolPath) -> bool {
        let is_last = !self.is_held_beside(inode, path);
        if let (Some(file), false) = (self.files.get_mut(&inode), is_last) {
            file.returning = None;
        }
        is_last
    }

    fn is_held_beside(&self, inode: u64, path: &PoolPath) -> bool {
        self.beside(inode, path).next().is_some()
    }

    /// Returns all authorities that the manager counts as granted to the mount.
    fn held(&self) -> Vec<LockAuthority> {
        let mut held = BTreeMap::<PoolPath, LockLevel>::new();
        for LockAuthority { path, level } in self.files.values().filter_map(LockedFile::granted) {
            let most = held.entry(path).or_insert(level);
            *most = level.max(*most);
        }
        held.into_iter().map(|(path, level)| LockAuthority { path, level }).collect()
    }

    /// Returns the authority over a file, if it is to be given back: other mounts want it, and no program needs it.
    fn give_back(&mut self, inode: u64) -> Option<ReturnedAuthority> {
        let authority = self.files.get(&inode)?.authority.clone()?;
        let (path, wanted) = (authority.path?, authority.wanted?);
        let needed = self.files.get(&inode)?.ranges.level();
        let mut needed = needed
            .into_iter()
            .chain(self.beside(inode, &path).filter_map(|file| file.ranges.level()));
        if needed.any(|needed| !needed.goes_with(wanted)) {
            return None;
        }
        drop(needed);
        let is_held_beside = self.is_held_beside(inode, &path);
        let file = self.files.get_mut(&inode)?;
        let turn = Arc::clone(&file.turn).try_lock_owned().ok()?;
        let keeps = wanted == LockLevel::Shared && !is_held_beside;
        let keeps = keeps.then_some(LockLevel::Shared);
        file.returning = Some(LockAuthority { path: path.clone(), level: authority.level });
        match (keeps, &mut file.authority) {
            (Some(level), Some(kept)) => (kept.level, kept.wanted) = (level, None),
            _ => file.authority = None,
        }
        Some(ReturnedAuthority { inode, turn, path, keeps })
    }

    /// Returns the paths of the authorities that others want and that programs need, sorted.
    fn busy(&self) -> Vec<PoolPath> {
        let busy = self.files.values().filter_map(|file| {
            let Authority { path, wanted, .. } = file.authority.as_ref()?;
            let (wanted, needed) = ((*wanted)?, file.ranges.level()?);
            path.clone().filter(|_| !needed.goes_with(wanted))
        });
        let mut busy: Vec<PoolPath> = busy.collect();
        busy.sort_unstable();
        busy
    }

    /// Notes which authorities others want, and returns the paths of those that the mount does not know of; none while
    /// a task asks the manager.
    fn set_wanted(&mut self, wanted: Vec<LockAuthority>) -> Vec<PoolPath> {
        let mut strangers: HashMap<PoolPath, LockLevel> =
            wanted.into_iter().map(|wanted| (wanted.path, wanted.level)).collect();
        let wanted = strangers.clone();
        for file in self.files.values_mut() {
            if let Some(returning) = &file.returning {
                strangers.remove(&returning.path);
                continue;
            }
            let Some(authority) = &mut file.authority else { continue };
            let Some(path) = &authority.path else { continue };
            authority.wanted = wanted.get(path).copied();
            strangers.remove(path);
        }
        // An authority that a task asks for just now may have been granted.
        let is_asked = self.files.values().any(|file| file.turn.try_lock().is_err());
        if is_asked { Vec::new() } else { strangers.into_keys().collect() }
    }

    /// Notes that the authority over a path was lost, and with it the locks of programs.
    fn lose(&mut self, path: &PoolPath) {
        for file in self.files.values_mut() {
            if file.granted().is_none_or(|granted| granted.path != *path) {
                continue;
            }
            (file.authority, file.returning) = (None, None);
            let owners = file.ranges.owners();
            if !owners.is_empty() {
                tracing::error!(
                    "the locks on {path} are lost: the manager was not reached in time"
                );
            }
            file.has_lost_draft = true;
            file.lost.extend(owners);
            file.ranges.clear();
        }
    }
}
