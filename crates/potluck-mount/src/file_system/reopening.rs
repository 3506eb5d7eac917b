//! Calls of open() for which the kernel looks the name up twice, because others remove and make the file meanwhile.
//!
//! The kernel looks a name up, and then asks to open the number that it got. On [`Errno::STALE`] it looks every name of
//! the path up once more, makes the file if nothing is there and that was asked for, and otherwise asks to open what it
//! found. It asks no third time: a program would get an error that it does not expect of open(). So the second look-up
//! opens the version that it finds, and the program gets that if the name is gone again by then, as it would have if it
//! had come a moment earlier.

use super::{FileSystem, OpenMode, ShownEntry};
use crate::handles::Handle;
use crate::reading::Reading;
use crate::reopenings::{Reopening, Reopenings};
use crate::shared_draft::SharedDraft;
use potluck_client::File;
use potluck_wire::control::EntryKind;
use potluck_wire::error::code;
use rustix::io::Errno;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// The time within which the kernel comes back with an open() that was answered by [`Errno::STALE`], also where each
/// look-up takes its time.
const COMES_BACK: Duration = Duration::from_secs(10);

impl FileSystem {
    fn reopenings(&self) -> MutexGuard<'_, Reopenings> {
        self.reopenings.lock().expect("no holder panics")
    }

    /// Looks up the entry at a name for a thread, as [`Self::lookup`] does. If the thread opens that name for the second
    /// time, the version that is found is kept for it.
    pub async fn lookup_for(
        self: &Arc<Self>,
        thread: u32,
        parent: u64,
        name: &str,
    ) -> Result<ShownEntry, Errno> {
        let found = self.lookup(parent, name).await;
        let is_of = |it: &Reopening| (it.place.0, it.place.1.as_str()) == (parent, name);
        if !self.reopenings().get(&thread).is_some_and(is_of) {
            return found;
        }
        let path = self.child(parent, name);
        let (Ok(facts @ ShownEntry { kind: EntryKind::File, inode, version, .. }), Ok(path)) =
            (found, path)
        else {
            self.reopenings().remove(&thread); // nothing is opened, or something is made
            return found;
        };
        match self.pool.open_leased(&path).await {
            Ok(file) => self.keep_for(thread, file),
            // What was known of the name is older than this.
            Err(failure)
                if failure.code == code::NO_ENTRY
                    && (version.is_some() || self.lose_name(inode)) =>
            {
                self.reopenings().remove(&thread);
                self.metadata.changed_here(&path);
                self.forget(inode, 1); // the kernel is not told
                return Err(Errno::NOENT);
            }
            Err(_) => {} // open() says why, and may find a file that was never published
        }
        Ok(facts)
    }

    /// Keeps a version for the thread that is about to open it, but not for long.
    fn keep_for(self: &Arc<Self>, thread: u32, file: File) {
        if let Some(reopening) = self.reopenings().get_mut(&thread) {
            reopening.found = Some(file);
        }
        let files = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(COMES_BACK).await;
            if let Some(files) = files.upgrade() {
                files.forget_reopenings();
            }
        });
    }

    fn forget_reopenings(&self) {
        let now = self.pool.now();
        self.reopenings().retain(|_, it| now.saturating_sub(it.since) < COMES_BACK);
    }

    /// Opens a file for a thread of the process `opener`, as [`Self::open`] does.
    ///
    /// Errors: [`Errno::STALE`] if the file is gone; the second time [`Errno::NOENT`], unless there is a
    /// version at the name, or was when [`Self::lookup_for`] looked.
    pub async fn open_for(
        &self,
        thread: u32,
        inode: u64,
        mode: OpenMode,
        opener: Option<u32>,
    ) -> Result<u64, Errno> {
        let place = self.inodes().last_place(inode).cloned();
        self.forget_reopenings();
        let again = self.reopenings().remove(&thread);
        let again = again.filter(|it| place.as_ref() == Some(&it.place));
        let mode = OpenMode { is_again: again.is_some(), ..mode };
        let opened = self.open(inode, mode, opener).await;
        let Err(why @ (Errno::NOENT | Errno::STALE)) = opened else { return opened };
        let Some(again) = again else {
            let told = self.looked_up_again(inode, why);
            if why == Errno::NOENT {
                self.lose_name(inode);
            }
            if let Some(place) = place {
                let reopening = Reopening { place, since: self.pool.now(), found: None };
                self.reopenings().insert(thread, reopening);
            }
            return Err(told);
        };
        let has_draft = self.handles().draft(inode).is_some();
        // Of threads that look up one name at once, the kernel has one ask for all: this one may have asked for nothing, or
        // for what the name led to before.
        let found = match (again.found, self.child(again.place.0, &again.place.1)) {
            (Some(file), _) => Ok(file),
            (None, Ok(path)) => self.pool.open_leased(&path).await,
            (None, Err(_)) => return Err(why),
        };
        match found {
            Ok(file) if !has_draft && !file.is_shared() => {
                Ok(self.open_nameless(inode, file, mode, opener))
            }
            Err(failure) if failure.code == code::NO_ENTRY && !mode.writes => Err(Errno::NOENT),
            _ => Err(why),
        }
    }

    /// Opens a version whose name is gone; what is written to it is never published. Returns the handle.
    fn open_nameless(&self, inode: u64, file: File, mode: OpenMode, opener: Option<u32>) -> u64 {
        let handle = match mode.writes {
            false => Handle::Reading(Arc::new(Reading::new(file))),
            true => {
                let mut draft = self.draft_of(file, mode);
                draft.has_no_name();
                self.take_name(inode);
                Handle::Writing { draft: SharedDraft::new(draft), appends: mode.appends }
            }
        };
        self.handles().add(inode, handle, opener)
    }

    /// Takes the name from a file that programs of this mount have written and closed, if it is one, because it was
    /// removed elsewhere since. Returns whether it is one.
    fn lose_name(&self, inode: u64) -> bool {
        let draft = self.handles().draft(inode).and_then(|draft| draft.try_lock());
        let Some(mut draft) = draft.filter(|draft| draft.is_published()) else { return false };
        draft.has_no_name();
        self.take_name(inode);
        true
    }

    fn take_name(&self, inode: u64) {
        let place = self.inodes().place(inode).cloned();
        if let Some((parent, name)) = place {
            self.inodes().unlink(parent, &name);
        }
    }
}
