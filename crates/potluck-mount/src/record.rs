//! The record of the files that a mount has not published. It is kept in the spool directory, so that these files can
//! be named even if the mount dies.
//!
//! The file is locked for as long as the mount is served. Its first line names the mount, and each other line gives the
//! state of a draft; a later line about a draft replaces an earlier one. Lines are not synced: they outlive the
//! process, but after a power failure some may be missing.

use crate::control_socket::{self, MountQuestion, MountStatus};
use potluck_core::chunk::Digest;
use potluck_core::path::PoolPath;
use potluck_wire::private_dir;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// The extension of the names of records.
const EXTENSION: &str = "mount";
/// The extension of the name of a file beside the record that is there while somebody who has unmounted waits.
const UNMOUNTED: &str = "unmounted";
/// The extension of the name of the socket beside the record by which commands speak to the mount.
const SOCKET: &str = "socket";
/// The number of bytes of lines at which the file is written anew; it grows with the number of unpublished drafts.
const OVERTAKEN: u64 = 256 << 10;

/// The facts about a mount that its record begins with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedMount {
    /// The number of the process that serves the mount.
    pub pid: u32,
    /// The pool, by the fingerprint of its certificate authority.
    pub pool: Digest,
    /// The directory of the pool that is mounted.
    pub path: PoolPath,
    /// The directory at which the pool's directory is mounted.
    pub dir: PathBuf,
    /// True if nothing can be changed through the mount.
    pub read_only: bool,
}

impl RecordedMount {
    /// Makes the facts about the one mount of a test.
    #[cfg(test)]
    pub fn alone(path: PoolPath, dir: &Path) -> Self {
        Self { pid: 1, pool: Digest::of(b"a pool"), path, dir: dir.into(), read_only: false }
    }

    /// Returns whether a file may be found in both mounts, and removed through one of them. Programs take its two names
    /// for two files, because these mounts are different devices to them: `mv` from one to the other first removes what
    /// is there, and then finds nothing to copy.
    pub fn shares_files_with(&self, other: &Self) -> bool {
        let contains =
            |above: &PoolPath, below: &PoolPath| above.space().is_empty() || below.is_inside(above);
        self.pool == other.pool
            && !(self.read_only && other.read_only)
            && (contains(&self.path, &other.path) || contains(&other.path, &self.path))
    }
}

/// A file that was written through a mount, and is not in the pool as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unpublished {
    /// The path of the file in the pool.
    pub path: PoolPath,
    /// The state in which the file was left.
    #[serde(flatten)]
    pub state: UnpublishedState,
}

/// The state of a file that is not published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum UnpublishedState {
    /// The file was not closed: the written bytes are lost.
    Open,
    /// The file was being published when the mount ended: the pool has the new version or the old one.
    Publishing,
    /// The file was closed and is on this machine alone. The next mount of the pool publishes it.
    Kept,
    /// The file was closed and could not be published.
    Failed {
        /// The error in words.
        why: String,
    },
}

/// One line after the first: the state of a draft, or that it is over.
#[derive(Serialize, Deserialize)]
struct RecordLine {
    draft: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    unpublished: Option<Unpublished>,
}

/// The record of a mount that this process serves.
#[derive(Debug)]
pub struct MountRecord {
    place: PathBuf,
    pool: Digest,
    state: Mutex<RecordState>,
}

#[derive(Debug)]
struct RecordState {
    file: File,
    first_line: Vec<u8>,
    /// The offset at which the next line begins.
    end: u64,
    open: BTreeMap<u64, Unpublished>,
    /// The drafts that could not be published, at most one for each path, by which a later success is matched.
    failures: HashMap<PoolPath, u64>,
    last: u64,
    /// True once [`MountRecord::end`] was called: nothing more is recorded.
    has_ended: bool,
    has_failed: bool,
}

/// A draft's place in the record. Dropping it removes the draft from the record.
#[derive(Debug)]
pub struct DraftNote {
    record: Arc<MountRecord>,
    draft: u64,
    noted: Option<Unpublished>,
    /// The path of the failure that was noted last, until a program is told.
    failed: Option<PoolPath>,
}

impl MountRecord {
    /// Takes the record of a mount in `spool_dir` for this process, and clears it.
    ///
    /// Errors: [`io::ErrorKind::ResourceBusy`] while another process has the record of a mount at that directory.
    pub fn take(spool_dir: &Path, mount: &RecordedMount) -> io::Result<Arc<Self>> {
        private_dir::make(spool_dir)?;
        let place = spool_dir.join(file_name(&mount.dir));
        let file = loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let file = options.open(&place)?;
            match file.try_lock() {
                Ok(()) if is_at(&file, &place)? => break file,
                Ok(()) => {} // the earlier mount removed the file meanwhile
                Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::ResourceBusy.into()),
                Err(TryLockError::Error(why)) => return Err(why),
            }
        };
        remove_if_there(&place.with_extension(UNMOUNTED))?;
        let mut first_line = serde_json::to_vec(mount)?;
        first_line.push(b'\n');
        let (end, open) = (first_line.len() as u64, BTreeMap::new());
        let mut state = RecordState {
            file,
            first_line,
            end,
            open,
            failures: HashMap::new(),
            last: 0,
            has_ended: false,
            has_failed: false,
        };
        state.write_anew()?;
        Ok(Arc::new(Self { place, pool: mount.pool, state: Mutex::new(state) }))
    }

    fn state(&self) -> MutexGuard<'_, RecordState> {
        self.state.lock().expect("no holder panics")
    }

    /// Returns the pool that is mounted, by the fingerprint of its certificate authority.
    pub fn pool(&self) -> Digest {
        self.pool
    }

    /// Returns the place of the socket by which commands speak to the mount.
    pub fn socket(&self) -> PathBuf {
        self.place.with_extension(SOCKET)
    }

    /// Returns whether somebody has unmounted the directory, and waits for the end of this process.
    pub fn is_unmounted(&self) -> bool {
        self.place.with_extension(UNMOUNTED).exists()
    }

    /// Makes a place for a new draft.
    pub fn draft(self: &Arc<Self>) -> DraftNote {
        let mut state = self.state();
        state.last += 1;
        DraftNote { record: Arc::clone(self), draft: state.last, noted: None, failed: None }
    }

    /// Notes that the file at this path is published or removed: an earlier failure there does not count as a loss any
    /// more.
    pub fn forget_failures(&self, path: &PoolPath) {
        let mut state = self.state();
        if let Some(draft) = state.failures.remove(path) {
            state.say(draft, None);
        }
    }

    /// Ends the record, and returns the files that it names. They stay in the file until they are taken by the process
    /// that unmounts or mounts there next. A record that names none is removed.
    pub fn end(&self) -> Vec<Unpublished> {
        let mut state = self.state();
        state.has_ended = true;
        let _ = remove_if_there(&self.socket()); // the next mount there replaces one that stays
        let done = match state.open.is_empty() {
            true => std::fs::remove_file(&self.place),
            false => state.write_anew(),
        };
        if let Err(why) = done {
            tracing::warn!("cannot write {}: {why}", self.place.display());
        }
        state.open.values().cloned().collect()
    }
}

impl RecordState {
    fn say(&mut self, draft: u64, unpublished: Option<Unpublished>) {
        if self.has_ended {
            return;
        }
        if let Some(Unpublished { path, state: UnpublishedState::Failed { .. } }) = &unpublished
            && let Some(before) = self.failures.insert(path.clone(), draft)
        {
            self.say(before, None);
        }
        let was_there = match &unpublished {
            Some(unpublished) => self.open.insert(draft, unpublished.clone()),
            None => self.open.remove(&draft),
        };
        if was_there.is_none() && unpublished.is_none() {
            return;
        }
        let line = line_of(draft, unpublished);
        let at = self.end;
        self.end += line.len() as u64;
        // To cut the file off after each small file that is closed would cost more than the lines.
        let lines = self.end - self.first_line.len() as u64;
        let is_long = lines > OVERTAKEN * (1 + self.open.len() as u64 / 1024);
        let said = self.file.write_all_at(&line, at).and_then(|()| match is_long {
            true => self.write_anew(),
            false => Ok(()),
        });
        if let Err(why) = said
            && !self.has_failed
        {
            self.has_failed = true;
            tracing::warn!("cannot note which files are not closed: {why}");
        }
    }

    fn write_anew(&mut self) -> io::Result<()> {
        let mut text = self.first_line.clone();
        for (draft, unpublished) in &self.open {
            text.extend(line_of(*draft, Some(unpublished.clone())));
        }
        self.end = text.len() as u64;
        // A process that is killed between these two calls leaves the rest of the earlier lines. They end in the same
        // state, for the latest change was added to them.
        self.file.write_all_at(&text, 0)?;
        self.file.set_len(self.end)
    }
}

fn line_of(draft: u64, unpublished: Option<Unpublished>) -> Vec<u8> {
    let mut line = serde_json::to_vec(&RecordLine { draft, unpublished }).expect("plain data");
    line.push(b'\n');
    line
}

impl DraftNote {
    /// Notes that something was written to a file and is not published.
    pub fn unpublished(&mut self, path: &PoolPath) {
        self.say(path, UnpublishedState::Open);
    }

    /// Notes that the file is being published.
    pub fn publishing(&mut self, path: &PoolPath) {
        self.say(path, UnpublishedState::Publishing);
    }

    /// Notes that the file was closed, and is on this machine alone.
    pub fn kept(&mut self, path: &PoolPath) {
        self.say(path, UnpublishedState::Kept);
    }

    /// Notes that the file could not be published. The note outlasts the draft, until a file at its path is published
    /// or removed.
    pub fn failed(&mut self, path: &PoolPath, why: String) {
        self.say(path, UnpublishedState::Failed { why });
        self.noted = None;
        self.failed = Some(path.clone());
        let mut state = self.record.state();
        state.last += 1;
        self.draft = state.last;
    }

    /// Notes a failure of which the program was not told, unless it is noted.
    pub fn is_not_told(&mut self, path: &PoolPath, why: String) {
        if self.failed.is_none() {
            self.failed(path, why);
        }
    }

    /// Notes that a program was told of the failure that was noted last, which is no loss that nobody knows of.
    pub fn is_told(&mut self) {
        if let Some(path) = self.failed.take() {
            self.record.forget_failures(&path);
        }
    }

    /// Notes that all of the file is published.
    pub fn published(&mut self) {
        let Some(noted) = self.noted.clone() else { return };
        self.is_over();
        self.record.forget_failures(&noted.path);
    }

    fn say(&mut self, path: &PoolPath, state: UnpublishedState) {
        if self.noted.as_ref().is_some_and(|noted| noted.path == *path && noted.state == state) {
            return;
        }
        let unpublished = Unpublished { path: path.clone(), state };
        self.noted = Some(unpublished.clone());
        self.record.state().say(self.draft, Some(unpublished));
    }

    /// Removes the draft from the record.
    pub fn is_over(&mut self) {
        if self.noted.take().is_some() {
            self.record.state().say(self.draft, None);
        }
    }
}

impl Drop for DraftNote {
    fn drop(&mut self) {
        self.is_over();
    }
}

/// The record of a mount, as other processes find it.
#[derive(Debug)]
pub struct FoundRecord {
    file: File,
    place: PathBuf,
    /// The mount that the record belongs to.
    pub mount: RecordedMount,
}

impl FoundRecord {
    /// Returns the record in `spool_dir` of a mount at `dir`, if there is one.
    pub fn find(spool_dir: &Path, dir: &Path) -> io::Result<Option<Self>> {
        Self::read(spool_dir.join(file_name(dir)))
    }

    /// Returns the records in `spool_dir`, also those of mounts that no process serves any more.
    pub fn all(spool_dir: &Path) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        let entries = match std::fs::read_dir(spool_dir) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(found),
            entries => entries?,
        };
        for entry in entries {
            let place = entry?.path();
            if place.extension().is_some_and(|extension| extension == EXTENSION) {
                found.extend(Self::read(place)?);
            }
        }
        found.sort_by(|one, other| one.mount.dir.cmp(&other.mount.dir));
        Ok(found)
    }

    /// Returns the records in `spool_dir` of mounts that processes serve.
    pub fn served(spool_dir: &Path) -> io::Result<Vec<Self>> {
        let mut served = Vec::new();
        for record in Self::all(spool_dir)? {
            if record.is_served()? {
                served.push(record);
            }
        }
        Ok(served)
    }

    /// Asks the process that serves the mount.
    pub fn ask(&self, question: MountQuestion) -> io::Result<MountStatus> {
        control_socket::ask(&self.place.with_extension(SOCKET), question)
    }

    /// Returns the files that the record names at this moment. Those of a mount that is served may still be stored.
    pub fn unpublished(&self) -> io::Result<Vec<Unpublished>> {
        std::fs::read(&self.place).map(|text| unpublished_in(&text))
    }

    fn read(place: PathBuf) -> io::Result<Option<Self>> {
        let mut file = match File::open(&place) {
            Ok(file) => file,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(why),
        };
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        // A record that is just being made has no complete first line yet.
        let mount: Option<RecordedMount> = serde_json::from_slice(first).ok();
        Ok(mount.map(|mount| Self { file, place, mount }))
    }

    /// Returns whether a process still serves the mount.
    pub fn is_served(&self) -> io::Result<bool> {
        match self.file.try_lock_shared() {
            Ok(()) => {
                self.file.unlock()?;
                Ok(false)
            }
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(why)) => Err(why),
        }
    }

    /// Tells the process that serves the mount that it was unmounted while no program had anything open in it, and
    /// that somebody waits for the end.
    pub fn tell_unmounted(&self) -> io::Result<()> {
        File::create(self.place.with_extension(UNMOUNTED)).map(drop)
    }

    /// Waits until the process that serves the mount has ended, removes the record, and returns the files that it
    /// names, which are thus told once.
    pub fn take_unpublished(mut self) -> io::Result<Vec<Unpublished>> {
        self.file.lock()?;
        remove_if_there(&self.place.with_extension(UNMOUNTED))?;
        remove_if_there(&self.place.with_extension(SOCKET))?; // that of a mount that was killed
        self.file.seek(SeekFrom::Start(0))?;
        let mut text = Vec::new();
        self.file.read_to_end(&mut text)?;
        if is_at(&self.file, &self.place)? {
            std::fs::remove_file(&self.place)?;
        }
        Ok(unpublished_in(&text))
    }
}

/// Returns the files that the lines of a record leave unpublished.
pub fn unpublished_in(text: &[u8]) -> Vec<Unpublished> {
    let mut open = BTreeMap::new();
    for line in text.split(|byte| *byte == b'\n').skip(1) {
        // A line that a dying process did not complete is ignored.
        let Ok(line) = serde_json::from_slice::<RecordLine>(line) else { continue };
        match line.unpublished {
            Some(unpublished) => open.insert(line.draft, unpublished),
            None => open.remove(&line.draft),
        };
    }
    open.into_values().collect()
}

fn remove_if_there(place: &Path) -> io::Result<()> {
    match std::fs::remove_file(place) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

/// Returns whether an open file is the one at a path.
fn is_at(file: &File, place: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match std::fs::metadata(place) {
        Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(why) => Err(why),
    }
}

/// Returns a name for files about the mount at `dir`, which people recognise and which no other mount point of this
/// machine shares.
pub fn mount_name(dir: &Path) -> String {
    let bytes = dir.as_os_str().as_bytes();
    let last = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let plain = |letter: &char| letter.is_ascii_alphanumeric() || "-_.".contains(*letter);
    let last: String = last.chars().filter(plain).take(64).collect();
    format!("{last}-{}", Digest::of(bytes).short())
}

fn file_name(dir: &Path) -> String {
    format!("{}.{EXTENSION}", mount_name(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture {
        dir: tempfile::TempDir,
        mount: RecordedMount,
    }

    impl Fixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            let path = "pot://lab".parse().expect("a path");
            Self { dir, mount: RecordedMount::alone(path, Path::new("/mnt/my lab")) }
        }

        fn take(&self) -> Arc<MountRecord> {
            MountRecord::take(self.dir.path(), &self.mount).expect("free")
        }

        /// Reads the record as after the death of its process: the lock is gone, and nothing was dropped.
        fn after_death(&self, record: Arc<MountRecord>) -> Vec<Unpublished> {
            record.state().file.unlock().expect("unlocked");
            self.find().expect("a record").take_unpublished().expect("read")
        }

        fn find(&self) -> Option<FoundRecord> {
            FoundRecord::find(self.dir.path(), &self.mount.dir).expect("looked")
        }
    }

    fn path(name: &str) -> PoolPath {
        format!("pot://lab/{name}").parse().expect("a path")
    }

    fn open(name: &str) -> Unpublished {
        Unpublished { path: path(name), state: UnpublishedState::Open }
    }

    #[test]
    fn overlapping_writable_mounts_share_files() {
        let of = |path: &str| {
            let path = path.parse().expect("a path");
            RecordedMount::alone(path, Path::new("/mnt"))
        };
        let lab = of("pot://lab");
        for (path, shares) in
            [("pot://lab", true), ("pot://lab/a", true), ("pot://", true), ("pot://other", false)]
        {
            let other = of(path);
            assert_eq!(other.shares_files_with(&lab), shares, "{path}");
            assert_eq!(lab.shares_files_with(&other), shares, "{path}");
        }
        assert!(!of("pot://lab/a").shares_files_with(&of("pot://lab/ab")));
        let fixed = RecordedMount { read_only: true, ..lab.clone() };
        assert!(fixed.shares_files_with(&lab) && !fixed.shares_files_with(&fixed));
        let elsewhere = RecordedMount { pool: Digest::of(b"another pool"), ..lab.clone() };
        assert!(!elsewhere.shares_files_with(&lab));
    }

    #[test]
    fn record_of_a_dead_mount_names_unpublished_files_only() {
        let fixture = Fixture::new();
        let record = fixture.take();
        let again = MountRecord::take(fixture.dir.path(), &fixture.mount).expect_err("taken");
        assert_eq!(again.kind(), io::ErrorKind::ResourceBusy);
        let mut notes: Vec<_> = (0..5).map(|_| record.draft()).collect();
        notes[0].unpublished(&path("written"));
        notes[1].unpublished(&path("old name"));
        notes[1].unpublished(&path("new\nname"));
        notes[2].publishing(&path("being closed"));
        notes[3].publishing(&path("closed"));
        notes[3].published();
        notes[4].unpublished(&path("removed"));
        drop(notes.pop());
        let found = fixture.find().expect("a record");
        assert!(found.is_served().expect("asked"));
        assert_eq!(found.mount, fixture.mount);
        let being_closed =
            Unpublished { state: UnpublishedState::Publishing, ..open("being closed") };
        let left = fixture.after_death(Arc::clone(&record));
        assert_eq!(left, [open("written"), open("new\nname"), being_closed]);
        assert!(fixture.find().is_none(), "it is told once");
    }

    #[test]
    fn failed_publication_is_recorded_until_the_name_is_published_or_removed() {
        let fixture = Fixture::new();
        let record = fixture.take();
        for name in ["a", "b", "b", "removed"] {
            let mut note = record.draft();
            note.publishing(&path(name));
            note.failed(&path(name), "no space".into());
        }
        record.forget_failures(&path("removed"));
        let mut note = record.draft();
        note.publishing(&path("a"));
        note.published();
        let failed =
            Unpublished { state: UnpublishedState::Failed { why: "no space".into() }, ..open("b") };
        note.unpublished(&path("c"));
        assert_eq!(record.state().failures.keys().collect::<Vec<_>>(), [&path("b")]);
        assert_eq!(record.end(), [failed.clone(), open("c")]);
        note.unpublished(&path("too late"));
        assert_eq!(fixture.after_death(record), [failed, open("c")]);

        let clean = fixture.take();
        assert_eq!(clean.end(), []);
        assert!(fixture.find().is_none(), "nothing is left of a mount that ended well");
    }

    #[test]
    fn the_file_stays_small_however_many_files_are_written() {
        let fixture = Fixture::new();
        let record = fixture.take();
        let mut kept = record.draft();
        kept.unpublished(&path("kept"));
        for number in 0..10_000 {
            let mut note = record.draft();
            note.publishing(&path(&format!("file-{number}")));
            note.published();
        }
        let size = std::fs::metadata(&record.place).expect("there").len();
        assert!(size < 1 << 20, "{size} bytes");
        assert_eq!(fixture.after_death(record), [open("kept")]);
    }

    #[test]
    fn record_rewrite_is_crash_safe() {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
        let fixture = Fixture::new();
        let record = fixture.take();
        // A file that cannot shrink is left as by a process that dies before it cuts off the earlier lines.
        let file = memfd_create("record", MemfdFlags::ALLOW_SEALING).expect("made");
        fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
        record.state().file = file.into();
        let mut note = record.draft();
        let mut states = [UnpublishedState::Open, UnpublishedState::Publishing].into_iter().cycle();
        let mut before = 0;
        let state = loop {
            let state = states.next().expect("it never ends");
            note.say(&path("f"), state.clone());
            let end = record.state().end;
            if end < before {
                break state;
            }
            before = end;
        };
        let mut text = vec![0; 1 << 20];
        let len = record.state().file.read_at(&mut text, 0).expect("read");
        assert!(len as u64 > OVERTAKEN, "{len} bytes");
        assert_eq!(unpublished_in(&text[..len]), [Unpublished { state, ..open("f") }]);
    }

    #[test]
    fn names_of_mounts_are_told_apart_and_are_names_of_files() {
        let names = ["/mnt/a", "/srv/a", "/", "/home/ada/my lab/ä/../x"].map(Path::new);
        let names = names.map(mount_name);
        assert!(names[0].starts_with("a-") && names[0] != names[1], "{names:?}");
        assert!(names.iter().all(|name| !name.contains(['/', ' ']) && name.is_ascii()));
    }
}
