//! Locks of programs. They say that programs share a file while they have it open: whoever gets one finds what others
//! wrote under theirs, in this mount and in others.

use super::FileSystem;
use crate::errno::errno;
use crate::handles::Handle;
use crate::interruption::is_interrupted;
use crate::locks::{Locking, MountLocks, RangeLock, ReturnedAuthority, Taken};
use crate::reading::Reading;
use crate::shared_draft::SharedDraft;
use potluck_core::path::PoolPath;
use potluck_wire::control::{LOCK_LEASE, LockLevel};
use potluck_wire::error::code;
use rustix::io::Errno;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The suffixes that the names of a database's journals have after the name of its file (SQLite).
const JOURNALS: [&str; 2] = ["-journal", "-wal"];
/// The time between looks at a program that waits for a lock, which a signal may have reached.
const LOOK: Duration = Duration::from_millis(100);
/// How long a program that does not wait for a lock waits for the manager to know who has it: the lease of those who
/// may have it, and a little.
const MOST_UNCERTAIN: Duration = LOCK_LEASE.saturating_add(Duration::from_secs(5));

impl FileSystem {
    /// Locks a range of a file, for a thread that waits until that can be, or at once.
    ///
    /// Errors: [`Errno::AGAIN`] where somebody else has a lock; [`Errno::INTR`] for a thread that was sent a signal;
    /// [`Errno::IO`] where the program lost its locks; [`Errno::NOLCK`] for too many, or where the manager is not
    /// reached; [`Errno::ACCESS`] without the right that it needs.
    pub async fn lock(
        &self,
        inode: u64,
        lock: RangeLock,
        waiting: Option<u32>,
    ) -> Result<(), Errno> {
        let reader = inode;
        let inode = self.inodes().lock(reader);
        let until = self.pool.now() + MOST_UNCERTAIN;
        loop {
            if waiting.is_some_and(is_interrupted) {
                return Err(Errno::INTR);
            }
            let is_in_the_way = match self.locks.try_lock(inode, lock)? {
                Locking::Done if inode == reader => return Ok(()),
                Locking::Done => return self.read_as(reader, inode).await,
                Locking::Conflict => true,
                Locking::Uncertain => false,
                Locking::NeedsAuthority => {
                    match self.take_locks(inode, lock.level, waiting.is_some()).await? {
                        Taken::Granted { .. } | Taken::Outgrown(_) => continue,
                        Taken::Busy => true,
                        Taken::NotYet => false,
                    }
                }
            };
            match waiting {
                None if is_in_the_way => return Err(Errno::AGAIN),
                None if self.pool.now() > until => return Err(Errno::NOLCK),
                _ => self.locks.changed_within(LOOK).await,
            }
        }
    }

    /// Returns a lock that keeps a program from having another; of one in another mount it is not known who has it,
    /// and where.
    pub async fn find_conflict(
        &self,
        inode: u64,
        wanted: RangeLock,
    ) -> Result<Option<RangeLock>, Errno> {
        let inode = self.inodes().lock(inode);
        if let Some(conflict) = self.locks.conflict(inode, &wanted) {
            return Ok(Some(conflict));
        }
        let elsewhere = RangeLock {
            owner: 0,
            pid: 0,
            start: 0,
            end: i64::MAX as u64,
            level: LockLevel::Exclusive,
        };
        Ok(match self.take_locks(inode, wanted.level, false).await? {
            Taken::Granted { .. } => self.locks.conflict(inode, &wanted),
            Taken::Busy | Taken::NotYet | Taken::Outgrown(_) => Some(elsewhere),
        })
    }

    /// Unlocks a range.
    pub fn unlock(&self, inode: u64, owner: u64, start: u64, end: u64) {
        self.locks.unlock(self.locked_number(inode), owner, start, end);
    }

    /// Takes the authority over the locks of a file. What others wrote before is visible then.
    async fn take_locks(&self, inode: u64, level: LockLevel, waits: bool) -> Result<Taken, Errno> {
        loop {
            let path = self.inodes().path(inode).ok();
            let taken = self.locks.take(inode, path, level, waits).await?;
            match taken {
                Taken::Outgrown(given) => self.give_back(given).await,
                Taken::Granted { is_new: true } => {
                    self.refresh(inode).await?;
                    self.locks.is_fresh(inode);
                    return Ok(taken);
                }
                taken => return Ok(taken),
            }
        }
    }

    /// Has programs that have a file open find the version that is there now.
    async fn refresh(&self, inode: u64) -> Result<(), Errno> {
        let Ok(path) = self.inodes().path(inode) else { return Ok(()) };
        self.metadata.changed_here(&path);
        let draft = self.handles().draft(inode);
        let mut shared = None;
        if let Some(draft) = draft {
            let mut refreshed = draft.lock().await;
            refreshed.refresh(&path).await?;
            let is_readable = refreshed.is_readable();
            drop(refreshed);
            shared = is_readable.then_some(Handle::Writing { draft, appends: false });
        }
        let is_read = !self.handles().readings(inode).is_empty();
        if shared.is_none() && is_read {
            shared = match self.pool.open_leased(&path).await {
                Ok(file) => Some(Handle::Reading(Arc::new(Reading::new(file)))),
                Err(failure) if failure.code == code::NO_ENTRY => None, // what was opened stays
                Err(failure) => return Err(errno(&failure)),
            };
        }
        if let Some(handle) = shared {
            self.handles().replace_readings(inode, &handle);
        }
        self.forget_attributes(inode);
        self.refresh_journals(&path);
        Ok(())
    }

    /// Has the journals of a database that lie beside its file `path` be looked up anew: who locks the file next
    /// decides by them whether a transaction has to be undone, and may not take one for there that its last holder
    /// has removed.
    fn refresh_journals(&self, path: &PoolPath) {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return };
        let parent = self.number_of_dir(&dir);
        for ending in JOURNALS {
            let journal = format!("{name}{ending}");
            if let Ok(path) = dir.join(&journal) {
                self.metadata.changed_here(&path);
            }
            let number = parent.and_then(|parent| self.number(parent, &journal));
            if let Some(number) = number {
                self.forget_attributes(number);
            }
        }
    }

    /// Makes programs that read an old version, and have locked what took its place, read the new one.
    async fn read_as(&self, reader: u64, inode: u64) -> Result<(), Errno> {
        let handle = match self.shared_by_locks(inode).await {
            Some(draft) => Handle::Writing { draft, appends: false },
            None => Handle::Reading(Arc::new(self.open_version(inode).await?)),
        };
        self.handles().replace_readings(reader, &handle);
        self.forget_attributes(reader);
        Ok(())
    }

    /// Returns the draft of a file that programs of this mount share by locks.
    pub(super) async fn shared_by_locks(&self, inode: u64) -> Option<SharedDraft> {
        let draft = self.handles().draft(inode)?;
        if !self.locks.is_locked(inode) {
            return None;
        }
        let is_readable = draft.lock().await.is_readable();
        is_readable.then_some(draft)
    }

    /// Sets `forget`, by which the kernel is made to forget attributes; the first that is given stays.
    pub fn on_forgetting(&self, forget: Box<dyn Fn(u64) + Send + Sync>) {
        let _ = self.forgetting.set(forget);
    }

    /// Gives authorities over locks back that others want and no program needs, for as long as the mount is there.
    pub async fn give_locks_back(files: Weak<Self>) {
        loop {
            let Some(locks) = files.upgrade().map(|files| Arc::clone(&files.locks)) else { return };
            MountLocks::concerned(&locks).await;
            let Some(files) = files.upgrade() else { return };
            for inode in files.locks.with_lost_drafts() {
                let draft = files.handles().draft(inode);
                if let Some(draft) = draft {
                    draft.lock().await.lose(Errno::IO);
                }
                files.locks.draft_is_lost(inode);
            }
            for given in files.locks.to_give_back() {
                let files = Arc::clone(&files);
                tokio::spawn(async move { files.give_back(given).await });
            }
        }
    }

    /// Gives an authority back once others find in the pool what was written under it.
    async fn give_back(&self, given: ReturnedAuthority) {
        let draft = self.handles().draft(given.inode);
        if let Some(draft) = draft {
            // The mount record has what fails.
            let _ = self.publish_draft(&mut *draft.lock().await, given.inode).await;
        }
        self.locks.give_back(given).await;
    }
}
