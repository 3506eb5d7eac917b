//! Locks of programs. Programs that lock a file share it while they have it open: one that gets a lock finds what
//! others, in this mount and elsewhere, wrote under theirs.

use super::FileSystem;
use crate::errno::errno;
use crate::handles::Handle;
use crate::interruption::is_interrupted;
use crate::locks::{Locking, MountLocks, RangeLock, ReturnedAuthority, Taken};
use crate::reading::Reading;
use crate::shared_draft::SharedDraft;
use potluck_core::path::PoolPath;
use potluck_wire::control::{LOCK_LEASE, LockLevel};
use potluck_wire::env;
use potluck_wire::error::code;
use rustix::io::Errno;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The suffixes that the names of a database's journals have after the name of its file (SQLite).
const JOURNALS: [&str; 2] = ["-journal", "-wal"];
/// The time between two checks whether a program that waits for a lock was sent a signal.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// The time for which a program that does not wait for a lock waits until the manager knows who has it: the lease of
/// earlier holders, and a little more.
pub(super) const MOST_UNCERTAIN: Duration = LOCK_LEASE.saturating_add(Duration::from_secs(5));

impl FileSystem {
    /// Locks a range of a file. The thread `waiting` waits until it has the lock; with `None` a conflict is an error at
    /// once, and only while it is not known who has the lock does the call wait ([`MOST_UNCERTAIN`]).
    ///
    /// Errors: [`Errno::AGAIN`] if another program has a conflicting lock; [`Errno::INTR`] if the thread was sent a
    /// signal; [`Errno::IO`] if the program lost its locks; [`Errno::NOLCK`] for too many locks, or if it stays unknown
    /// who has them; [`Errno::ACCESS`] without the right that the lock needs; and those of the calls to the manager.
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

    /// Returns a lock that conflicts with a wanted one. For a lock of another mount neither the owner nor the range is
    /// known, so it is shown as an exclusive lock of the whole file.
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
    pub fn unlock(&self, inode: u64, owner: u64, start: u64, end: u64) -> Result<(), Errno> {
        self.locks.unlock(self.locked_number(inode), owner, start, end)
    }

    /// Takes the authority over the locks of a file from the manager. If it is new, programs then find what others
    /// wrote before.
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

    /// Makes the programs that have a file open find its present version.
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
            shared = is_readable.then_some(Handle::ReadingDraft(draft));
        }
        let is_read = !self.handles().readings(inode).is_empty();
        if shared.is_none() && is_read {
            shared = match self.pool.open_leased(&path).await {
                Ok(file) => Some(Handle::Reading(Arc::new(Reading::new(file)))),
                Err(failure) if failure.code == code::NO_ENTRY => None, // programs keep the version that they opened
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

    /// Makes the journals of a database, which are beside its file `path`, be looked up anew. A program that locks the
    /// file decides by them whether a transaction has to be undone, and must not see a journal that the last holder of
    /// the lock has removed.
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

    /// Makes programs that opened an old version, and have now locked the file, read the version that took its place.
    async fn read_as(&self, reader: u64, inode: u64) -> Result<(), Errno> {
        let handle = match self.shared_by_locks(inode).await {
            Some(draft) => Handle::ReadingDraft(draft),
            None => Handle::Reading(Arc::new(self.open_version(inode).await?)),
        };
        self.handles().replace_readings(reader, &handle);
        self.forget_attributes(reader);
        Ok(())
    }

    /// Returns the draft of a file that programs of this mount share by locks, if it can be read.
    pub(super) async fn shared_by_locks(&self, inode: u64) -> Option<SharedDraft> {
        let draft = self.handles().draft(inode)?;
        if !self.locks.is_locked(inode) {
            return None;
        }
        let is_readable = draft.lock().await.is_readable();
        is_readable.then_some(draft)
    }

    /// Makes programs that read a file which programs lock share its draft, now that one has it open for writing. A
    /// later lock may need nothing from the manager, and readers would not be told of what is written until then.
    pub(super) async fn readers_share_by_locks(&self, inode: u64) {
        if self.handles().readings(inode).is_empty() {
            return;
        }
        if let Some(draft) = self.shared_by_locks(inode).await {
            self.handles().replace_readings(inode, &Handle::ReadingDraft(draft));
        }
    }

    /// Sets the function that makes the kernel forget attributes; a second call has no effect.
    pub fn on_forgetting(&self, forget: Box<dyn Fn(u64) + Send + Sync>) {
        let _ = self.forgetting.set(forget);
    }

    /// Gives back the authorities over locks that others want and no program needs, until the mount is dropped. It also
    /// gives up drafts that were written under lost locks.
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
                env::spawn(async move { files.give_back(given).await });
            }
        }
    }

    /// Publishes what was written under an authority, if possible, and then gives the authority back.
    async fn give_back(&self, given: ReturnedAuthority) {
        self.closed_are_published().await;
        let draft = self.handles().draft(given.inode);
        if let Some(draft) = draft {
            // The mount record has what fails.
            let _ = self.publish_draft(&mut *draft.lock().await, given.inode).await;
        }
        self.locks.give_back(given).await;
    }
}
