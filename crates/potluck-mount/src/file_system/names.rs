//! Corrects what the kernel believes of names that others change or checkpoints replace.

use super::{FileSystem, ShownEntry, entry_of};
use crate::inodes::ROOT;
use crate::opener::process_of;
use potluck_core::attributes::EntryAttributes;
use potluck_core::path::PoolPath;
use potluck_wire::control::{EntryKind, ListedEntry};
use rustix::io::Errno;
use std::collections::BTreeMap;

impl FileSystem {
    /// Returns the error for a request by a number that the kernel had from an earlier look-up: `why`, but
    /// [`Errno::STALE`] instead of [`Errno::NOENT`]. On that the kernel looks the name up once more, and makes a file
    /// if that was asked for.
    pub fn looked_up_again(&self, inode: u64, why: Errno) -> Errno {
        if why != Errno::NOENT && why != Errno::STALE {
            return why;
        }
        let path = self.inodes().meant_path(inode, false);
        if let Ok(path) = path {
            // The kept metadata of the name may be older than this finding.
            self.metadata.changed_here(&path);
        }
        Errno::STALE
    }

    /// Returns the number of a name that leads to an entry now. If the kernel was told of another kind of entry, or if
    /// programs read another version, the name gets a new number: all that the kernel does by the number of an entry of
    /// another kind would fail.
    pub(super) fn number_of_entry(&self, parent: u64, name: &str, entry: &ListedEntry) -> u64 {
        let known = self.number(parent, name);
        let mut inodes = self.inodes();
        if let Some(number) = known.filter(|it| inodes.was_of_another_kind(*it, entry.kind)) {
            inodes.outdate(number);
        }
        drop(inodes);
        self.number_of_version(parent, name, entry.version)
    }

    /// Returns the facts about a directory or link that this mount has just made, and counts that the kernel is told of
    /// its number.
    pub(super) fn made(
        &self,
        (parent, name): (u64, &str),
        kind: EntryKind,
        size: u64,
        attributes: EntryAttributes,
    ) -> ShownEntry {
        let (holes, version, has_name) = (0, None, true);
        let facts = ShownEntry { inode: ROOT, kind, size, holes, attributes, version, has_name };
        let inode = self.number_of_entry(parent, name, &entry_of(name.into(), &facts));
        self.inodes().looked_up(inode, (parent, name), kind);
        ShownEntry { inode, ..facts }
    }

    /// Returns the path of the entry that a thread means by a number. Who has a file open that has lost its name means
    /// that file; any other thread has looked the name up, and means what has it by now.
    pub(super) fn meant_path(&self, inode: u64, thread: u32) -> Result<PoolPath, Errno> {
        let path = self.inodes().path(inode);
        if path.is_ok() {
            return path;
        }
        let is_open = self.handles().may_be_open_in(inode, process_of(thread));
        self.inodes().meant_path(inode, is_open)
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
