//! Entries get other names, also those that programs are writing and directories above such files.

use super::FileSystem;
use crate::draft::Draft;
use crate::handles::SharedDraft;
use potluck_core::path::PoolPath;
use potluck_wire::control::EntryKind;
use potluck_wire::error::code;
use rustix::io::Errno;
use tokio::sync::OwnedMutexGuard;

impl FileSystem {
    /// Gives an entry another name, in the place of what has that; with `no_replace` only if nothing has. A file that is
    /// being written has it at once in this mount, and is published there when it is closed.
    pub async fn rename(
        &self,
        from: (u64, &str),
        to: (u64, &str),
        no_replace: bool,
    ) -> Result<(), Errno> {
        self.check_unstaged(from.0, from.1)?;
        self.check_unstaged(to.0, to.1)?;
        let (source, target) = (self.child(from.0, from.1)?, self.child(to.0, to.1)?);
        if source.space() != target.space() {
            return Err(Errno::XDEV);
        }
        if source == target {
            return Ok(());
        }
        self.check_empty(to.0, to.1)?;
        let (draft, replaced) = (self.draft_at(from.0, from.1), self.draft_at(to.0, to.1));
        if let Some(replaced) = &replaced {
            self.will_have_no_name(&target, replaced).await;
        }
        // Nothing is published under the old names meanwhile.
        let mut below = self.drafts_below(from.0, from.1).await;
        let mut draft = match draft {
            Some(draft) => Some(draft.lock_owned().await),
            None => None,
        };
        if let Some(draft) = &mut draft
            && !self.is_written_at(from.0, from.1)
        {
            self.publish_at(draft, &source).await?; // it was closed
            self.metadata.changed_here(&source);
        }
        let move_entry = || self.pool.rename(&source, &target, no_replace);
        let renamed = self.once(code::NO_ENTRY, move_entry).await;
        self.metadata.changed_here(&source);
        self.metadata.changed_here(&target);
        match (renamed, &mut draft) {
            // It was never published.
            (Err(Errno::NOENT), Some(draft)) => {
                self.check_place(&target, no_replace).await?;
                draft.is_renamed(no_replace);
            }
            (renamed, draft) => {
                renamed?;
                draft.iter_mut().for_each(|draft| draft.is_renamed(no_replace));
            }
        }
        self.inodes().rename(from, to);
        below.clear();
        drop(draft);
        self.has_no_name(&target, replaced).await;
        self.note_new_names();
        Ok(())
    }

    /// A name is about to be gone, or another's: what was published of a draft can be opened for it now alone.
    pub(super) async fn will_have_no_name(&self, path: &PoolPath, draft: &SharedDraft) {
        // Without it the programs that have it open are told so when they read or write it.
        let _ = draft.lock().await.open_again(path).await;
    }

    /// Refuses to take away a directory in which a program writes a file that is not published.
    pub(super) fn check_empty(&self, parent: u64, name: &str) -> Result<(), Errno> {
        match self.numbers_of_drafts_below(parent, name).is_empty() {
            true => Ok(()),
            false => Err(Errno::NOTEMPTY),
        }
    }

    fn numbers_of_drafts_below(&self, parent: u64, name: &str) -> Vec<(u64, SharedDraft)> {
        let mut drafts = self.handles().drafts();
        let inodes = self.inodes();
        let Some(dir) = inodes.find(parent, name) else { return Vec::new() };
        drafts.retain(|(number, _)| *number != dir && inodes.is_below(*number, dir));
        drafts
    }

    /// The drafts below a directory, each of which waits for these guards.
    async fn drafts_below(&self, parent: u64, name: &str) -> Vec<OwnedMutexGuard<Draft>> {
        let mut below = Vec::new();
        for (_, draft) in self.numbers_of_drafts_below(parent, name) {
            below.push(draft.lock_owned().await);
        }
        below
    }

    fn is_written_at(&self, parent: u64, name: &str) -> bool {
        let number = self.inodes().find(parent, name);
        number.is_some_and(|number| self.handles().is_file_written(number))
    }

    /// Whether a file that is in this mount alone may get a name.
    async fn check_place(&self, target: &PoolPath, no_replace: bool) -> Result<(), Errno> {
        if let Some(dir) = target.parent().filter(|dir| !dir.names().is_empty()) {
            self.stat(&dir).await?;
        }
        match self.stat(target).await {
            Ok(_) if no_replace => Err(Errno::EXIST),
            Ok(there) if there.kind == EntryKind::Dir => Err(Errno::ISDIR),
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(why) => Err(why),
        }
    }
}
