//! The files and directories that programs have open.

use crate::opener::newest_process;
use crate::reading::Reading;
use crate::shared_draft::SharedDraft;
use potluck_core::attributes::EntryAttributes;
use potluck_wire::control::ListedEntry;
use rustix::io::Errno;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The most directories of which failures are kept for programs that open them later.
const FAILED_DIRS: usize = 1024;

/// An open file or directory.
#[derive(Clone)]
pub enum Handle {
    /// A version is open for reading.
    Reading(Arc<Reading>),
    /// A draft is open for reading: programs of the mount read what others of the mount have written to the file.
    ReadingDraft(SharedDraft),
    /// A draft is open for writing.
    Writing(SharedDraft),
    /// A directory is open, with its entries as they were then, or when a program last read them from the beginning.
    Listing(Arc<Vec<ListedEntry>>),
}

/// An open handle, and the file that it belongs to.
#[derive(Clone)]
pub struct OpenHandle {
    /// The number of the file.
    pub inode: u64,
    /// The version, draft or listing that is open.
    pub handle: Handle,
    /// The process that opened the handle and has not closed it, if that is known.
    pub opener: Option<u32>,
    /// True if a descriptor of the handle was closed for good, and nothing was written by the handle since. Another
    /// descriptor of that process, or one that another process inherited, may still be open.
    pub is_left: bool,
    /// The process that closed a descriptor of the handle, if that is known. It may have another descriptor.
    pub left_by: Option<u32>,
    /// The process that was started last when the handle was opened for writing: only later processes can have
    /// inherited it.
    pub newest_process: Option<u32>,
    /// True if a program has begun to read the entries of the open directory.
    is_listed: bool,
    /// The attributes that the open directory had when it was opened.
    attributes_of_dir: Option<EntryAttributes>,
    /// The first failure to publish a file of the open directory that the program was not told yet.
    failure: Option<Errno>,
}

impl OpenHandle {
    /// Returns the draft that is open for writing, if one is.
    pub fn draft(&self) -> Option<SharedDraft> {
        match &self.handle {
            Handle::Writing(draft) => Some(draft.clone()),
            Handle::Reading(_) | Handle::ReadingDraft(_) | Handle::Listing(_) => None,
        }
    }
}

/// All handles that are open, and the drafts behind them.
#[derive(Default)]
pub struct OpenHandles {
    open: HashMap<u64, OpenHandle>,
    /// The numbers of the open handles of each file, by the file's number.
    of_inode: HashMap<u64, BTreeSet<u64>>,
    /// The drafts, each with the number of its handles.
    drafts: HashMap<u64, (SharedDraft, usize)>,
    /// The first failure in each directory, by its number, that no program was told.
    failures: HashMap<u64, Errno>,
    last: u64,
}

impl OpenHandles {
    /// Adds a handle, and returns its number. If others have begun to write the file meanwhile, the handle gets their
    /// draft instead of its own.
    pub fn add(&mut self, inode: u64, mut handle: Handle, opener: Option<u32>) -> u64 {
        if let Handle::ReadingDraft(draft) | Handle::Writing(draft) = &mut handle {
            let (shared, count) = self.drafts.entry(inode).or_insert_with(|| (draft.clone(), 0));
            *count += 1;
            *draft = shared.clone();
        }
        self.last += 1;
        self.of_inode.entry(inode).or_default().insert(self.last);
        let newest_process = match handle {
            Handle::Writing(_) => newest_process(),
            Handle::Reading(_) | Handle::ReadingDraft(_) | Handle::Listing(_) => None,
        };
        let (is_left, left_by, is_listed) = (false, None, false);
        let failure = self.failures.get(&inode).copied();
        let opened = OpenHandle {
            inode,
            handle,
            opener,
            is_left,
            left_by,
            newest_process,
            is_listed,
            attributes_of_dir: None,
            failure,
        };
        self.open.insert(self.last, opened);
        self.last
    }

    /// Adds a handle that reads a version of a file, and returns its number. If a program is writing the file, and has
    /// changed it or opened another version, the handle reads that program's draft.
    pub fn add_reading(&mut self, inode: u64, reading: Arc<Reading>, opener: Option<u32>) -> u64 {
        let draft = self.draft(inode).filter(|draft| {
            let facts = draft.facts();
            let differs = facts.is_changed || facts.version != Some(reading.file().version());
            facts.is_common && differs && self.is_file_written(inode)
        });
        let handle = draft.map_or(Handle::Reading(reading), Handle::ReadingDraft);
        self.add(inode, handle, opener)
    }

    /// Makes the handles that read the version which a program has opened and changed read the changes.
    pub fn show_changes(&mut self, inode: u64) {
        let Some(draft) = self.draft(inode) else { return };
        let facts = draft.facts();
        if facts.is_changed {
            self.replace(inode, &Handle::ReadingDraft(draft), |reading| {
                facts.version == Some(reading.file().version())
            });
        }
    }

    /// Returns what is open under a handle.
    pub fn get(&self, number: u64) -> Option<OpenHandle> {
        self.open.get(&number).cloned()
    }

    /// Notes that a handle was closed by its opener; other processes may still have it.
    pub fn leave(&mut self, number: u64) {
        if let Some(opened) = self.open.get_mut(&number) {
            opened.left_by = opened.opener.take().or(opened.left_by);
            opened.is_left = true;
        }
    }

    /// Notes that a process has written by a handle that was closed, which is therefore still open. If the process that
    /// closed it is the writer, it counts as the opener again: its next close publishes the file, and not that of
    /// another process which inherited the descriptor.
    pub fn is_written_again(&mut self, number: u64, writer: Option<u32>) {
        if let Some(opened) = self.open.get_mut(&number) {
            opened.is_left = false;
            opened.opener = opened.opener.or(opened.left_by.filter(|left| writer == Some(*left)));
        }
    }

    /// Notes that the process that opened a handle has closed it, and others may write by it.
    pub fn hand_on(&mut self, number: u64) {
        if let Some(opened) = self.open.get_mut(&number) {
            opened.opener = None;
        }
    }

    /// Notes that a file in the directory `dir` was not published after its close() had returned. Each program that has
    /// the directory open is told once, and each that opens it before any was told. Linux keeps the errors of writing a
    /// file behind in the same way.
    pub fn note_failure(&mut self, dir: u64, why: Errno) {
        for number in self.of_inode.get(&dir).into_iter().flatten() {
            if let Some(opened) = self.open.get_mut(number) {
                opened.failure.get_or_insert(why);
            }
        }
        if self.failures.len() < FAILED_DIRS {
            self.failures.entry(dir).or_insert(why);
        }
    }

    /// Returns the first failure in an open directory that the program was not told yet.
    pub fn take_failure(&mut self, number: u64) -> Option<Errno> {
        let opened = self.open.get_mut(&number)?;
        let why = opened.failure.take()?;
        self.failures.remove(&opened.inode);
        Some(why)
    }

    /// Returns the handles of a file, each with its number, in the order in which they were opened.
    fn of_file(&self, inode: u64) -> impl Iterator<Item = (u64, &OpenHandle)> {
        let numbers = self.of_inode.get(&inode).into_iter().flatten();
        numbers.filter_map(move |number| Some((*number, self.open.get(number)?)))
    }

    /// Returns the processes that have closed a handle of a file; each may have another descriptor of it.
    pub fn left_by(&self, inode: u64) -> Vec<u32> {
        self.of_file(inode).filter_map(|(_, opened)| opened.left_by).collect()
    }

    /// Returns whether a program has any file open for writing.
    pub fn is_written(&self) -> bool {
        self.open.values().any(is_written)
    }

    /// Returns whether a program has this file open for writing.
    pub fn is_file_written(&self, inode: u64) -> bool {
        self.of_file(inode).any(|(_, opened)| is_written(opened))
    }

    /// Returns whether a program has this file open for writing by another handle than `number`.
    pub fn is_written_beside(&self, inode: u64, number: u64) -> bool {
        self.of_file(inode).any(|(other, opened)| other != number && is_written(opened))
    }

    /// Notes the attributes that a directory had when it was opened.
    pub fn set_attributes_of_dir(&mut self, number: u64, attributes: EntryAttributes) {
        if let Some(opened) = self.open.get_mut(&number) {
            opened.attributes_of_dir = Some(attributes);
        }
    }

    /// Returns the attributes that an open directory had when it was opened last.
    pub fn attributes_of_dir(&self, inode: u64) -> Option<EntryAttributes> {
        self.of_file(inode).filter_map(|(_, opened)| opened.attributes_of_dir).last()
    }

    /// Notes that a program reads the entries of an open directory from the beginning. Returns whether one has begun to
    /// before.
    pub fn is_listed_again(&mut self, number: u64) -> bool {
        let opened = self.open.get_mut(&number);
        opened.is_some_and(|opened| std::mem::replace(&mut opened.is_listed, true))
    }

    /// Gives an open directory other entries.
    pub fn set_listing(&mut self, number: u64, entries: Arc<Vec<ListedEntry>>) {
        if let Some(OpenHandle { handle: Handle::Listing(listed), .. }) = self.open.get_mut(&number)
        {
            *listed = entries;
        }
    }

    /// Returns an open handle, if no other handle has its file open.
    pub fn only_one(&self, number: u64) -> Option<OpenHandle> {
        self.get(number).filter(|opened| self.of_file(opened.inode).count() == 1)
    }

    /// Takes its draft from a handle that no program was given: a program that opens the file from now on gets another.
    /// Does nothing and returns false if another handle has the file open.
    pub fn take_draft(&mut self, number: u64) -> bool {
        let Some(OpenHandle { inode, .. }) = self.only_one(number) else { return false };
        if let Some(opened) = self.open.get_mut(&number) {
            opened.handle = Handle::Listing(Arc::default()); // which does not count among those of a draft
        }
        self.drafts.remove(&inode);
        true
    }

    /// Returns whether a process may have a file open: false if it is known, and others have opened all handles.
    pub fn may_be_open_in(&self, inode: u64, process: Option<u32>) -> bool {
        self.of_file(inode).any(|(_, opened)| {
            let opener = opened.opener.or(opened.left_by);
            process.is_none() || opener.is_none() || opener == process
        })
    }

    /// Returns the draft of a file, if it has one.
    pub fn draft(&self, inode: u64) -> Option<SharedDraft> {
        self.drafts.get(&inode).map(|(draft, _)| draft.clone())
    }

    /// Returns the versions of a file that are open for reading.
    pub fn readings(&self, inode: u64) -> Vec<Arc<Reading>> {
        let readings = self.of_file(inode).filter_map(|(_, opened)| match &opened.handle {
            Handle::Reading(reading) => Some(Arc::clone(reading)),
            _ => None,
        });
        readings.collect()
    }

    /// Replaces all handles that read a version of a file by `handle`.
    pub fn replace_readings(&mut self, inode: u64, handle: &Handle) {
        self.replace(inode, handle, |_| true);
    }

    fn replace(&mut self, inode: u64, handle: &Handle, is_meant: impl Fn(&Reading) -> bool) {
        for number in self.of_inode.get(&inode).into_iter().flatten() {
            let Some(opened) = self.open.get_mut(number) else { continue };
            match &opened.handle {
                Handle::Reading(reading) if is_meant(reading) => {}
                _ => continue,
            }
            opened.handle = handle.clone();
            if let Handle::ReadingDraft(draft) = handle {
                self.drafts.entry(inode).or_insert_with(|| (draft.clone(), 0)).1 += 1;
            }
        }
    }

    /// Returns whether a program reads the draft of a file.
    pub fn is_draft_read(&self, inode: u64) -> bool {
        self.of_file(inode).any(|(_, opened)| matches!(opened.handle, Handle::ReadingDraft(_)))
    }

    /// Makes the handles that read the draft of a file read a version instead, unless a program writes the file.
    pub fn replace_draft(&mut self, inode: u64, reading: &Arc<Reading>) {
        if self.is_file_written(inode) {
            return;
        }
        for number in self.of_inode.get(&inode).cloned().unwrap_or_default() {
            let opened = self.open.get_mut(&number);
            let reads = opened.filter(|opened| matches!(opened.handle, Handle::ReadingDraft(_)));
            let Some(opened) = reads else { continue };
            opened.handle = Handle::Reading(Arc::clone(reading));
            self.leaves_draft(inode);
        }
    }

    /// Notes that a handle is not one of a draft any more. With its last handle the draft is removed.
    fn leaves_draft(&mut self, inode: u64) {
        if let Entry::Occupied(mut draft) = self.drafts.entry(inode) {
            draft.get_mut().1 -= 1;
            if draft.get().1 == 0 {
                draft.remove();
            }
        }
    }

    /// Returns all drafts, each with the number of its file.
    pub fn drafts(&self) -> Vec<(u64, SharedDraft)> {
        self.drafts.iter().map(|(inode, (draft, _))| (*inode, draft.clone())).collect()
    }

    /// Returns whether a file is open.
    pub fn is_open(&self, inode: u64) -> bool {
        self.of_inode.contains_key(&inode)
    }

    /// Removes a handle, and returns it. With the last handle of a draft the draft is removed.
    pub fn remove(&mut self, number: u64) -> Option<OpenHandle> {
        let removed = self.open.remove(&number)?;
        if let Entry::Occupied(mut of_file) = self.of_inode.entry(removed.inode) {
            of_file.get_mut().remove(&number);
            if of_file.get().is_empty() {
                of_file.remove();
            }
        }
        if matches!(removed.handle, Handle::ReadingDraft(_) | Handle::Writing(_)) {
            self.leaves_draft(removed.inode);
        }
        Some(removed)
    }
}

fn is_written(opened: &OpenHandle) -> bool {
    matches!(opened.handle, Handle::Writing(_)) && !opened.is_left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handles_of_a_file_are_those_that_are_open() {
        let mut handles = OpenHandles::default();
        let mut open = |inode| handles.add(inode, Handle::Listing(Arc::default()), Some(7));
        let (first, other, second) = (open(2), open(3), open(2));
        let of = |handles: &OpenHandles, inode| {
            handles.of_file(inode).map(|(number, _)| number).collect::<Vec<_>>()
        };
        assert_eq!((of(&handles, 2), of(&handles, 3)), (vec![first, second], vec![other]));
        assert!(handles.only_one(first).is_none() && handles.only_one(other).is_some());
        let may_be = |process| handles.may_be_open_in(2, process);
        assert_eq!([Some(7), None, Some(8)].map(may_be), [true, true, false]);
        assert!(!handles.may_be_open_in(4, None), "nobody has it open");
        handles.leave(first);
        assert_eq!(handles.left_by(2), [7]);
        assert_eq!(handles.remove(first).map(|removed| removed.inode), Some(2));
        assert_eq!(of(&handles, 2), [second]);
        assert!(handles.is_open(2) && handles.remove(second).is_some() && !handles.is_open(2));
        assert_eq!(handles.of_inode.len(), 1);
    }

    #[test]
    fn directory_failures_are_told_once_and_bounded() {
        let mut handles = OpenHandles::default();
        let open = |handles: &mut OpenHandles, dir| {
            handles.add(dir, Handle::Listing(Arc::default()), Some(7))
        };
        let (before, elsewhere) = (open(&mut handles, 2), open(&mut handles, 3));
        handles.note_failure(2, Errno::NOSPC);
        handles.note_failure(2, Errno::IO);
        let after = open(&mut handles, 2);
        assert_eq!(handles.take_failure(elsewhere), None);
        for handle in [before, after] {
            assert_eq!(handles.take_failure(handle), Some(Errno::NOSPC));
            assert_eq!(handles.take_failure(handle), None);
        }
        let later = open(&mut handles, 2);
        assert_eq!(handles.take_failure(later), None, "others were told");
        (0..2000).for_each(|dir| handles.note_failure(dir, Errno::IO));
        assert_eq!(handles.failures.len(), FAILED_DIRS);
        assert_eq!(handles.take_failure(later), Some(Errno::IO));
    }
}
