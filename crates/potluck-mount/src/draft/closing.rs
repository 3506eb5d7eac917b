//! Drafts that are published behind their close(): from memory, or from a file that outlives the mount.

use super::{Behind, Content, Draft, Streamed};
use crate::closed_files::{ClosedFile, ClosedFiles};
use crate::write_behind::{FileBehind, Turn};
use potluck_core::attributes::AttributesToSet;
use potluck_core::chunk::Digest;
use potluck_core::path::PoolPath;
use potluck_wire::control::Condition;
use rustix::io::Errno;
use std::io;

impl Draft {
    /// Returns the place of the draft among those that are published behind their close(), if it is one of them.
    pub fn turn(&self) -> Option<Turn> {
        self.behind.as_ref().map(|behind| behind.file.turn())
    }

    /// Returns whether a program has closed the draft, and it is to be published in its turn.
    pub fn is_behind(&self) -> bool {
        self.behind.is_some()
    }

    /// Returns whether the draft may be published behind its close(): nothing has failed so far, and others do not
    /// write it, too.
    fn may_be_behind(&self) -> bool {
        let is_whole = self.failure.is_none() && !self.is_nameless && self.is_readable();
        is_whole && self.is_dirty && !self.is_shared() && !self.is_behind()
    }

    /// Gives the draft its place among those that are published behind their close(), if it goes to donors from memory
    /// as it is written. Returns whether it did.
    pub fn stays_in_memory(&mut self, file: impl FnOnce() -> FileBehind) -> bool {
        let is_streamed =
            matches!(self.content, Content::Streamed { stream: Streamed::Stream(_), .. });
        if is_streamed && self.may_be_behind() {
            self.behind = Some(Behind { file: file(), kept: None });
        }
        self.is_behind()
    }

    /// Keeps the draft in a file that outlives the mount, and gives it its place among those that are published behind
    /// their close(). Returns false for a draft that changes a version, of which this machine has a part alone. With
    /// `synced` no power cut undoes the file.
    ///
    /// Errors: those of the spool's disk.
    pub async fn is_kept(
        &mut self,
        path: &PoolPath,
        pool: Digest,
        closed: &ClosedFiles,
        synced: bool,
        file: impl FnOnce() -> FileBehind,
    ) -> io::Result<bool> {
        if !self.may_be_behind() {
            return Ok(self.is_behind());
        }
        self.go_on_as_edit().await?;
        let now = self.pool.wall_ms();
        let (size, must_be_new) = (self.size(), self.condition == Condition::IfAbsent);
        let must_be_new = must_be_new || self.reserved.is_some();
        let attributes = self.attributes;
        let Content::Edited(edit) = &mut self.content else { return Ok(false) };
        let Some(spooled) = edit.all_in_spool() else { return Ok(false) };
        let about = ClosedFile {
            pool,
            path: path.clone(),
            size,
            written: spooled.written(&(0..size)).collect(),
            attributes: AttributesToSet {
                mtime: attributes.mtime,
                permissions: Some(attributes.permissions),
                owner: attributes.owner,
                accessed: attributes.accessed,
                changed: attributes.changed,
            },
            must_be_new,
        };
        let kept = closed.keep(spooled, &about, now, synced)?;
        self.behind = Some(Behind { file: file(), kept: Some(kept) });
        self.note.is_over(); // the kept file names it from now on
        Ok(true)
    }

    /// Returns whether the draft outlives the mount, until the pool has it.
    pub fn outlives_mount(&self) -> bool {
        self.behind.as_ref().is_some_and(|behind| behind.kept.is_some())
    }

    /// Notes that the draft is published, that it never will be, or that it could not be: those that were closed later
    /// are next. A file that outlives the mount stays on this machine where `keeps` says so, for the next mount.
    pub fn is_behind_no_more(&mut self, keeps: bool) {
        if let Some(Behind { kept: Some(kept), .. }) = self.behind.take()
            && !keeps
        {
            kept.is_published();
        }
    }
}

/// Returns whether a draft that could not be published may be tried again: neither the manager nor donors have refused
/// it.
pub fn may_try_again(why: Errno) -> bool {
    why == Errno::TIMEDOUT
}
