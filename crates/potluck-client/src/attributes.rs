//! What a writer sets of a file beside its content.

use potluck_core::attributes::{EntryAttributes, FileOwner, FileTime, Permissions};

/// The attributes that a writer sets of its file beside the content.
#[derive(Debug, Clone, Copy, Default)]
pub struct Attributes {
    /// The time at which the file was modified; `None` for the time at which it becomes visible.
    pub mtime: Option<FileTime>,
    /// The permissions of the file.
    pub permissions: Permissions,
    /// The owner of the file; `None` to store none.
    pub owner: Option<FileOwner>,
    /// The time of the last change; `None` for the time at which the file becomes visible.
    pub changed: Option<FileTime>,
    /// The access time that a program set, if one did.
    pub accessed: Option<FileTime>,
}

impl From<EntryAttributes> for Attributes {
    fn from(all: EntryAttributes) -> Self {
        let EntryAttributes { mtime, permissions, owner, changed, accessed } = all;
        let (mtime, changed) = (Some(mtime), Some(changed));
        Self { mtime, permissions, owner, changed, accessed }
    }
}
