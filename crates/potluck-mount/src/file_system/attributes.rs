//! Setting the attributes of files and directories.

use super::{FileSystem, OpenMode, ShownEntry};
use crate::errno::errno;
use potluck_client::Attributes;
use potluck_core::attributes::{FileTime, Permissions};
use potluck_wire::control::SetAttributes;
use potluck_wire::error::code;
use rustix::io::Errno;
use std::sync::Arc;
use tokio::sync::Mutex as AsyncMutex;

/// The attributes that a program sets; what it leaves out stays.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttributeChange {
    /// The size in bytes.
    pub size: Option<u64>,
    /// The modification time.
    pub mtime: Option<FileTime>,
    /// Who may do what with it.
    pub permissions: Option<Permissions>,
}

impl FileSystem {
    /// Sets attributes. Those of a file that is being written are published with it, and the size of one that nobody
    /// writes by storing it anew.
    pub async fn change(&self, inode: u64, change: AttributeChange) -> Result<ShownEntry, Errno> {
        let AttributeChange { size, mtime, permissions } = change;
        let shared = self.handles().draft(inode);
        let shared = match (shared, size) {
            (Some(shared), _) => shared,
            (None, None) => return self.set_attributes(inode, mtime, permissions).await,
            (None, Some(_)) => {
                let mode = OpenMode { writes: true, ..OpenMode::default() };
                Arc::new(AsyncMutex::new(self.begin_draft(inode, mode).await?))
            }
        };
        {
            let mut draft = shared.lock().await;
            let path = self.inodes().path(inode)?;
            if let Some(size) = size {
                draft.set_size(&path, size).await?;
            }
            let before = draft.attributes();
            if mtime.is_some() || permissions.is_some() {
                let permissions = permissions.unwrap_or(before.permissions);
                draft.set_attributes(Attributes { mtime: mtime.or(before.mtime), permissions });
            }
            // Otherwise the last handle publishes it, also what was set after all was written.
            if !self.is_open(inode, &shared) {
                let published = draft.publish(&path).await;
                self.metadata.changed_here(&path);
                published?;
            }
        }
        Ok(self.facts_of_draft(inode, &shared).await)
    }

    /// Sets attributes of a directory, or of a file that nobody writes.
    async fn set_attributes(
        &self,
        inode: u64,
        mtime: Option<FileTime>,
        permissions: Option<Permissions>,
    ) -> Result<ShownEntry, Errno> {
        let facts = self.facts(inode, None).await?;
        let attributes = facts.attributes.with(mtime, permissions);
        if attributes == facts.attributes {
            return Ok(facts);
        }
        let (path, version) = (self.inodes().path(inode)?, facts.version);
        if path.space().is_empty() {
            return Err(Errno::PERM);
        }
        let set = SetAttributes { path, version, mtime, permissions };
        let done = self.pool.set_attributes(&set).await;
        self.metadata.changed_here(&set.path);
        match done {
            Ok(()) => {}
            // Somebody put another version in its place, as they may have done after this.
            Err(failure) if failure.code == code::WRONG_VERSION => {
                return self.facts(inode, None).await;
            }
            Err(failure) => return Err(errno(&failure)),
        }
        let readings = self.handles().readings(inode);
        for reading in readings {
            if facts.version == Some(reading.file().version()) {
                reading.note_attributes(attributes);
            }
        }
        Ok(ShownEntry { attributes, ..facts })
    }
}
