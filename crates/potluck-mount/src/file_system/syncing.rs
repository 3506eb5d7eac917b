//! Syncs open files: what was written is published when fsync(2) returns, or a write with `O_SYNC` or `O_DSYNC`, so that it
//! survives the death of this mount.

use super::FileSystem;
use crate::draft::Draft;
use crate::errno::errno;
use potluck_wire::control::SyncChanges;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

impl FileSystem {
    /// Returns when what was written to a file so far, by whichever handle, is published; what cannot be is as safe as
    /// [`Draft::sync`] says.
    pub async fn sync(&self, handle: u64) -> Result<(), Errno> {
        let opened = self.handles().get(handle).ok_or(Errno::BADF)?;
        let draft = self.handles().draft(opened.inode);
        let Some(draft) = draft else { return self.sync_changes().await };
        let mut draft = draft.lock().await;
        self.sync_draft(&mut draft, opened.inode).await
    }

    /// Syncs a draft that the caller has locked. A file of which a write failed is never published, and so not safe. Of a
    /// file that other mounts write, too, donors have what this mount wrote, which outlives the mount. A file without a
    /// name is never published.
    ///
    /// Rejected: to keep what is synced on this machine and publish it in the next mount. That is as safe as one disk,
    /// whatever the policy says, and lost with the machine.
    pub(super) async fn sync_draft(&self, draft: &mut Draft, inode: u64) -> Result<(), Errno> {
        if let Some(why) = draft.failure() {
            return Err(why);
        }
        let path = self.inodes().last_path(inode)?;
        if draft.is_shared() || draft.is_nameless() {
            return draft.sync(&path).await;
        }
        let (was_dirty, small) = (draft.is_dirty(), draft.small_content());
        draft.set_synced(true);
        let published = self.publish_in_turn(draft, inode).await;
        draft.set_synced(false);
        published?;
        if !was_dirty {
            return self.sync_changes().await; // it was published by a close() that did not wait for the disk
        }
        draft.goes_on(&path, small).await;
        Ok(())
    }

    /// Notes that this mount made a change that a power cut of the manager may undo for a moment.
    pub(super) fn changed_soon(&self) {
        self.has_unsynced.store(true, Ordering::Release);
    }

    /// Returns when no power cut undoes what this mount has changed so far.
    pub(super) async fn sync_changes(&self) -> Result<(), Errno> {
        if !self.has_unsynced.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let synced = self.pool.call(&SyncChanges {}).await;
        synced.map(drop).map_err(|failure| {
            self.changed_soon();
            errno(&failure)
        })
    }
}
