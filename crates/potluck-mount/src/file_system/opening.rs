//! Opens files, and answers the calls by a path that the kernel makes once more.

use super::{FileSystem, OpenMode, ShownEntry};
use crate::draft::Draft;
use crate::errno::errno;
use crate::kernel_retries::KernelRetries;
use crate::opener::process_of;
use crate::reading::Reading;
use crate::shared_draft::SharedDraft;
use potluck_core::kept_place::is_read_only;
use potluck_wire::error::{Failure, code};
use rustix::io::Errno;
use std::sync::MutexGuard;

/// The most times that a call is tried which the kernel makes once more: each time something else may have changed.
const MOST_TRIES: u32 = 5;

impl FileSystem {
    fn retries(&self) -> MutexGuard<'_, KernelRetries> {
        self.retries.lock().expect("no holder panics")
    }

    /// Looks up the entry at a name for a thread, as [`Self::lookup`] does.
    pub async fn lookup_for(
        &self,
        thread: u32,
        parent: u64,
        name: &str,
    ) -> Result<ShownEntry, Errno> {
        let found = self.lookup(parent, name).await;
        let number = found.map(|facts| facts.inode).ok();
        self.retries().looked_up(thread, (parent, name), number);
        found
    }

    /// Opens a file for a thread by the number that the kernel found at its name; returns the handle.
    ///
    /// Errors: [`Errno::STALE`] if another version or file has taken the place of the one that the number stands for.
    /// On that the kernel looks the name up once more. When it comes back the program gets what the number stood for
    /// then, or what has taken its place since.
    pub async fn open(&self, inode: u64, mode: OpenMode, thread: u32) -> Result<u64, Errno> {
        let opener = process_of(thread);
        let open = |is_retried| self.open_number(inode, mode, opener, is_retried);
        self.by_path(thread, inode, open).await
    }

    /// Does the `work` of a call that a thread makes by a path, at which the kernel found a number. The work is told
    /// whether the kernel makes the call once more. If it does, [`Errno::STALE`] means that something changed again, and
    /// the work is tried again here.
    pub(super) async fn by_path<T, F: Future<Output = Result<T, Errno>>>(
        &self,
        thread: u32,
        inode: u64,
        work: impl Fn(bool) -> F,
    ) -> Result<T, Errno> {
        let now = self.pool.now();
        let is_retried = self.retries().take(thread, inode, now);
        let mut tries = 1;
        let done = loop {
            match work(is_retried).await {
                Err(Errno::STALE) if is_retried && tries < MOST_TRIES => tries += 1,
                done => break done,
            }
        };
        done.map_err(|why| {
            let told = self.looked_up_again(inode, why);
            let place = self.inodes().last_place(inode).cloned();
            if let Some(place) = place.filter(|_| told == Errno::STALE && !is_retried) {
                self.retries().answered_stale(thread, place, self.pool.now());
            }
            told
        })
    }

    /// Returns the number under which a file is written that the kernel knows by `inode`. If that has lost its name, the
    /// kernel looks the name up once more. If it loses the name again before the kernel comes back (`is_retried`), the
    /// program writes what has the name now.
    pub(super) fn number_to_write(&self, inode: u64, is_retried: bool) -> Result<u64, Errno> {
        if !is_retried || self.has_name(inode) {
            return Ok(inode);
        }
        self.inodes().successor(inode).ok_or(Errno::STALE)
    }

    /// Opens the published version of a file. If programs read another version under this number, the number is
    /// exchanged.
    pub(super) async fn open_version(&self, inode: u64) -> Result<Reading, Errno> {
        let path = self.inodes().last_path(inode)?;
        let file = self.pool.open_leased(&path).await.map_err(|failure| not_opened(&failure))?;
        self.keep_number_of_others(inode, file.version())?;
        Ok(Reading::new(file))
    }

    /// Returns the draft of a file that a program of this mount has changed, and has open or has closed before the pool
    /// has it.
    pub(super) fn changed_draft(&self, inode: u64) -> Option<SharedDraft> {
        let handles = self.handles();
        let draft = handles.draft(inode).filter(|draft| draft.facts().is_changed);
        draft.filter(|draft| handles.is_file_written(inode) || draft.facts().is_behind)
    }

    /// Waits until a file that all programs have closed is published, or has failed to be.
    pub(super) async fn published_when_closed(&self, inode: u64) {
        let draft = self.handles().draft(inode);
        if let Some(draft) = draft.filter(|_| !self.handles().is_file_written(inode)) {
            drop(draft.lock().await);
        }
    }

    /// Makes a draft of the published version of a file, or of nothing if the file is cut off. If programs read another
    /// version under this number, the number is exchanged.
    pub(super) async fn begin_draft(&self, inode: u64, mode: OpenMode) -> Result<Draft, Errno> {
        let path = self.inodes().path(inode)?;
        if is_read_only(&path) {
            return Err(Errno::ROFS);
        }
        let file = self.pool.open_leased(&path).await.map_err(|failure| not_opened(&failure))?;
        self.keep_number_of_others(inode, file.version())?;
        let place = self.draft_place();
        if file.is_shared() {
            if mode.truncates && file.size() > 0 {
                return Err(Errno::OPNOTSUPP); // others may be writing it
            }
            return Draft::shared(place, &path, file).await;
        }
        let mut draft = match mode.truncates {
            false => Draft::of_version(place, file),
            true => Draft::cut_off_version(place, &file),
        };
        draft.note(&path);
        Ok(draft)
    }
}

/// Returns the error for a failure to open what the kernel takes for a file. If a directory or a link has taken its
/// place, the kernel looks the name up once more.
fn not_opened(failure: &Failure) -> Errno {
    match failure.code.as_str() {
        code::NOT_RECURSIVE | code::WRONG_KIND => Errno::STALE,
        _ => errno(failure),
    }
}

#[cfg(test)]
mod tests;
