//! The versions that inode numbers stand for. The kernel keeps one size for a number, and asks for it without saying
//! which program wants it. So while programs read a version, its number stays with it, and a version that takes its
//! place gets another number.

use super::FileSystem;
use crate::reading::Reading;
use crate::shared_draft::SharedDraft;
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use rustix::io::Errno;
use std::sync::Arc;

impl FileSystem {
    /// Returns the version that programs read under a number, if the number stands for one version.
    ///
    /// While a file is written, and once it was locked, its number stands for the file as it changes.
    pub(super) fn pinned(&self, inode: u64) -> Option<Arc<Reading>> {
        if self.handles().is_file_written(inode) || self.inodes().was_locked(inode) {
            return None;
        }
        let readings = self.handles().readings(inode);
        readings.into_iter().next()
    }

    /// Returns the number of a name that leads to `version`; `None` stands for anything but a version of a file. If
    /// programs read another version under the name's number, the name gets a new one.
    pub(super) fn number_of_version(
        &self,
        parent: u64,
        name: &str,
        version: Option<VersionId>,
    ) -> u64 {
        let known = self.number(parent, name);
        if let Some(number) = known
            && let Some(reading) = self.pinned(number)
            && version != Some(reading.file().version())
        {
            self.inodes().outdate(number);
        }
        self.inodes().of(parent, name)
    }

    /// Takes the number from a name that leads to `version` now if programs read another version under it.
    ///
    /// Errors: [`Errno::STALE`] if it was taken. On that the kernel looks the name up once more, and gets a new number.
    pub(super) fn keep_number_of_others(
        &self,
        inode: u64,
        version: VersionId,
    ) -> Result<(), Errno> {
        match self.pinned(inode) {
            Some(reading) if reading.file().version() != version => {
                self.inodes().outdate(inode);
                Err(Errno::STALE)
            }
            _ => Ok(()),
        }
    }

    /// Makes a program that opens a file by its name find what is there, though another program of this mount has it open
    /// for writing: other mounts may have replaced or removed it since. Nothing is done for a file that has unpublished
    /// changes.
    ///
    /// Errors: [`Errno::STALE`] if there is no file any more. The number has lost its name then, for the kernel looks the
    /// name up once more, and must not find the same number again.
    pub(super) async fn find_present(&self, inode: u64) -> Result<(), Errno> {
        let draft = self.handles().draft(inode);
        let is_clean = |draft: &SharedDraft| {
            let facts = draft.facts();
            facts.is_common && !facts.is_changed
        };
        let Some(draft) = draft.filter(is_clean) else { return Ok(()) };
        let mut draft = draft.lock().await;
        let Ok(path) = self.inodes().path(inode) else { return Ok(()) };
        let is_there = draft.take_over(&path).await?;
        if !is_there {
            draft.has_no_name();
            let place = self.inodes().place(inode).cloned();
            if let Some((parent, name)) = place {
                self.inodes().unlink(parent, &name);
            }
            self.metadata.changed_here(&path); // what is kept of the name may be older than this finding
        }
        drop(draft); // released first, for the kernel may ask at once
        self.forget_attributes(inode);
        match is_there {
            true => Ok(()),
            false => Err(Errno::STALE),
        }
    }

    /// Makes programs that read a file while it was made keep the version that its draft has published at `path`, once
    /// no program writes the file: from then on it is a version that others may replace. Programs that lock the file go
    /// on sharing the draft.
    pub(super) async fn readers_keep_version(
        &self,
        inode: u64,
        path: &PoolPath,
        published: Option<VersionId>,
    ) {
        let is_in_use = self.locks.is_locked(inode) || self.handles().is_file_written(inode);
        if is_in_use || !self.handles().is_draft_read(inode) {
            return;
        }
        // If others have replaced that version already, or nobody answers, programs read the draft until they close it.
        let found = self.pool.open_leased(path).await.ok();
        if let Some(file) = found.filter(|file| Some(file.version()) == published) {
            self.handles().replace_draft(inode, &Arc::new(Reading::new(file)));
        }
    }

    /// Returns the number under which a file is locked: a program that reads an old version locks what has its name
    /// now.
    pub(super) fn locked_number(&self, inode: u64) -> u64 {
        self.inodes().locked_number(inode)
    }

    /// Returns the number under which programs have the file open that the kernel knows by `inode`.
    pub(super) fn opened_number(&self, inode: u64) -> u64 {
        let is_open = self.handles().is_open(inode);
        match is_open {
            true => inode,
            false => self.locked_number(inode),
        }
    }
}
