//! Files that are made without being opened, as mknod(2) does.

use super::{FileSystem, NewEntry, OpenMode, ShownEntry};
use crate::handles::{Handle, OpenHandle};
use rustix::io::Errno;

impl FileSystem {
    /// Makes an empty file at a name that is free; all clients see it when this returns.
    pub async fn make_empty_file(
        &self,
        parent: u64,
        name: &str,
        made: NewEntry,
    ) -> Result<ShownEntry, Errno> {
        self.closed_are_published().await;
        let mode = OpenMode { writes: true, is_exclusive: true, ..OpenMode::default() };
        let (facts, handle) = self.create(parent, name, mode, made, None).await?;
        let opened = self.handles().get(handle);
        let mut published = Ok(());
        if let Some(OpenHandle { handle: Handle::Writing(draft), inode, .. }) = opened {
            let mut draft = draft.lock().await;
            draft.must_be_new();
            published = self.publish_draft(&mut draft, inode).await;
        }
        self.release(handle, None).await;
        if published.is_err() {
            self.forget(facts.inode, 1); // the kernel is not told of the number
        }
        published.map(|()| facts)
    }
}
