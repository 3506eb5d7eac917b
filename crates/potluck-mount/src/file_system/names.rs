//! Corrects what the kernel believes of names that others change or checkpoints replace.

use super::{FileSystem, entry_of};
use potluck_wire::control::ListedEntry;
use rustix::io::Errno;
use std::collections::BTreeMap;

impl FileSystem {
    /// Returns the error for a request by a number that the kernel had from an earlier look-up: `why`, but
    /// [`Errno::STALE`] instead of [`Errno::NOENT`]. On that the kernel looks the name up once more, and makes a file
    /// if that was asked for.
    pub fn looked_up_again(&self, inode: u64, why: Errno) -> Errno {
        if why != Errno::NOENT {
            return why;
        }
        let path = self.inodes().path(inode);
        if let Ok(path) = path {
            // The kept metadata of the name may be older than this finding.
            self.metadata.changed_here(&path);
        }
        Errno::STALE
    }

    /// Returns the entries of files in a directory that are written and not published, by their names.
    pub(super) fn written_in(&self, dir: u64) -> BTreeMap<String, ListedEntry> {
        let drafts = self.handles().drafts();
        let mut written = BTreeMap::new();
        for (number, draft) in drafts {
            let place = self.inodes().place(number).cloned();
            let Some((_, name)) = place.filter(|(parent, _)| *parent == dir) else { continue };
            let facts = self.facts_of_draft(number, &draft);
            written.insert(name.clone(), entry_of(name, &facts));
        }
        written
    }

    /// Returns whether no change of an entry is known since its directory was opened. An entry that changed or is gone
    /// must not come back by being shown in a listing.
    pub fn is_as_listed(&self, parent: u64, entry: &ListedEntry) -> bool {
        if self.draft_at(parent, &entry.path).is_some()
            || self.staging_at(parent, &entry.path).is_some()
        {
            return false;
        }
        let path = self.inodes().path(parent);
        path.is_ok_and(|path| self.metadata.is_as_listed(&path, entry))
    }

    /// Makes the kernel forget the attributes of a number, so that it asks for them anew.
    pub(super) fn forget_attributes(&self, inode: u64) {
        if let Some(forget) = self.forgetting.get() {
            forget(inode);
        }
    }

    /// Makes the kernel forget the attributes of a directory and of all below it, so that it asks for them anew.
    pub(super) fn forget_below(&self, dir: u64) {
        let below = self.inodes().below(dir);
        below.into_iter().for_each(|number| self.forget_attributes(number));
    }
}
