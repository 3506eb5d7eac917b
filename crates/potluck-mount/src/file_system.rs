//! The pool as directories and files: the work of each request that programs make.

mod attributes;
mod capacity;
mod checkpoints;
mod closing;
mod empty_files;
mod extended_attributes;
mod left_files;
mod links;
mod locking;
mod names;
mod open_dirs;
mod opening;
mod renaming;
mod reservations;
mod seeking;
mod sharing;
mod staged_writers;
mod syncing;
mod versions;

use checkpoints::MountedCheckpoints;
use renaming::will_have_no_name;

pub use attributes::{AttributeChange, NewEntry, OwnerChange};
#[cfg(feature = "fuzzing")]
pub use checkpoints::CheckpointRequest;
pub use extended_attributes::PoolAttribute;

use crate::closed_files::ClosedFiles;
use crate::coherent_metadata::CoherentMetadata;
use crate::draft::{Draft, DraftPlace};
use crate::errno::errno;
use crate::handles::{Handle, OpenHandle, OpenHandles};
use crate::inodes::{Inodes, ROOT};
use crate::kernel_retries::KernelRetries;
use crate::known_capacities::KnownCapacities;
use crate::locks::{MountLocks, ReservedName};
use crate::opener::process_of;
use crate::reading::{ReadBytes, Reading};
use crate::record::MountRecord;
use crate::shared_draft::{DraftFacts, SharedDraft};
use crate::small_files::SmallFiles;
use crate::spool::Spool;
use crate::staged_handles::StagedHandles;
use crate::write_limits::WriteLimits;
use crate::write_rates::WrittenFiles;
use potluck_client::{Attributes, Pool};
use potluck_core::attributes::{EntryAttributes, FileTime};
use potluck_core::ids::{LockHolderId, VersionId};
use potluck_core::kept_place::is_read_only;
use potluck_core::path::{BadPath, PoolPath};
use potluck_wire::control::{EntryKind, ListedEntry, MakeDir, OnlyIf, Remove};
use potluck_wire::error::{Failure, code};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// The facts about an entry that programs see.
#[derive(Debug, Clone, Copy)]
pub struct ShownEntry {
    /// The number of the entry in this mount.
    pub inode: u64,
    /// The kind of the entry: a file, a directory or a symbolic link.
    pub kind: EntryKind,
    /// The size of a file in bytes.
    pub size: u64,
    /// The bytes of a file that are in holes.
    pub holes: u64,
    /// The times, permissions and owner.
    pub attributes: EntryAttributes,
    /// The version of a file; `None` for a draft and for anything but a file.
    pub version: Option<VersionId>,
    /// True if a name leads to the entry: a file that is open may have lost its name.
    pub has_name: bool,
}

impl ShownEntry {
    /// Makes the facts about a directory of which only the number is known.
    pub fn of_dir(inode: u64) -> Self {
        let attributes = EntryAttributes::of_dir(0);
        let (kind, size, holes, version, has_name) = (EntryKind::Dir, 0, 0, None, true);
        Self { inode, kind, size, holes, attributes, version, has_name }
    }
}

/// The way in which a file is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenMode {
    /// True if the file is opened for writing.
    pub writes: bool,
    /// True if the content of the file is cut off (`O_TRUNC`).
    pub truncates: bool,
    /// True if the name must be free before (`O_EXCL`).
    pub is_exclusive: bool,
}

/// The way in which a program writes to an open file.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteMode {
    /// True if the bytes go to the end of the file, whatever their offset (`O_APPEND`).
    pub appends: bool,
    /// True if the write returns when the bytes are synced (`O_SYNC` or `O_DSYNC`).
    pub syncs: bool,
    /// True if the set-user-ID and set-group-ID bits are cleared, because the writer is not trusted with them.
    pub clears_set_ids: bool,
}

/// One mounted directory of a pool.
pub struct FileSystem {
    pool: Pool,
    metadata: Arc<CoherentMetadata>,
    small_files: Arc<SmallFiles>,
    spool: Arc<Spool>,
    limits: Arc<WriteLimits>,
    written_files: Arc<WrittenFiles>,
    record: Arc<MountRecord>,
    inodes: Mutex<Inodes>,
    handles: Mutex<OpenHandles>,
    retries: Mutex<KernelRetries>,
    checkpoints: Mutex<MountedCheckpoints>,
    staged_handles: Arc<Mutex<StagedHandles>>,
    capacities: Mutex<KnownCapacities>,
    locks: Arc<MountLocks>,
    closed_files: ClosedFiles,
    /// True if this mount made changes that a power cut of the manager may undo for a moment, since it synced all.
    has_unsynced: AtomicBool,
    /// True once requests are served no more.
    has_ended: AtomicBool,
    /// The function that makes the kernel forget the attributes of a number.
    forgetting: OnceLock<Box<dyn Fn(u64) + Send + Sync>>,
}

impl FileSystem {
    /// Makes the file system of the directory `root`. Files that are not written in order are kept in `spool` until
    /// they are closed, others are written as `limits` allow, and `record` names the files that are not published.
    pub fn new(
        pool: Pool,
        root: PoolPath,
        spool: Spool,
        limits: WriteLimits,
        record: Arc<MountRecord>,
    ) -> Self {
        let closed_files = ClosedFiles::new(spool.dir());
        let (inodes, handles) = (Mutex::new(Inodes::new(root)), Mutex::default());
        let metadata = Arc::new(CoherentMetadata::new(pool.clone()));
        let (retries, checkpoints, staged_handles, capacities) = Default::default();
        let limits = Arc::new(limits);
        let small_files = Arc::new(SmallFiles::new(pool.clone(), limits.behind().is_some()));
        let (spool, written_files, forgetting) = (Arc::new(spool), Arc::default(), OnceLock::new());
        let locks = Arc::new(MountLocks::new(pool.clone(), LockHolderId(pool.random())));
        Self {
            pool,
            metadata,
            small_files,
            spool,
            limits,
            written_files,
            record,
            inodes,
            handles,
            retries,
            checkpoints,
            staged_handles,
            capacities,
            locks,
            closed_files,
            has_unsynced: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            forgetting,
        }
    }

    /// Returns the metadata that is known of the pool.
    pub fn metadata(&self) -> &Arc<CoherentMetadata> {
        &self.metadata
    }

    fn inodes(&self) -> MutexGuard<'_, Inodes> {
        self.inodes.lock().expect("no holder panics")
    }

    fn handles(&self) -> MutexGuard<'_, OpenHandles> {
        self.handles.lock().expect("no holder panics")
    }

    fn draft_at(&self, parent: u64, name: &str) -> Option<SharedDraft> {
        let known = self.inodes().find(parent, name)?;
        self.handles().draft(known)
    }

    /// Returns the present time, which entries that are modified get.
    pub fn now(&self) -> FileTime {
        FileTime::of_ms(self.pool.wall_ms())
    }

    fn draft_place(&self) -> DraftPlace {
        let (pool, spool) = (self.pool.clone(), Arc::clone(&self.spool));
        let small_files = Arc::clone(&self.small_files);
        let (limits, written_files) = (Arc::clone(&self.limits), Arc::clone(&self.written_files));
        DraftPlace { pool, small_files, spool, limits, written_files, note: self.record.draft() }
    }

    fn child(&self, parent: u64, name: &str) -> Result<PoolPath, Errno> {
        if let Some(staging) = self.staging_at(parent, name) {
            return Ok(staging);
        }
        let parent = self.inodes().path(parent)?;
        parent.join(name).map_err(|why| match why {
            BadPath::LongName(_) | BadPath::LongPath(_) => Errno::NAMETOOLONG,
            _ => Errno::INVAL,
        })
    }

    /// Looks up the entry at a name, and counts that the kernel is told of its number.
    pub async fn lookup(&self, parent: u64, name: &str) -> Result<ShownEntry, Errno> {
        let known = self.inodes().find(parent, name);
        let draft = known.and_then(|inode| self.handles().draft(inode).map(|it| (inode, it)));
        let facts = match draft {
            Some((inode, draft)) => self.facts_of_draft(inode, &draft),
            None => {
                let entry = self.stat_or_end(parent, name).await?;
                facts_of(self.number_of_entry(parent, name, &entry), &entry)
            }
        };
        self.inodes().looked_up(facts.inode, (parent, name), facts.kind);
        Ok(facts)
    }

    async fn stat(&self, path: &PoolPath) -> Result<ListedEntry, Errno> {
        self.metadata.entry(path).await
    }

    /// Returns the facts about a draft without waiting for its lock: while one program closes the file and donors are
    /// away, others may list its directory.
    fn facts_of_draft(&self, inode: u64, draft: &SharedDraft) -> ShownEntry {
        let DraftFacts { size, holes, attributes, .. } = draft.facts();
        let Attributes { mtime, permissions, owner, changed, accessed } = attributes;
        let [mtime, changed] = [mtime, changed].map(|time| time.unwrap_or_else(|| self.now()));
        let attributes = EntryAttributes { mtime, permissions, owner, changed, accessed };
        let (kind, version, has_name) = (EntryKind::File, None, self.has_name(inode));
        ShownEntry { inode, kind, size, holes, attributes, version, has_name }
    }

    fn facts_of_reading(&self, inode: u64, reading: &Reading) -> ShownEntry {
        let file = reading.file();
        let (kind, attributes) = (EntryKind::File, reading.attributes());
        let (size, holes) = (file.size(), file.size() - file.data());
        let (version, has_name) = (Some(file.version()), self.has_name(inode));
        ShownEntry { inode, kind, size, holes, attributes, version, has_name }
    }

    fn has_name(&self, inode: u64) -> bool {
        self.inodes().path(inode).is_ok()
    }

    /// Notes that the kernel forgets `times` look-ups of a number.
    pub fn forget(&self, inode: u64, times: u64) {
        let is_open = self.handles().is_open(inode);
        self.inodes().forget(inode, times, is_open);
    }

    /// Returns the facts about a number; those of the version that is read under `handle`, if one is.
    pub async fn facts(&self, inode: u64, handle: Option<u64>) -> Result<ShownEntry, Errno> {
        let opened = handle.and_then(|handle| self.handles().get(handle));
        if let Some(OpenHandle { handle: Handle::Reading(reading), .. }) = &opened {
            return Ok(self.facts_of_reading(inode, reading));
        }
        let number = opened.map_or_else(|| self.opened_number(inode), |opened| opened.inode);
        let draft = self.handles().draft(number);
        if let Some(draft) = draft {
            return Ok(self.facts_of_draft(number, &draft));
        }
        let is_open = self.handles().is_open(inode);
        let path = self.inodes().meant_path(inode, is_open);
        let path = match path {
            Ok(path) => path,
            // The file was removed or replaced, and the kernel does not say which open handle the question is about.
            Err(why) => {
                let readings = self.handles().readings(inode);
                return match readings.last() {
                    Some(reading) => Ok(self.facts_of_reading(inode, reading)),
                    None => self.facts_of_removed_dir(inode).ok_or(why),
                };
            }
        };
        if path.space().is_empty() {
            return Ok(ShownEntry::of_dir(inode));
        }
        let mut found = self.stat(&path).await;
        if found == Err(Errno::NOENT) && self.has_ended_elsewhere(inode).await {
            let path = self.inodes().path(inode)?;
            found = self.stat(&path).await;
        }
        // The name may lead to something else by now, or nowhere, while the program that asks has the version open.
        if let Some(reading) = self.pinned(inode) {
            let is_outdated = match &found {
                Ok(entry) => entry.version != Some(reading.file().version()),
                Err(why) => *why == Errno::NOENT,
            };
            if is_outdated {
                self.inodes().outdate(inode);
                return Ok(self.facts_of_reading(inode, &reading));
            }
        }
        match found {
            Err(Errno::NOENT) => self.facts_of_removed_dir(inode).ok_or(Errno::NOENT),
            found => self.facts_as_told(inode, &found?),
        }
    }

    /// Returns the facts about an entry for a number.
    ///
    /// Errors: [`Errno::STALE`] if the kernel was told that the number is of another kind.
    fn facts_as_told(&self, inode: u64, found: &ListedEntry) -> Result<ShownEntry, Errno> {
        match self.inodes().was_of_another_kind(inode, found.kind) {
            true => Err(Errno::STALE),
            false => Ok(facts_of(inode, found)),
        }
    }

    /// Returns the number of the parent directory; [`ROOT`] for the root and for an entry without a name.
    pub fn parent(&self, inode: u64) -> u64 {
        self.inodes().place(inode).map_or(ROOT, |(parent, _)| *parent)
    }

    /// Returns the number of a name, if it has one.
    pub fn number(&self, parent: u64, name: &str) -> Option<u64> {
        self.inodes().find(parent, name)
    }

    /// Returns the number that a listing tells of a name. It gives the name no number, because the kernel would never
    /// forget it.
    pub fn listed_number(&self, parent: u64, name: &str) -> u64 {
        self.inodes().expected(parent, name)
    }

    /// Returns the number of the directory at a path, if it has one.
    pub fn number_of_dir(&self, path: &PoolPath) -> Option<u64> {
        self.inodes().find_path(path)
    }

    /// Returns the facts about an entry of a listing, which gets a number if it has none.
    pub fn facts_of_entry(&self, parent: u64, entry: &ListedEntry) -> ShownEntry {
        facts_of(self.number_of_version(parent, &entry.path, entry.version), entry)
    }

    /// Notes that the kernel was told the number of an entry of a directory.
    pub fn looked_up(&self, inode: u64, parent: u64, entry: &ListedEntry) {
        self.inodes().looked_up(inode, (parent, &entry.path), entry.kind);
    }

    /// Opens a file for the process `opener`; returns the handle. For a call that the kernel makes once more
    /// (`is_retried`), what the number stood for when the kernel found it, or what has the name now, is good enough.
    async fn open_number(
        &self,
        inode: u64,
        mode: OpenMode,
        opener: Option<u32>,
        is_retried: bool,
    ) -> Result<u64, Errno> {
        if !mode.writes {
            return self.open_for_reading(inode, opener, is_retried).await;
        }
        let inode = self.number_to_write(inode, is_retried)?;
        self.find_present(inode).await?;
        self.behind_is_published(inode).await;
        let path = self.inodes().path(inode)?;
        let shared = self.handles().draft(inode);
        let (draft, is_begun) = match shared {
            Some(draft) => (draft, false),
            None => (SharedDraft::new(self.begin_draft(inode, mode).await?), true),
        };
        let number = self.handles().add(inode, Handle::Writing(draft.clone()), opener);
        let shared = self.handles().draft(inode).filter(|shared| !shared.is_same(&draft));
        if is_begun && shared.is_some() {
            // Another program began to write the file at the same time.
            let mut draft = draft.lock().await;
            draft.has_no_name();
            draft.withdraw().await;
        }
        if mode.truncates && (!is_begun || shared.is_some()) {
            let mut draft = shared.unwrap_or(draft).lock().await;
            if let Err(why) = draft.cut_off(&path).await {
                self.handles().leave(number);
                if draft.is_shared() {
                    // Other programs may have closed the file meanwhile, and left it to this handle to publish the
                    // mount's part.
                    let _ = self.publish_in_turn(&mut draft, inode).await; // the record has what fails
                }
                self.handles().remove(number);
                return Err(why);
            }
        }
        self.handles().show_changes(inode); // by cutting the file off
        self.readers_share_by_locks(inode).await;
        self.writes_staged(inode, number).await;
        Ok(number)
    }

    /// Opens a file to be read: the draft if a program of this mount is changing the file, or shares it by locks, or if
    /// there is no version; else the published version.
    async fn open_for_reading(
        &self,
        inode: u64,
        opener: Option<u32>,
        is_retried: bool,
    ) -> Result<u64, Errno> {
        if !is_retried && self.inodes().is_outdated(inode) {
            return Err(Errno::STALE); // on this the kernel looks the name up once more
        }
        self.find_present(inode).await?;
        if let Some(draft) = self.shared_by_locks(inode).await {
            return Ok(self.handles().add(inode, Handle::ReadingDraft(draft), opener));
        }
        if let Some(draft) = self.changed_draft(inode) {
            let changed = draft.lock().await; // it may be being published
            let is_read_by_draft = self.handles().is_file_written(inode) || changed.is_behind();
            if changed.is_changed() && is_read_by_draft {
                let handle = Handle::ReadingDraft(draft);
                return Ok(self.handles().add(inode, handle, opener));
            }
        }
        self.published_when_closed(inode).await;
        let draft = self.handles().draft(inode);
        let readings = self.handles().readings(inode);
        let is_nameless = self.inodes().place(inode).is_none();
        let reading = match (is_nameless, readings.last()) {
            // The file was replaced after it was looked up.
            (true, Some(reading)) => Reading::new(reading.file().clone()),
            _ => match self.open_version(inode).await {
                Ok(reading) => reading,
                Err(failure) => match draft {
                    Some(draft) if failure == Errno::NOENT => {
                        return Ok(self.handles().add(inode, Handle::ReadingDraft(draft), opener));
                    }
                    _ => return Err(failure),
                },
            },
        };
        Ok(self.handles().add_reading(inode, Arc::new(reading), opener))
    }

    /// Makes a file, which is seen only in this mount until it is closed; returns its facts and the handle.
    pub async fn create(
        &self,
        parent: u64,
        name: &str,
        mode: OpenMode,
        made: NewEntry,
        opener: Option<u32>,
    ) -> Result<(ShownEntry, u64), Errno> {
        let path = self.child(parent, name)?;
        if path.names().is_empty() {
            return Err(Errno::PERM); // a space is made by `potluck space create`
        }
        if is_read_only(&path) {
            return Err(Errno::ROFS);
        }
        let NewEntry { permissions, owner } = self.inheriting(parent, made, false).await?;
        let reserved = match mode.is_exclusive {
            true => Some(self.reserve_name(&path).await?),
            false => None,
        };
        let attributes = Attributes { permissions, owner, ..Attributes::default() };
        let place = self.draft_place();
        let mut draft = Draft::empty(place, attributes).with_reserved(reserved);
        draft.note(&path);
        let draft = SharedDraft::new(draft);
        let inode = self.number_of_version(parent, name, None);
        let facts = self.facts_of_draft(inode, &draft);
        let handle = self.handles().add(inode, Handle::Writing(draft), opener);
        self.inodes().looked_up(inode, (parent, name), facts.kind);
        self.writes_staged(inode, handle).await;
        Ok((facts, handle))
    }

    /// Reserves a name in the whole pool.
    async fn reserve_name(&self, path: &PoolPath) -> Result<ReservedName, Errno> {
        let reserved = self.locks.reserve(path.clone()).await;
        if matches!(reserved, Err(Errno::EXIST)) {
            self.metadata.changed_here(path); // what is known here does not say so
        }
        reserved
    }

    /// Reads from an open file.
    pub async fn read(&self, handle: u64, offset: u64, len: usize) -> Result<ReadBytes, Errno> {
        let opened = self.handles().get(handle).ok_or(Errno::BADF)?;
        match opened.handle {
            Handle::Reading(reading) => {
                reading.read(offset, len).await.map_err(|failure| errno(&failure))
            }
            Handle::ReadingDraft(draft) | Handle::Writing(draft) => {
                let path = self.inodes().last_path(opened.inode);
                draft.lock().await.read(&path?, offset, len).await.map(ReadBytes::Own)
            }
            Handle::Listing(_) => Err(Errno::ISDIR),
        }
    }

    /// Writes to an open file for the thread `thread`.
    pub async fn write(
        &self,
        handle: u64,
        thread: u32,
        offset: u64,
        bytes: Vec<u8>,
        mode: WriteMode,
    ) -> Result<(), Errno> {
        let opened = self.handles().get(handle).ok_or(Errno::BADF)?;
        let Handle::Writing(draft) = opened.handle else { return Err(Errno::BADF) };
        if opened.is_left {
            self.handles().is_written_again(handle, process_of(thread));
        }
        let path = self.inodes().last_path(opened.inode);
        let offset = (!mode.appends).then_some(offset);
        let mut draft = draft.lock().await;
        if draft.is_behind() {
            // What was closed is published as it was then. The mount's record has what fails.
            let _ = self.publish_in_turn(&mut draft, opened.inode).await;
        }
        draft.claim(opened.opener, offset, bytes.len())?;
        let path = path?;
        let was_changed = draft.is_changed();
        let mut written = draft.write(&path, offset, bytes).await;
        if written.is_ok()
            && let Some(spooled) = draft.spooled_to_be_checked()
        {
            written = self.check_room(&path, &mut draft, spooled).await;
        }
        if written.is_ok() && mode.syncs {
            written = self.sync_draft(&mut draft, opened.inode).await;
        }
        if let Err(why) = written {
            draft.fail(why, self.locks.is_locked(opened.inode));
            return Err(why);
        }
        let before = draft.attributes();
        let permissions = before.permissions.without_set_ids();
        if mode.clears_set_ids && permissions != before.permissions {
            let changed = Some(self.now());
            draft.set_attributes(Attributes { permissions, changed, ..before });
            drop(draft); // released first, for the kernel may ask at once
            self.forget_attributes(opened.inode);
        } else {
            drop(draft);
        }
        if !was_changed {
            self.handles().show_changes(opened.inode);
        }
        Ok(())
    }

    /// Returns whether a handle is open that will publish the draft.
    fn is_open(&self, inode: u64, draft: &SharedDraft) -> bool {
        self.handles().draft(inode).is_some_and(|open| open.is_same(draft))
    }

    /// Makes a directory.
    pub async fn make_dir(
        &self,
        parent: u64,
        name: &str,
        made: NewEntry,
    ) -> Result<ShownEntry, Errno> {
        self.closed_are_published().await;
        let path = self.child(parent, name)?;
        if path.names().is_empty() {
            return Err(Errno::PERM); // a space is made by `potluck space create`
        }
        let NewEntry { permissions, owner } = self.inheriting(parent, made, true).await?;
        let make = MakeDir { path, parents: false, permissions, owner };
        let change = async {
            let made = self.once(code::EXISTS, || self.pool.call(&make)).await?;
            Ok(made.map(|made| made.modified))
        };
        match self.metadata.changing(&[&make.path], change).await? {
            Some(mtime) => {
                let attributes = EntryAttributes::new(mtime, permissions, owner);
                Ok(self.made((parent, name), EntryKind::Dir, 0, attributes))
            }
            None => self.lookup(parent, name).await, // the answer was lost
        }
    }

    /// Removes an empty directory if `is_dir`, otherwise a name that is not a directory. The manager checks the kind,
    /// for others may have put something else there meanwhile.
    pub async fn remove(&self, parent: u64, name: &str, is_dir: bool) -> Result<(), Errno> {
        self.closed_are_published().await;
        self.check_unstaged(parent, name)?;
        self.check_empty(parent, name)?;
        let path = self.child(parent, name)?;
        // The draft must not be published while its name is removed, or later: the file would be there again.
        let mut draft = match self.draft_at(parent, name) {
            Some(draft) => Some(draft.lock().await),
            None => None,
        };
        if let Some(draft) = &mut draft {
            will_have_no_name(&path, draft).await;
        }
        let only_if = if is_dir { OnlyIf::Directory } else { OnlyIf::NoDirectory };
        let remove =
            Remove { path: path.clone(), recursive: false, forever: false, only_if, soon: true };
        let change = async {
            let removed = self.once(code::NO_ENTRY, || self.pool.call(&remove)).await?;
            Ok(removed.and_then(|removed| removed.dir_modified))
        };
        let removed = self.metadata.changing(&[&path], change).await;
        self.changed_soon();
        self.capacities_changed();
        match removed {
            Err(Errno::NOTDIR) if !is_dir => return Err(Errno::ISDIR),
            Err(Errno::NOENT) if draft.is_some() => {} // the file was never published
            removed => drop(removed?),
        }
        self.inodes().unlink(parent, name);
        if let Some(draft) = &mut draft {
            draft.free_name().await;
        }
        self.has_no_name(&path, draft.as_deref_mut());
        Ok(())
    }

    /// Does something that can be done only once. If the answer was lost it is tried again, for as long as a manager is
    /// waited for, and the error `is_done`, which then says that it is done already, counts as success without an answer.
    async fn once<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        is_done: &str,
        mut work: impl FnMut() -> F,
    ) -> Result<Option<T>, Errno> {
        let until = self.pool.now() + self.pool.retry_limits().at_first;
        let mut was_lost = false;
        loop {
            let done = work().await;
            match done {
                Err(failure) if was_lost && failure.code == is_done => return Ok(None),
                Err(failure) if failure.code == code::NO_MANAGER && self.pool.now() < until => {
                    was_lost = true;
                }
                done => return done.map(Some).map_err(|failure| errno(&failure)),
            }
        }
    }
}

/// Adds those of the entries `others`, by name, whose names are not there yet, in one pass through the directory.
fn add_others(entries: &mut Vec<ListedEntry>, mut others: BTreeMap<String, ListedEntry>) {
    if !others.is_empty() {
        entries.iter().for_each(|entry| drop(others.remove(&entry.path)));
    }
    entries.extend(others.into_values());
}

fn facts_of(inode: u64, entry: &ListedEntry) -> ShownEntry {
    let &ListedEntry { kind, size, holes, version, .. } = entry;
    ShownEntry { inode, kind, size, holes, attributes: entry.attributes(), version, has_name: true }
}

fn entry_of(path: String, facts: &ShownEntry) -> ListedEntry {
    let ShownEntry { kind, size, holes, attributes, version, .. } = *facts;
    let EntryAttributes { mtime, permissions, owner, changed, accessed } = attributes;
    let (digest, copies, ec, in_catalog, metadata, target) = Default::default();
    ListedEntry {
        path,
        kind,
        size,
        holes,
        mtime,
        version,
        digest,
        copies,
        ec,
        in_catalog,
        permissions,
        owner,
        changed,
        accessed,
        metadata,
        target,
        origin: None,
        cache: Default::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_being_written_are_listed_once() {
        let entry = |name: &str| entry_of(name.into(), &ShownEntry::of_dir(ROOT));
        let mut entries = ["b", "a"].map(entry).to_vec();
        let others = ["a", "c"].map(|name| (name.to_owned(), entry(name)));
        add_others(&mut entries, others.into());
        assert!(entries.iter().map(|entry| entry.path.as_str()).eq(["b", "a", "c"]));
    }
}
