//! The walk over a tree that brings its index up to date: files that are as they were are passed over, others are hashed
//! by several threads, and one writes the database.

use crate::index::{FileStamp, INDEX_NAME, IndexError, LookasideIndex, failed};
use crate::parts::{FilePart, PartHasher};
use potluck_core::chunk::Digest;
use potluck_core::clock::{SharedClock, Tick};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use walkdir::WalkDir;

/// The most threads that hash files.
const MOST_HASHERS: usize = 8;
/// The number of files that wait for a thread, and of messages that wait for the database.
const WAITING: usize = 64;
/// The parts of a large file that are passed on at a time, which bounds the memory.
const PARTS_AT_ONCE: usize = 4096;
/// The time after which what was written is committed: so much is done again after an interruption.
const COMMIT_AFTER: Duration = Duration::from_secs(2);

/// The progress of the work, as of now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct IndexProgress {
    /// The files that were hashed.
    pub hashed: u64,
    /// The bytes that were hashed.
    pub bytes: u64,
    /// The files that were as the index has them.
    pub unchanged: u64,
    /// The files that could not be read, or that changed while they were read.
    pub unreadable: u64,
}

/// The outcome of bringing an index up to date.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct IndexReport {
    /// The path of the index.
    pub index: PathBuf,
    /// What was done.
    #[serde(flatten)]
    pub done: IndexProgress,
    /// The files of the index that are gone.
    pub removed: u64,
}

/// The work of bringing the index of a tree up to date.
pub struct Indexing {
    tree: PathBuf,
    place: PathBuf,
    index: LookasideIndex,
    clock: SharedClock,
}

/// A file that is to be hashed.
struct Work {
    path: PathBuf,
    number: i64,
    stamp: FileStamp,
}

/// A message of a thread that hashes.
enum Hashed {
    /// Some parts of a file.
    Parts(i64, Vec<FilePart>),
    /// The file has no more parts.
    Whole(i64, Digest, u64),
    /// The file cannot be read, or changed meanwhile.
    Unreadable(PathBuf, io::Error),
}

impl Indexing {
    /// Opens the index of `tree`, or makes it: at `place`, or in the tree if that is `None`.
    pub fn begin(
        tree: &Path,
        place: Option<&Path>,
        clock: SharedClock,
    ) -> Result<Self, IndexError> {
        let unreadable = |why| IndexError::Tree { place: tree.to_owned(), why };
        let tree = std::fs::canonicalize(tree).map_err(unreadable)?;
        let place = place.map_or_else(|| tree.join(INDEX_NAME), Path::to_owned);
        let place = std::path::absolute(place).map_err(unreadable)?;
        let index = LookasideIndex::open_to_write(&tree, &place)?;
        Ok(Self { tree, place, index, clock })
    }

    /// Walks over the tree, without file systems that are mounted in it, and brings the index up to date. `told` hears
    /// of the progress several times a second.
    ///
    /// Errors: those of the database. Files that cannot be read are counted and logged.
    pub fn run(self, mut told: impl FnMut(&IndexProgress)) -> Result<IndexReport, IndexError> {
        let mut done = IndexProgress::default();
        let removed = self.walk(&mut done, &mut told).map_err(|why| failed(&self.place, why))?;
        told(&done);
        Ok(IndexReport { index: self.place, done, removed })
    }

    fn walk(
        &self,
        done: &mut IndexProgress,
        told: &mut impl FnMut(&IndexProgress),
    ) -> rusqlite::Result<u64> {
        let round = self.index.next_round()?;
        let (to_hash, work) = sync_channel::<Work>(WAITING);
        let (hashed, results) = sync_channel::<Hashed>(WAITING);
        let work = Arc::new(Mutex::new(work));
        let threads =
            thread::available_parallelism().map_or(1, |cores| cores.get().min(MOST_HASHERS));
        thread::scope(|scope| {
            for _ in 0..threads {
                let (work, hashed, tree) = (Arc::clone(&work), hashed.clone(), &self.tree);
                scope.spawn(move || hash_all(&work, &hashed, tree));
            }
            // Both ends belong to the threads alone, so that these end when the other end is gone.
            drop((hashed, work));
            self.feed(round, to_hash, &results, done, told)
        })
    }

    /// Gives files to the threads and writes what they return, until all is done.
    fn feed(
        &self,
        round: i64,
        to_hash: SyncSender<Work>,
        results: &Receiver<Hashed>,
        done: &mut IndexProgress,
        told: &mut impl FnMut(&IndexProgress),
    ) -> rusqlite::Result<u64> {
        let mut under_way = 0_usize;
        let mut committed = self.clock.now();
        self.index.database().execute_batch("BEGIN IMMEDIATE")?;
        let walk = WalkDir::new(&self.tree).same_file_system(true);
        for entry in walk {
            let known = entry.map_err(io::Error::from).and_then(|entry| {
                let about = entry.metadata().map_err(io::Error::from)?;
                Ok(about.is_file().then(|| (entry.into_path(), FileStamp::of(&about))))
            });
            let (path, stamp) = match known {
                Ok(Some(file)) => file,
                Ok(None) => continue,
                Err(why) => {
                    tracing::warn!("a part of the tree cannot be read: {why}");
                    done.unreadable += 1;
                    continue;
                }
            };
            let is_own =
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(INDEX_NAME));
            if is_own || path == self.place || stamp.size == 0 {
                continue;
            }
            let below = path.strip_prefix(&self.tree).unwrap_or(&path).to_owned();
            if self.index.is_known(&below, &stamp, round)? {
                done.unchanged += 1;
            } else {
                let number = self.index.begin_file(&below, &stamp, round)?;
                let mut work = Some(Work { path: below, number, stamp });
                under_way += 1;
                while let Some(waiting) = work.take() {
                    match to_hash.try_send(waiting) {
                        Ok(()) => {}
                        Err(full) => {
                            work = Some(match full {
                                std::sync::mpsc::TrySendError::Full(work)
                                | std::sync::mpsc::TrySendError::Disconnected(work) => work,
                            });
                            let Ok(result) = results.recv() else { break };
                            under_way -= self.take(result, done)?;
                        }
                    }
                }
            }
            while let Ok(result) = results.try_recv() {
                under_way -= self.take(result, done)?;
            }
            self.commit_some(&mut committed, done, told)?;
        }
        drop(to_hash);
        while under_way > 0 {
            let Ok(result) = results.recv() else { break };
            under_way -= self.take(result, done)?;
            self.commit_some(&mut committed, done, told)?;
        }
        let removed = self.index.forget_all_but(round)?;
        self.index.database().execute_batch("COMMIT")?;
        Ok(removed)
    }

    fn commit_some(
        &self,
        committed: &mut Tick,
        done: &IndexProgress,
        told: &mut impl FnMut(&IndexProgress),
    ) -> rusqlite::Result<()> {
        let now = self.clock.now();
        if now.saturating_sub(*committed) < COMMIT_AFTER {
            return Ok(());
        }
        *committed = now;
        told(done);
        self.index.database().execute_batch("COMMIT; BEGIN IMMEDIATE")
    }

    /// Writes what a thread has found; returns how many files are done with it.
    fn take(&self, result: Hashed, done: &mut IndexProgress) -> rusqlite::Result<usize> {
        match result {
            Hashed::Parts(file, parts) => self.index.add_parts(file, &parts).map(|()| 0),
            Hashed::Whole(file, digest, bytes) => {
                done.hashed += 1;
                done.bytes += bytes;
                self.index.end_file(file, &digest).map(|()| 1)
            }
            Hashed::Unreadable(path, why) => {
                tracing::warn!("{} is not in the index: {why}", path.display());
                done.unreadable += 1;
                Ok(1)
            }
        }
    }
}

/// Hashes files until there are no more.
fn hash_all(work: &Mutex<Receiver<Work>>, hashed: &SyncSender<Hashed>, tree: &Path) {
    loop {
        let next = work.lock().expect("no holder panics").recv();
        let Ok(Work { path, number, stamp }) = next else { return };
        let result = hash(&tree.join(&path), number, &stamp, hashed);
        let last = match result {
            Ok((digest, bytes)) => Hashed::Whole(number, digest, bytes),
            Err(why) => Hashed::Unreadable(path, why),
        };
        if hashed.send(last).is_err() {
            return; // the database failed
        }
    }
}

fn hash(
    path: &Path,
    number: i64,
    stamp: &FileStamp,
    hashed: &SyncSender<Hashed>,
) -> io::Result<(Digest, u64)> {
    let mut file = File::open(path)?;
    let mut parts = Vec::new();
    let whole = PartHasher::default().hash(&mut file, |part| {
        parts.push(part);
        if parts.len() == PARTS_AT_ONCE {
            let _ = hashed.send(Hashed::Parts(number, std::mem::take(&mut parts)));
        }
    })?;
    let _ = hashed.send(Hashed::Parts(number, parts));
    match FileStamp::of(&file.metadata()?) == *stamp {
        true => Ok(whole),
        false => Err(io::Error::other("it changed while it was read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Looked;
    use potluck_core::clock::SystemClock;
    use std::fs;

    fn read(index: &LookasideIndex, content: &[u8]) -> Looked {
        let digest = Digest::of(content);
        index.read(&digest, content.len() as u32, &|bytes| Digest::of(bytes) == digest)
    }

    fn index_of(tree: &Path) -> IndexReport {
        let clock = Arc::new(SystemClock::default());
        Indexing::begin(tree, None, clock).expect("begun").run(|_| {}).expect("done")
    }

    fn bytes(seed: u8, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        blake3::Hasher::new_keyed(&[seed; 32]).finalize_xof().fill(&mut bytes);
        bytes
    }

    #[test]
    fn an_index_finds_chunks_and_moves_with_its_tree() {
        let dir = tempfile::tempdir().expect("a directory");
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("sub")).expect("made");
        let (large, small) = (bytes(1, 9 << 20), bytes(2, 100_000));
        fs::write(tree.join("sub/large"), &large).expect("written");
        fs::write(tree.join("small"), &small).expect("written");
        std::os::unix::fs::symlink("small", tree.join("link")).expect("linked");
        let run = || index_of(&tree);
        let first = run();
        assert_eq!((first.done.hashed, first.done.bytes), (2, (9 << 20) + 100_000));
        let again = run();
        assert_eq!((again.done.hashed, again.done.unchanged, again.removed), (0, 2, 0));

        let moved = dir.path().join("moved");
        fs::rename(&tree, &moved).expect("moved");
        let index = LookasideIndex::open(&moved).expect("opened");
        let chunk = large[4 << 20..8 << 20].to_vec();
        assert_eq!(read(&index, &chunk), Looked::Found(chunk.clone()));
        assert_eq!(read(&index, &large[8 << 20..]), Looked::Found(large[8 << 20..].to_vec()));
        assert_eq!(read(&index, &small), Looked::Found(small.clone()));
        assert_eq!(read(&index, b"another"), Looked::Missing);
        drop(index);

        // A file that was changed costs a look, until the index is brought up to date.
        fs::write(moved.join("sub/large"), b"other").expect("written");
        let index = LookasideIndex::open(&moved).expect("opened");
        assert_eq!(read(&index, &chunk), Looked::Stale);
        fs::remove_file(moved.join("small")).expect("removed");
        let report = index_of(&moved);
        assert_eq!((report.done.hashed, report.removed), (1, 1));
        assert_eq!(read(&index, &chunk), Looked::Missing);
        assert_eq!(read(&index, b"other"), Looked::Found(b"other".to_vec()));
        assert_eq!(index.facts().expect("read").files, 1);
    }

    #[test]
    fn an_index_leads_nowhere_out_of_its_tree() {
        let dir = tempfile::tempdir().expect("a directory");
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).expect("made");
        fs::write(dir.path().join("secret"), b"secret").expect("written");
        fs::write(tree.join("file"), b"secret").expect("written");
        index_of(&tree);
        let writer = rusqlite::Connection::open(tree.join(INDEX_NAME)).expect("opened");
        let index = LookasideIndex::open(&tree).expect("opened");
        assert_eq!(read(&index, b"secret"), Looked::Found(b"secret".to_vec()));
        for path in ["../secret", "/etc/hostname"] {
            writer.execute("UPDATE files SET path = ?1", [path.as_bytes()]).expect("changed");
            assert_eq!(read(&index, b"secret"), Looked::Stale, "{path}");
        }
    }
}
