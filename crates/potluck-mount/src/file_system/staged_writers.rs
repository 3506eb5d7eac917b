//! Tells other mounts that programs of this one have staged files open for writing: for as long the mount has the shared
//! authority over the locks of their staging directory, which a commit of the checkpoint needs for itself.

use super::FileSystem;
use super::locking::{LOOK, MOST_UNCERTAIN};
use crate::locks::{Locking, RangeLock, Taken};
use crate::staged_handles::StagedHandles;
use potluck_core::checkpoint::StagedPlace;
use potluck_core::path::PoolPath;
use potluck_wire::control::LockLevel;
use potluck_wire::env;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// The time for which the authority is kept after the last file was closed: a program that writes one file after the
/// other takes it once, and not for each.
const KEPT: Duration = Duration::from_secs(1);

/// The bit that is set in the numbers under which staging directories are locked, and in no number of an entry.
const STAGING: u64 = 1 << 63;

/// Returns the number under which a staging directory is locked. It is not that of the directory in the mount, which may
/// be staged for another checkpoint while files of this one are open.
fn number_of(staging: &PoolPath) -> u64 {
    let mut hasher = DefaultHasher::new();
    staging.hash(&mut hasher);
    STAGING | hasher.finish()
}

impl FileSystem {
    fn staged_handles(&self) -> MutexGuard<'_, StagedHandles> {
        self.staged_handles.lock().expect("no holder panics")
    }

    /// Notes that a program opens a file for writing. If the file is staged, this returns when no other mount commits
    /// the checkpoint without a refusal; or after [`MOST_UNCERTAIN`], for a program writes also if others cannot be told.
    pub(super) async fn writes_staged(&self, inode: u64, handle: u64) {
        let path = self.inodes().path(inode);
        let Some(StagedPlace { staging, .. }) = path.ok().and_then(|path| StagedPlace::of(&path))
        else {
            return;
        };
        let dir = number_of(&staging);
        self.staged_handles().dirs.insert(handle, dir);
        let level = LockLevel::Shared;
        let lock = RangeLock { owner: handle, pid: 0, start: 0, end: 0, level };
        let until = self.pool.now() + MOST_UNCERTAIN;
        while self.pool.now() < until {
            match self.locks.try_lock(dir, lock) {
                Ok(Locking::NeedsAuthority) => {
                    let path = Some(staging.clone());
                    match self.locks.take(dir, path, level, false).await {
                        Ok(Taken::Granted { .. }) => {
                            self.locks.is_fresh(dir);
                            continue;
                        }
                        Ok(Taken::Outgrown(given)) => {
                            self.locks.give_back(given).await;
                            continue;
                        }
                        Ok(Taken::Busy | Taken::NotYet) => {}
                        Err(_) => return, // the log has the reason
                    }
                }
                Ok(Locking::Conflict | Locking::Uncertain) => {}
                Ok(Locking::Done) | Err(_) => return,
            }
            self.locks.changed_within(LOOK).await;
        }
    }

    /// Notes that a handle was closed, which may have been that of a staged file.
    pub(super) fn closes_staged(&self, handle: u64) {
        let now = self.pool.now();
        let dir = {
            let mut writers = self.staged_handles();
            let Some(dir) = writers.dirs.remove(&handle) else { return };
            writers.closed.insert(dir, now);
            dir
        };
        self.locks.unlock_all(dir, handle);
        let (locks, writers) = (Arc::clone(&self.locks), Arc::clone(&self.staged_handles));
        env::spawn(async move {
            tokio::time::sleep(KEPT).await;
            {
                let mut writers = writers.lock().expect("no holder panics");
                if writers.closed.get(&dir) != Some(&now) {
                    return; // a file was closed since
                }
                writers.closed.remove(&dir);
            }
            if let Some(given) = locks.closed(dir) {
                locks.give_back(given).await;
            }
        });
    }

    /// Gives the authority over a staging directory back at once, whose files are closed. Descriptors that programs have
    /// inherited do not count any more.
    pub(super) async fn give_staged_back(&self, staging: &PoolPath) {
        let dir = number_of(staging);
        let handles: Vec<u64> = {
            let writers = self.staged_handles();
            writers.dirs.iter().filter(|(_, of)| **of == dir).map(|(handle, _)| *handle).collect()
        };
        for handle in handles {
            self.locks.unlock_all(dir, handle);
        }
        if let Some(given) = self.locks.closed(dir) {
            self.locks.give_back(given).await;
        }
    }
}
