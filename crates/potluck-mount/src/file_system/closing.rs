//! Files that were written are published when they are closed, and what cannot be is kept in the mount's record.

use super::FileSystem;
use crate::handles::{Handle, OpenHandle, SharedDraft};
use crate::opener::closes_for_good;
use potluck_core::path::PoolPath;
use rustix::io::Errno;

impl FileSystem {
    /// Publishes what was written, when a thread of the process that opened the file closes a descriptor of it, or
    /// anybody does after that one. A file that was removed meanwhile is not published.
    pub async fn flush(&self, handle: u64, thread: u32) -> Result<(), Errno> {
        let opened = self.handles().get(handle).ok_or(Errno::BADF)?;
        if !closes_for_good(opened.opener, thread) {
            return Ok(());
        }
        self.handles().leave(handle);
        self.publish(&opened).await
    }

    async fn publish(&self, opened: &OpenHandle) -> Result<(), Errno> {
        let Handle::Writing { draft, .. } = &opened.handle else { return Ok(()) };
        let path = self.inodes().path(opened.inode);
        match path {
            Ok(path) => publish(draft, &path).await,
            Err(_) => Ok(()),
        }
    }

    /// Closes a handle; what was written since it was flushed last is published.
    pub async fn release(&self, handle: u64) {
        self.handles().leave(handle);
        let opened = self.handles().get(handle);
        if let Some(opened) = opened {
            // Nobody waits for the answer; the record has it.
            let _ = self.publish(&opened).await;
        }
        let removed = self.handles().remove(handle);
        let Some(removed) = removed else { return };
        // Attributes may have been set since it was published, by who found it open.
        let path = self.inodes().path(removed.inode);
        if let (Handle::Writing { draft, .. }, Ok(path)) = (&removed.handle, path)
            && !self.is_open(removed.inode, draft)
            && let Err(why) = draft.lock().await.publish_attributes(&path).await
        {
            tracing::warn!("attributes that were set are not in the pool: {why}");
        }
        self.forget(removed.inode, 0); // the kernel may have done so while it was open
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
            let _ = publish(&draft, &path).await;
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
async fn publish(draft: &SharedDraft, path: &PoolPath) -> Result<(), Errno> {
    let mut draft = draft.lock().await;
    draft.publish(path).await.inspect_err(|why| {
        tracing::warn!("{path} is not in the pool as it was written: {why}");
        draft.failed(path, *why);
    })
}
