//! Renames entries, also files that programs are writing and directories above such files.

use super::FileSystem;
use crate::draft::Draft;
use crate::shared_draft::{DraftGuard, SharedDraft};
use potluck_core::path::PoolPath;
use potluck_wire::control::{EntryKind, Move};
use potluck_wire::error::code;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// The drafts that a rename concerns, which are locked meanwhile.
struct RenamedDrafts {
    /// The draft of the file that moves.
    source: Option<DraftGuard>,
    /// The draft of the file that the rename replaces.
    replaced: Option<DraftGuard>,
    /// The drafts below a directory that moves.
    below: Vec<DraftGuard>,
}

/// Prepares a draft for the loss of its name: the published version is opened now, while the name still leads to it.
pub(super) async fn will_have_no_name(path: &PoolPath, draft: &mut Draft) {
    // If this fails, programs that have the file open get the error when they read or write it.
    let _ = draft.open_again(path).await;
}

impl FileSystem {
    /// Renames an entry, and replaces what has the new name; with `no_replace` only if that is free. A file that is
    /// being written has the new name at once in this mount, and is published there when it is closed.
    pub async fn rename(
        &self,
        from: (u64, &str),
        to: (u64, &str),
        no_replace: bool,
    ) -> Result<(), Errno> {
        self.closed_are_published().await;
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
        // Nothing is published under the old names meanwhile, nor at the new one, where it would replace the moved
        // entry.
        let RenamedDrafts { source: mut draft, mut replaced, mut below } =
            self.drafts_of_rename(from, to).await;
        if let Some(replaced) = &mut replaced {
            will_have_no_name(&target, replaced).await;
        }
        if let Some(draft) = &mut draft
            && !self.is_written_at(from.0, from.1)
        {
            self.publish_at(draft, &source).await?; // all programs have closed the file
            self.metadata.changed_here(&source);
        }
        let change = async {
            let (from, to) = (source.clone(), target.clone());
            let rename = Move { from, to, no_replace, replaces: None, soon: true };
            let renamed = self.once(code::NO_ENTRY, || self.pool.call(&rename)).await?;
            Ok(renamed.map(|renamed| renamed.modified))
        };
        let renamed = self.metadata.changing(&[&source, &target], change).await;
        self.changed_soon();
        // The kernel has checked all else that the manager takes for a wrong request: only a path can be too long.
        let renamed = renamed.map_err(|why| match why {
            Errno::INVAL => Errno::NAMETOOLONG,
            why => why,
        });
        match (renamed, &mut draft) {
            // The source was never published, so only its draft gets another name.
            (Err(Errno::NOENT), Some(draft)) => {
                self.check_place(&target, no_replace).await?;
                draft.is_renamed();
            }
            (renamed, draft) => {
                renamed?;
                draft.iter_mut().for_each(|draft| draft.is_renamed());
            }
        }
        // Names are reserved by their whole paths, those of files below a directory, too.
        let moved = [&mut draft, &mut replaced].into_iter().flatten();
        for draft in moved.chain(&mut below) {
            draft.free_name().await;
        }
        self.inodes().rename(from, to);
        self.has_no_name(&target, replaced.as_deref_mut());
        drop((draft, replaced, below));
        self.note_new_names();
        Ok(())
    }

    /// Refuses to remove or replace a directory below which a program has a file open for writing.
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

    /// Locks all drafts that a rename concerns in the order of their numbers. The order is the same for every rename,
    /// so that two of them do not wait for one another.
    async fn drafts_of_rename(&self, from: (u64, &str), to: (u64, &str)) -> RenamedDrafts {
        let [source, replaced] = [from, to].map(|(parent, name)| self.number(parent, name));
        let mut drafts: BTreeMap<u64, SharedDraft> =
            self.numbers_of_drafts_below(from.0, from.1).into_iter().collect();
        for number in [source, replaced].into_iter().flatten() {
            drafts.extend(self.handles().draft(number).map(|draft| (number, draft)));
        }
        let mut guards = BTreeMap::new();
        for (number, draft) in drafts {
            guards.insert(number, draft.lock().await);
        }
        let mut take = |number: Option<u64>| number.and_then(|number| guards.remove(&number));
        let (source, replaced) = (take(source), take(replaced));
        RenamedDrafts { source, replaced, below: guards.into_values().collect() }
    }

    fn is_written_at(&self, parent: u64, name: &str) -> bool {
        let number = self.inodes().find(parent, name);
        number.is_some_and(|number| self.handles().is_file_written(number))
    }

    /// Checks that a file that is only in this mount may get a name: its directory exists, and the name is free, or,
    /// without `no_replace`, not that of a directory.
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
