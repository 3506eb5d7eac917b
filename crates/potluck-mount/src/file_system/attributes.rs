//! Sets the attributes of files and directories.

use super::{FileSystem, OpenMode, ShownEntry};
use crate::draft::Draft;
use crate::errno::errno;
use crate::handles::{Handle, OpenHandle};
use crate::shared_draft::SharedDraft;
use potluck_client::Attributes;
use potluck_core::attributes::{AttributesToSet, FileOwner, FileTime, Permissions};
use potluck_core::path::PoolPath;
use potluck_core::recipe::LARGEST_FILE;
use potluck_wire::control::SetAttributes;
use potluck_wire::error::code;
use rustix::io::Errno;

/// The attributes that a program sets; those that are `None` stay as they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttributeChange {
    /// The size in bytes.
    pub size: Option<u64>,
    /// The access time.
    pub atime: Option<FileTime>,
    /// The modification time.
    pub mtime: Option<FileTime>,
    /// The permission bits of the mode.
    pub permissions: Option<Permissions>,
    /// The owner and group to set.
    pub owner: Option<OwnerChange>,
}

/// A new owner, a new group, or both.
#[derive(Debug, Clone, Copy)]
pub struct OwnerChange {
    /// The number of the user.
    pub uid: Option<u32>,
    /// The number of the group.
    pub gid: Option<u32>,
    /// The owner that this mount shows for entries whose owner was never set.
    pub unsaid: FileOwner,
}

impl OwnerChange {
    /// Returns the new owner of an entry that belonged to `before`.
    fn of(self, before: Option<FileOwner>) -> FileOwner {
        let FileOwner { uid, gid } = before.unwrap_or(self.unsaid);
        FileOwner { uid: self.uid.unwrap_or(uid), gid: self.gid.unwrap_or(gid) }
    }
}

/// The attributes that a program gives to an entry that it makes.
#[derive(Debug, Clone, Copy)]
pub struct NewEntry {
    /// The permissions of the entry.
    pub permissions: Permissions,
    /// The owner of the entry, if this mount keeps owners.
    pub owner: Option<FileOwner>,
}

impl FileSystem {
    /// Sets attributes for a thread. Those of a file that is being written are published with it. A new size of any
    /// other file makes a new version of it at once. Without a `handle` the size is that of the file which is at the
    /// name now.
    ///
    /// Errors: [`Errno::FBIG`] for more than the largest size of a file; and those of the calls to the manager.
    pub async fn change(
        &self,
        inode: u64,
        handle: Option<u64>,
        change: AttributeChange,
        thread: u32,
    ) -> Result<ShownEntry, Errno> {
        if change.size.is_some_and(|size| size > LARGEST_FILE) {
            return Err(Errno::FBIG);
        }
        let by_handle = handle.and_then(|handle| self.handles().get(handle)).map(|it| it.inode);
        let number = by_handle.unwrap_or_else(|| self.opened_number(inode));
        if !self.handles().is_file_written(number) {
            // What is set is published now, or when the kernel tells that the file was closed.
            self.closed_are_published().await;
        }
        let draft = self.handles().draft(number).filter(|_| by_handle.is_some());
        match draft {
            Some(draft) => self.change_shared(&draft, number, change).await,
            None => {
                let change = |is_retried| self.change_at_name(inode, change, is_retried);
                self.by_path(thread, inode, change).await
            }
        }
    }

    /// Sets attributes of the file that is at the name of a number now. A call that the kernel makes once more
    /// (`is_retried`) is about what is there, also if programs read what had the name before.
    async fn change_at_name(
        &self,
        inode: u64,
        change: AttributeChange,
        is_retried: bool,
    ) -> Result<ShownEntry, Errno> {
        let mut number = self.opened_number(inode);
        if change.size.is_some() {
            number = self.number_to_write(inode, is_retried)?;
            self.find_present(number).await?;
        }
        let shared = self.handles().draft(number);
        let shared = match (shared, change.size) {
            (Some(shared), _) => shared,
            (None, None) => {
                let set = self.set_attributes(inode, change, is_retried).await?;
                return match self.has_name(inode) {
                    true => Ok(set),
                    false => self.facts(inode, None).await, // programs may read what had the name
                };
            }
            (None, Some(_)) => return self.change_size(number, change, is_retried).await,
        };
        self.change_shared(&shared, number, change).await
    }

    /// Changes the size, and what else is set, of a file that no program writes. It is open meanwhile, so that whoever
    /// reads it in this mount finds it as it is now.
    async fn change_size(
        &self,
        inode: u64,
        change: AttributeChange,
        is_retried: bool,
    ) -> Result<ShownEntry, Errno> {
        let mode = OpenMode { writes: true, ..OpenMode::default() };
        let handle = self.open_number(inode, mode, None, is_retried).await?;
        let opened = self.handles().get(handle);
        let Some(OpenHandle { handle: Handle::Writing(draft), inode, .. }) = opened else {
            return Err(Errno::BADF);
        };
        let changed = async {
            let facts = self.change_shared(&draft, inode, change).await?;
            self.handles().leave(handle);
            self.publish_draft(&mut *draft.lock().await, inode).await?;
            Ok(facts)
        };
        let changed = changed.await;
        match changed {
            Ok(_) => self.release(handle, None).await,
            Err(why) => {
                self.closed_in_vain(&draft, inode, true, why).await; // the program is told
                self.give_up(handle).await;
            }
        }
        changed
    }

    /// Changes a draft, and publishes it if no program has it open.
    async fn change_shared(
        &self,
        shared: &SharedDraft,
        inode: u64,
        change: AttributeChange,
    ) -> Result<ShownEntry, Errno> {
        let mut draft = shared.lock().await;
        let changed = self.change_draft(&mut draft, inode, change).await;
        let is_open = self.is_open(inode, shared);
        let path = match changed {
            Ok(path) => path,
            Err(why) => {
                if !is_open {
                    draft.withdraw().await; // no close() will end this mount's part of a shared file
                }
                return Err(why);
            }
        };
        // If the file is open, its last handle publishes it, with the attributes that were set until then.
        if !is_open {
            self.metadata.publishing(&path, draft.publish(&path)).await?;
            self.capacities_changed();
        }
        drop(draft);
        self.handles().show_changes(inode);
        Ok(self.facts_of_draft(inode, shared))
    }

    /// Changes a draft, and returns the path at which it is published.
    async fn change_draft(
        &self,
        draft: &mut Draft,
        inode: u64,
        change: AttributeChange,
    ) -> Result<PoolPath, Errno> {
        let AttributeChange { size, atime, mtime, permissions, owner } = change;
        let path = self.inodes().last_path(inode)?;
        if let Some(size) = size {
            draft.set_size(&path, size).await?;
        }
        let before = draft.attributes();
        if atime.is_some() || mtime.is_some() || permissions.is_some() || owner.is_some() {
            draft.set_attributes(Attributes {
                mtime: mtime.or(before.mtime),
                permissions: permissions.unwrap_or(before.permissions),
                owner: owner.map(|new| new.of(before.owner)).or(before.owner),
                changed: Some(self.now()),
                accessed: atime.or(before.accessed),
            });
        }
        Ok(path)
    }

    /// Returns the attributes of an entry that a program makes in a directory: its group is that of the directory if
    /// the directory hands that on (set-group-ID).
    pub(super) async fn inheriting(
        &self,
        parent: u64,
        made: NewEntry,
        is_dir: bool,
    ) -> Result<NewEntry, Errno> {
        let Some(owner) = made.owner else { return Ok(made) };
        let path = self.inodes().path(parent)?;
        if path.space().is_empty() {
            return Ok(made);
        }
        let above = self.metadata.place(&path).await?.attributes();
        let (true, Some(handed)) = (above.permissions.hands_group_on(), above.owner) else {
            return Ok(made);
        };
        let permissions = match is_dir {
            true => made.permissions.handing_group_on(),
            false => made.permissions,
        };
        Ok(NewEntry { permissions, owner: Some(FileOwner { gid: handed.gid, ..owner }) })
    }

    /// Sets attributes of a directory, or of a file that nobody writes.
    async fn set_attributes(
        &self,
        inode: u64,
        change: AttributeChange,
        is_retried: bool,
    ) -> Result<ShownEntry, Errno> {
        let AttributeChange { atime: accessed, mtime, permissions, owner, .. } = change;
        let mut facts = self.facts(inode, None).await?;
        let is_open = !is_retried && self.handles().is_open(inode);
        let path = self.inodes().meant_path(inode, is_open)?;
        if !self.has_name(inode) {
            facts = self.facts_as_told(inode, &self.stat(&path).await?)?;
        }
        let owner = owner.map(|new| new.of(facts.attributes.owner));
        let changed = Some(self.now());
        let new = AttributesToSet { mtime, permissions, owner, accessed, changed };
        if !new.changes(facts.attributes) {
            return Ok(facts);
        }
        let attributes = facts.attributes.with(new);
        let version = facts.version;
        if path.space().is_empty() {
            return Err(Errno::PERM);
        }
        let set = SetAttributes { path, version, attributes: new };
        let done = self.pool.set_attributes(&set).await;
        self.metadata.changed_here(&set.path);
        match done {
            Ok(()) => {}
            // Another version has taken the file's place, as it might have done just after this call.
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
