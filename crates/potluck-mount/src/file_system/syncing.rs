//! Syncs open files: donors have what was written when fsync(2) returns, or a write with `O_SYNC` or `O_DSYNC`.

use super::FileSystem;
use crate::draft::Draft;
use rustix::io::Errno;

impl FileSystem {
    /// Returns when what was written to a file so far, by whichever handle, is as safe as [`Draft::sync`] says; a file
    /// that programs lock is published as well.
    pub async fn sync(&self, handle: u64) -> Result<(), Errno> {
        let opened = self.handles().get(handle).ok_or(Errno::BADF)?;
        let draft = self.handles().draft(opened.inode);
        let Some(draft) = draft else { return Ok(()) };
        let mut draft = draft.lock().await;
        self.sync_draft(&mut draft, opened.inode).await
    }

    /// Syncs a draft that the caller has locked. A file of which a write failed is never published, and so not safe.
    pub(super) async fn sync_draft(&self, draft: &mut Draft, inode: u64) -> Result<(), Errno> {
        if let Some(why) = draft.failure() {
            return Err(why);
        }
        let path = self.inodes().last_path(inode)?;
        draft.sync(&path).await?;
        match self.locks.is_locked(inode) {
            true => self.publish_in_turn(draft, inode).await,
            false => Ok(()),
        }
    }
}
