//! Checkpoints in a mount: from the beginning of a checkpoint to its end, a directory shows the content that is staged
//! for it. Other mounts see that only if they joined the checkpoint.

use super::{FileSystem, ShownEntry, entry_of};
use crate::errno::errno;
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::path::PoolPath;
use potluck_wire::control::{CheckpointCommit, Condition, ListedEntry};
use potluck_wire::error::code;
use rustix::io::Errno;
use std::collections::HashMap;
use std::str::FromStr;
use std::sync::MutexGuard;

/// The requests that a program makes by setting the checkpoint attribute of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointRequest {
    /// Begins a checkpoint for the directory, or for a name in it, which need not exist.
    Begin(Option<String>),
    /// Joins a checkpoint that somebody began.
    Join(CheckpointId, Option<String>),
    /// Commits the checkpoint: what is staged becomes visible; with `even_if_open` also while other mounts have files
    /// of it open for writing.
    Commit { even_if_open: bool },
    /// Aborts the checkpoint: what is staged is removed.
    Abort,
}

impl FromStr for CheckpointRequest {
    type Err = Errno;

    fn from_str(text: &str) -> Result<Self, Errno> {
        let text = text.trim_end_matches(['\n', '\0']);
        let (verb, rest) =
            text.split_once(' ').map_or((text, None), |(verb, rest)| (verb, Some(rest)));
        let name = |name: &str| match name.is_empty() || name.contains('/') {
            true => Err(Errno::INVAL),
            false => Ok(name.to_owned()),
        };
        match (verb, rest) {
            ("begin", rest) => Ok(Self::Begin(rest.map(name).transpose()?)),
            ("join", Some(rest)) => {
                let (id, of) = rest.split_once(' ').map_or((rest, None), |(id, of)| (id, Some(of)));
                let id = id.parse().map_err(|_| Errno::INVAL)?;
                Ok(Self::Join(id, of.map(name).transpose()?))
            }
            ("commit", None) => Ok(Self::Commit { even_if_open: false }),
            ("commit", Some("even-if-open")) => Ok(Self::Commit { even_if_open: true }),
            ("abort", None) => Ok(Self::Abort),
            _ => Err(Errno::INVAL),
        }
    }
}

/// The checkpoints of a mount, by the numbers of their directories: for each directory the open one, or else the one
/// that ended last.
pub type MountedCheckpoints = HashMap<u64, MountedCheckpoint>;

/// A checkpoint of a mount.
#[derive(Debug, Clone)]
pub struct MountedCheckpoint {
    id: CheckpointId,
    space: String,
    is_open: bool,
    /// The reason why the last commit was refused, if other mounts had files open.
    refusal: Option<String>,
}

impl FileSystem {
    fn checkpoints(&self) -> MutexGuard<'_, MountedCheckpoints> {
        self.checkpoints.lock().expect("no holder panics")
    }

    /// Returns the path at which the content of a directory is staged, if it is staged.
    pub(super) fn staging_at(&self, parent: u64, name: &str) -> Option<PoolPath> {
        let inodes = self.inodes();
        inodes.find(parent, name).and_then(|number| inodes.staging(number).cloned())
    }

    /// Refuses to rename or remove a directory if it or one below it is staged.
    pub(super) fn check_unstaged(&self, parent: u64, name: &str) -> Result<(), Errno> {
        let inodes = self.inodes();
        let Some(number) = inodes.find(parent, name) else { return Ok(()) };
        match inodes.staged().any(|staged| inodes.is_below(staged, number)) {
            true => Err(Errno::BUSY),
            false => Ok(()),
        }
    }

    /// Looks up the entry at a name. A directory whose checkpoint has ended elsewhere is shown as everybody sees it
    /// from then on.
    pub(super) async fn stat_or_end(&self, parent: u64, name: &str) -> Result<ListedEntry, Errno> {
        let found = self.stat(&self.child(parent, name)?).await;
        let number = self.inodes().find(parent, name).unwrap_or(parent);
        match found == Err(Errno::NOENT) && self.has_ended_elsewhere(number).await {
            true => self.stat(&self.child(parent, name)?).await,
            false => found,
        }
    }

    /// Returns whether an entry was not found because the checkpoint that it was staged for has ended elsewhere; if so,
    /// its directory is shown as everybody sees it from then on.
    pub(super) async fn has_ended_elsewhere(&self, inode: u64) -> bool {
        let staged = {
            let inodes = self.inodes();
            // No staging directory is inside another, so the first one found is the only one.
            let above = inodes.staged().find(|number| inodes.is_below(inode, *number));
            above.and_then(|number| Some((number, inodes.staging(number)?.clone())))
        };
        let Some((number, staging)) = staged else { return false };
        // The metadata that the mount keeps may be out of date, so the manager is asked.
        let is_gone = match self.pool.stat(&staging).await {
            Err(failure) => failure.code == code::NO_ENTRY,
            Ok(_) => false,
        };
        if is_gone {
            self.is_over(number);
        }
        is_gone
    }

    /// Adds the directories to a listing that are staged in this mount and do not exist for others.
    pub(super) fn add_staged(&self, inode: u64, entries: &mut Vec<ListedEntry>) {
        let inodes = self.inodes();
        for number in inodes.staged() {
            let place = inodes.place(number).filter(|(parent, _)| *parent == inode);
            let Some((_, name)) = place else { continue };
            if entries.iter().all(|entry| entry.path != *name) {
                entries.push(entry_of(name.clone(), &ShownEntry::of_dir(number)));
            }
        }
    }

    /// Returns the identifier of the checkpoint that a directory is staged for.
    pub(super) fn checkpoint_of(&self, inode: u64) -> Result<String, Errno> {
        let checkpoints = self.checkpoints();
        let open = checkpoints.get(&inode).filter(|checkpoint| checkpoint.is_open);
        open.map(|checkpoint| checkpoint.id.to_string()).ok_or(Errno::NODATA)
    }

    /// Returns why the last commit of a directory's checkpoint was refused, if other mounts had files open.
    pub(super) fn refusal_of(&self, inode: u64) -> Result<String, Errno> {
        let checkpoints = self.checkpoints();
        let refusal = checkpoints.get(&inode).and_then(|checkpoint| checkpoint.refusal.clone());
        refusal.ok_or(Errno::NODATA)
    }

    /// Begins, joins or ends the checkpoint of a directory.
    ///
    /// Errors, besides those of the calls: [`Errno::BUSY`] while programs write files in the directory, for a commit in
    /// any mount ([`Self::refusal_of`]; not for an abort), or if another checkpoint than the one to join is open; for a
    /// commit or abort, [`Errno::NODATA`] if no checkpoint was begun in this mount; [`Errno::STALE`] if it has ended
    /// elsewhere.
    pub(super) async fn change_checkpoint(
        &self,
        inode: u64,
        request: CheckpointRequest,
    ) -> Result<(), Errno> {
        match request {
            CheckpointRequest::Begin(name) => self.begin_checkpoint(inode, name, None).await,
            CheckpointRequest::Join(id, name) => self.begin_checkpoint(inode, name, Some(id)).await,
            CheckpointRequest::Commit { even_if_open } => {
                self.commit_checkpoint(inode, even_if_open).await
            }
            CheckpointRequest::Abort => self.abort_checkpoint(inode).await,
        }
    }

    async fn begin_checkpoint(
        &self,
        inode: u64,
        name: Option<String>,
        id: Option<CheckpointId>,
    ) -> Result<(), Errno> {
        let number = match &name {
            Some(name) => self.inodes().of(inode, name),
            None => inode,
        };
        let open = self.checkpoints().get(&number).filter(|it| it.is_open).cloned();
        if let Some(open) = open {
            return if id.is_none_or(|id| id == open.id) { Ok(()) } else { Err(Errno::BUSY) };
        }
        self.check_unwritten_below(number).await?;
        let target = self.inodes().path(number)?;
        let style = CommitStyle::Replace;
        let begun = match id {
            None => self.pool.begin_checkpoint(&target, style).await,
            Some(id) => self.pool.join_checkpoint(id, &target, style).await,
        };
        let begun = begun.map_err(|failure| errno(&failure))?;
        let (id, space) = (begun.id(), target.space().to_owned());
        self.inodes().set_staging(number, Some(begun.staging().clone()));
        let begun = MountedCheckpoint { id, space, is_open: true, refusal: None };
        self.checkpoints().insert(number, begun);
        self.forget_below(number);
        Ok(())
    }

    /// Fails while programs write files in a directory or below it.
    async fn check_unwritten_below(&self, dir: u64) -> Result<(), Errno> {
        self.wait_until_closed(|| self.is_written_below(dir)).await
    }

    /// Returns whether a program has a file open for writing in a directory or below it.
    fn is_written_below(&self, dir: u64) -> bool {
        let drafts = self.handles().drafts();
        drafts.into_iter().any(|(number, _)| {
            let is_below = self.inodes().is_below(number, dir);
            is_below && self.is_file_open_for_writing(number)
        })
    }

    async fn commit_checkpoint(&self, inode: u64, even_if_open: bool) -> Result<(), Errno> {
        let checkpoint = self.checkpoints().get(&inode).cloned().ok_or(Errno::NODATA)?;
        self.note_refusal(inode, None);
        self.check_unwritten_below(inode).await?;
        // A program may have closed a file without waiting for the answer: the file is published now, or the checkpoint
        // is not committed.
        let drafts = self.handles().drafts();
        for (number, draft) in drafts {
            let is_below = self.inodes().is_below(number, inode);
            if is_below {
                self.publish_draft(&mut *draft.lock().await, number).await?;
            }
        }
        let staging = self.inodes().staging(inode).cloned();
        if let Some(staging) = staging {
            self.give_staged_back(&staging).await;
        }
        let MountedCheckpoint { id, space, .. } = checkpoint;
        let (condition, spare_content) = (Condition::Always, false);
        let commit = CheckpointCommit { space, id, condition, spare_content, even_if_open };
        let committed = self.pool.commit_checkpoint(&commit).await;
        match committed {
            Ok(_) => {
                self.is_over(inode);
                Ok(())
            }
            Err(failure) => {
                match failure.code.as_str() {
                    code::NO_CHECKPOINT => self.is_over(inode),
                    code::CLAIMED => self.note_refusal(inode, Some(failure.message.clone())),
                    _ => {}
                }
                Err(errno(&failure))
            }
        }
    }

    fn note_refusal(&self, inode: u64, refusal: Option<String>) {
        if let Some(checkpoint) = self.checkpoints().get_mut(&inode) {
            checkpoint.refusal = refusal;
        }
    }

    async fn abort_checkpoint(&self, inode: u64) -> Result<(), Errno> {
        let checkpoint = self.checkpoints().get(&inode).cloned().ok_or(Errno::NODATA)?;
        let MountedCheckpoint { id, space, is_open, .. } = checkpoint;
        self.pool.abort_checkpoint(&space, id).await.map_err(|failure| errno(&failure))?;
        // If the checkpoint is over, files that programs write there now do not belong to it.
        if !is_open {
            return Ok(());
        }
        // Files that programs still write there are removed with the checkpoint, and must not appear in the directory
        // that everybody sees.
        let drafts = self.handles().drafts();
        for (number, draft) in drafts {
            let place = self.inodes().place(number).cloned();
            let (is_below, path) = {
                let inodes = self.inodes();
                (inodes.is_below(number, inode), inodes.path(number))
            };
            let (Some((parent, name)), Ok(path)) = (place, path) else { continue };
            if is_below {
                self.inodes().unlink(parent, &name);
                self.has_no_name(&path, Some(&mut *draft.lock().await));
            }
        }
        self.is_over(inode);
        Ok(())
    }

    /// Shows a directory as everybody sees it, now that its checkpoint is over.
    fn is_over(&self, inode: u64) {
        let (staging, target) = {
            let mut inodes = self.inodes();
            let staging = inodes.staging(inode).cloned();
            inodes.set_staging(inode, None);
            (staging, inodes.path(inode).ok())
        };
        for path in [staging, target].into_iter().flatten() {
            self.metadata.changed_here(&path);
        }
        if let Some(checkpoint) = self.checkpoints().get_mut(&inode) {
            checkpoint.is_open = false;
        }
        self.forget_below(inode);
        self.forget(inode, 0); // the kernel may have forgotten the number while the directory was staged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_words_and_names_may_have_spaces() {
        let id = CheckpointId([7; 16]);
        let read = |text: &str| text.parse::<CheckpointRequest>();
        assert_eq!(read("begin"), Ok(CheckpointRequest::Begin(None)));
        assert_eq!(read("begin step 5\n"), Ok(CheckpointRequest::Begin(Some("step 5".into()))));
        assert_eq!(read(&format!("join {id}")), Ok(CheckpointRequest::Join(id, None)));
        let named = Ok(CheckpointRequest::Join(id, Some("a b".into())));
        assert_eq!(read(&format!("join {id} a b")), named);
        let commit = |even_if_open| Ok(CheckpointRequest::Commit { even_if_open });
        assert_eq!((read("commit\0"), read("commit even-if-open")), (commit(false), commit(true)));
        assert_eq!(read("abort"), Ok(CheckpointRequest::Abort));
        for bad in ["", "begin a/b", "begin ", "join", "join x", "commit now", "begins"] {
            assert_eq!(read(bad), Err(Errno::INVAL), "{bad:?}");
        }
    }
}
