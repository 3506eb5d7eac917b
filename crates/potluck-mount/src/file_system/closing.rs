//! Files that were written are published when they are closed, and what cannot be is kept in the mount's record.

use super::FileSystem;
use crate::draft::{Draft, PublishedChange};
use crate::handles::{Handle, OpenHandle, SharedDraft};
use crate::opener::closes_for_good;
use potluck_core::path::PoolPath;
use rustix::io::Errno;
use std::sync::Arc;

impl FileSystem {
    /// Publishes what was written, when a thread of the process that opened the file closes a descriptor of it, or
    /// anybody does after that one. A file that was removed meanwhile is not published.
    ///
    /// The locks of `owner` on the file end with it, when what was written under them is there. What another program is in
    /// the middle of writing under an exclusive lock is not published, but by that one.
    pub async fn flush(&self, handle: u64, thread: u32, owner: u64) -> Result<(), Errno> {
        let opened = self.handles().get(handle).ok_or(Errno::BADF)?;
        let mut published = Ok(());
        if closes_for_good(opened.opener, thread) {
            self.handles().leave(handle);
            if !self.locks.is_written_by_another(opened.inode, owner) {
                published = self.publish(&opened).await;
            }
        }
        self.locks.unlock_all(opened.inode, owner);
        published
    }

    async fn publish(&self, opened: &OpenHandle) -> Result<(), Errno> {
        let Handle::Writing { draft, .. } = &opened.handle else { return Ok(()) };
        self.publish_draft(&mut *draft.lock().await, opened.inode).await
    }

    pub(super) async fn publish_draft(&self, draft: &mut Draft, inode: u64) -> Result<(), Errno> {
        if draft.is_shared() && self.handles().is_file_written(inode) {
            return Ok(()); // the last program of this mount that closes it has written this mount's part
        }
        if !self.locks.may_publish(inode).await {
            draft.lose(Errno::IO);
        }
        let path = self.inodes().path(inode);
        match path {
            Ok(path) => self.metadata.publishing(&path, publish(draft, &path)).await,
            Err(_) => {
                draft.withdraw().await;
                Ok(())
            }
        }
    }

    /// Closes a handle; what was written since it was flushed last is published.
    pub async fn release(&self, handle: u64, owner: Option<u64>) {
        self.handles().leave(handle);
        let opened = self.handles().get(handle);
        let Some(opened) = opened else { return };
        if let Handle::Writing { draft, .. } = &opened.handle {
            // Who sets attributes by name finds the file open until all that were set before are published: a program
            // may do so, and rename the file, between its close and this.
            let mut draft = draft.lock().await;
            // Nobody waits for the answer; the record has it.
            if !self.locks.is_written_by_another(opened.inode, owner.unwrap_or_default()) {
                let _ = self.publish_draft(&mut draft, opened.inode).await;
            }
            self.handles().remove(handle);
        } else {
            self.handles().remove(handle);
        }
        if let Some(owner) = owner {
            self.locks.unlock_all(opened.inode, owner); // those of flock, which belong to the open file
        }
        self.forget(opened.inode, 0); // the kernel may have done so while it was open
        let is_open = self.handles().is_open(opened.inode);
        if !is_open && let Some(given) = self.locks.closed(opened.inode) {
            let locks = Arc::clone(&self.locks);
            tokio::spawn(async move { locks.give_back(given).await });
        }
    }

    /// Whether a program has a file open that it writes.
    pub fn is_written(&self) -> bool {
        self.handles().is_written()
    }

    /// Publishes what programs have closed, once nobody serves the mount any more; `all_closed` says that no program
    /// has a file open, whether it was heard to close it or not.
    pub async fn publish_closed(&self, all_closed: bool) {
        let drafts = self.handles().drafts();
        for (inode, draft) in drafts {
            let path = self.inodes().path(inode);
            let Ok(path) = path else { continue };
            if !all_closed && self.handles().is_file_written(inode) {
                continue;
            }
            // The record has what fails.
            let _ = publish(&mut *draft.lock().await, &path).await;
        }
    }

    /// A name is gone, with the draft that it led to, if there is one: nothing of that will be published, and that is
    /// no loss.
    pub(super) async fn has_no_name(&self, path: &PoolPath, draft: Option<SharedDraft>) {
        self.record.forget_failures(path);
        if let Some(draft) = draft {
            draft.lock().await.has_no_name();
        }
    }

    /// Has the record name drafts as they are called now. One that is being written notes it at its next write.
    pub(super) fn note_new_names(&self) {
        let drafts = self.handles().drafts();
        for (inode, draft) in drafts {
            let path = self.inodes().path(inode);
            if let (Ok(path), Ok(mut draft)) = (path, draft.try_lock()) {
                draft.note(&path);
            }
        }
    }
}

/// Publishes a draft at `path`. A program may not hear that it failed, as one that is killed or ends without closing:
/// the record says so, too.
async fn publish(draft: &mut Draft, path: &PoolPath) -> Result<PublishedChange, Errno> {
    let published = draft.publish(path).await;
    if let Err(why) = published {
        tracing::warn!("{path} is not in the pool as it was written: {why}");
        draft.failed(path, why);
    }
    published
}
