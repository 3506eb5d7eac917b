//! Open directories: their entries, and what is left of one that was removed.

use super::{FileSystem, ShownEntry, add_others};
use crate::handles::{Handle, OpenHandle};
use potluck_wire::control::ListedEntry;
use rustix::io::Errno;
use std::sync::Arc;

impl FileSystem {
    async fn list(&self, inode: u64) -> Result<Vec<ListedEntry>, Errno> {
        let path = self.inodes().path(inode)?;
        self.metadata.list(&path).await
    }

    /// Opens a directory as it is now, with the files in it that are written and not published; returns the handle.
    pub async fn open_dir(&self, inode: u64) -> Result<u64, Errno> {
        let entries = self.all_entries(inode).await?;
        let facts = self.facts(inode, None).await?;
        let handle = self.handles().add(inode, Handle::Listing(entries), None);
        self.handles().set_attributes_of_dir(handle, facts.attributes);
        Ok(handle)
    }

    /// Returns the entries of an open directory. Where they are read from the beginning for a second time (`offset` 0),
    /// they are those that are there now.
    pub async fn listing(&self, handle: u64, offset: u64) -> Result<Arc<Vec<ListedEntry>>, Errno> {
        let (inode, entries) = match self.handles().get(handle) {
            Some(OpenHandle { inode, handle: Handle::Listing(entries), .. }) => (inode, entries),
            _ => return Err(Errno::BADF),
        };
        if offset > 0 || !self.handles().is_listed_again(handle) {
            return Ok(entries);
        }
        let entries = match self.all_entries(inode).await {
            Err(Errno::STALE | Errno::NOENT) => Arc::default(), // the directory was removed
            entries => entries?,
        };
        self.handles().set_listing(handle, Arc::clone(&entries));
        Ok(entries)
    }

    async fn all_entries(&self, inode: u64) -> Result<Arc<Vec<ListedEntry>>, Errno> {
        // What is published while the entries are asked for may be missing among them.
        let mut written = self.written_in(inode);
        let mut entries = self.list(inode).await;
        if entries == Err(Errno::NOENT) && self.has_ended_elsewhere(inode).await {
            entries = self.list(inode).await;
        }
        let mut entries = entries?;
        written.append(&mut self.written_in(inode));
        add_others(&mut entries, written);
        self.add_staged(inode, &mut entries);
        Ok(Arc::new(entries))
    }

    /// Returns the facts about a directory that was removed while programs have it open: it is empty, and is for them what
    /// it was when they opened it.
    pub(super) fn facts_of_removed_dir(&self, inode: u64) -> Option<ShownEntry> {
        let attributes = self.handles().attributes_of_dir(inode)?;
        Some(ShownEntry { attributes, has_name: false, ..ShownEntry::of_dir(inode) })
    }
}
