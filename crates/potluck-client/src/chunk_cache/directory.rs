//! A cache of chunks in a directory, with a file for each run of segments. Any number of processes can use it at the
//! same time.
//!
//! A file has the hashes of its segments and then the segments. Files come by renaming and go by unlinking. Readers
//! take no lock; a process that opens the cache or adds a file waits for the lock on the sum of all sizes.

use super::SegmentRun;
use potluck_core::chunk::ChunkName;
use potluck_core::merkle::SEGMENT;
use potluck_wire::private_dir;
use rustix::fs::{FlockOperation, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, flock, futimens};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// The name of the file that has the sum of the sizes of all others; a process that opens the cache or adds a file
/// locks it.
const SUM: &str = "sum";
/// The context of the hashes of cached segments, which keeps them apart from hashes made for other purposes.
const CONTEXT: &str = "potluck 2026-11 cached segment";
const HASH: usize = 32;
/// The share of the allowed bytes that stays at most when room is made.
const KEPT: f64 = 0.9;

/// A directory of cached chunks.
pub struct CacheDir {
    dir: PathBuf,
    most: u64,
    /// The number of the next file that this process writes.
    next: AtomicU64,
}

impl CacheDir {
    /// Opens the directory `dir` for at most `most` bytes. If it is not there it is made, with rights for its owner
    /// only.
    pub fn open(dir: &Path, most: u64) -> io::Result<Self> {
        let cache = Self { dir: dir.into(), most, next: AtomicU64::new(0) };
        // Another process may have left more than this one allows, or was killed while it wrote a file.
        let mut sum = cache.sum()?;
        sum.recount(&cache)?;
        Ok(cache)
    }

    /// Reads a run, if all of it is in the directory as it was written.
    pub fn read(&self, run: &SegmentRun) -> Option<Vec<u8>> {
        let whole = SegmentRun { segments: 0..run.chunk_len.div_ceil(SEGMENT), ..run.clone() };
        [run, &whole].into_iter().find_map(|stored| self.read_from(stored, run))
    }

    fn read_from(&self, stored: &SegmentRun, run: &SegmentRun) -> Option<Vec<u8>> {
        let path = self.path(stored);
        let file = File::open(&path).ok()?;
        let bytes = read_verified(&file, stored, run);
        match &bytes {
            Some(_) => note_use(&file),
            None => {
                tracing::warn!("{} was damaged and is not used", path.display());
                let _ = fs::remove_file(&path); // somebody else may have done so
            }
        }
        bytes
    }

    /// Keeps a run, unless it is larger than the cache; the files that were not used for longest make room for it.
    pub fn write(&self, run: &SegmentRun, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(run);
        let size = (bytes.len() + run.segments.len() * HASH) as u64;
        if size > self.most || path.exists() {
            return Ok(());
        }
        let mut sum = self.sum()?;
        sum.make_room(self, size)?;
        // The file is counted before it is there, so that the sum is never too small, even if this process is killed.
        sum.add(size)?;
        let temporary = self.temporary();
        let written = self.write_whole(&temporary, run, bytes);
        let kept = written.and_then(|()| fs::rename(&temporary, &path));
        if kept.is_err() {
            let _ = fs::remove_file(&temporary); // it may not be there
        }
        kept
    }

    fn write_whole(&self, path: &Path, run: &SegmentRun, bytes: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let mut hashes = Vec::with_capacity(run.segments.len() * HASH);
        let mut rest = bytes;
        for segment in run.segments.clone() {
            let (now, later) = rest
                .split_at_checked(run.len_of(segment))
                .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
            hashes.extend(hash(&run.chunk, segment, now));
            rest = later;
        }
        file.write_all(&hashes)?;
        file.write_all(bytes)
    }

    /// Returns the path of the file of a run.
    pub fn path(&self, run: &SegmentRun) -> PathBuf {
        let chunk = run.chunk.to_string();
        match run.is_whole() {
            true => self.dir.join(chunk),
            false => {
                let Range { start, end } = run.segments;
                self.dir.join(format!("{chunk}.{start}-{end}"))
            }
        }
    }

    fn temporary(&self) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.dir.join(format!("new.{}.{number}", std::process::id()))
    }

    /// Waits for the lock on the sum. If the directory was removed, as it may be at any time, it is made anew.
    fn sum(&self) -> io::Result<Sum> {
        private_dir::make(&self.dir)?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = file.open(self.dir.join(SUM))?;
        flock(&file, FlockOperation::LockExclusive)?;
        let mut bytes = [0; 8];
        let is_there = file.read_exact_at(&mut bytes, 0).is_ok();
        Ok(Sum { file, bytes: if is_there { u64::from_le_bytes(bytes) } else { u64::MAX } })
    }

    /// Lists the files of the directory, those that were not used for longest first. Unfinished files of a process
    /// that was killed are removed.
    fn files(&self) -> io::Result<Vec<(SystemTime, u64, PathBuf)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir)?.flatten() {
            let name = entry.file_name();
            let Ok(about) = entry.metadata() else { continue };
            let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            match name.to_string_lossy() {
                name if name == SUM => {}
                // A process that writes such a file holds the lock, so this one was left behind.
                name if name.starts_with("new.") => drop(fs::remove_file(entry.path())),
                _ => files.push((used, about.len(), entry.path())),
            }
        }
        files.sort();
        Ok(files)
    }
}

/// The sum of the sizes of all files in the directory, locked.
struct Sum {
    file: File,
    /// The sum that was written last, in bytes. It is too large after a damaged file was removed, or one was not written
    /// to its end; it is right again once room is made.
    bytes: u64,
}

impl Sum {
    /// Makes room for `size` more bytes.
    fn make_room(&mut self, cache: &CacheDir, size: u64) -> io::Result<()> {
        if self.bytes.saturating_add(size) <= cache.most {
            return Ok(());
        }
        self.shrink(cache, ((cache.most as f64 * KEPT) as u64).min(cache.most - size))
    }

    /// Counts the bytes of all files anew, and removes files if they are too many.
    fn recount(&mut self, cache: &CacheDir) -> io::Result<()> {
        self.shrink(cache, cache.most)
    }

    fn shrink(&mut self, cache: &CacheDir, most: u64) -> io::Result<()> {
        let files = cache.files()?;
        let mut bytes: u64 = files.iter().map(|(_, size, _)| size).sum();
        for (_, size, path) in files {
            if bytes <= most {
                break;
            }
            let _ = fs::remove_file(path); // a damaged one may have been removed
            bytes -= size;
        }
        self.bytes = 0;
        self.add(bytes)
    }

    fn add(&mut self, size: u64) -> io::Result<()> {
        self.bytes += size;
        self.file.write_all_at(&self.bytes.to_le_bytes(), 0)
    }
}

fn hash(chunk: &ChunkName, segment: u32, bytes: &[u8]) -> [u8; HASH] {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    hasher.update(&chunk.0).update(&segment.to_le_bytes()).update(bytes);
    *hasher.finalize().as_bytes()
}

/// Reads a run from the file of a run that has it.
fn read_verified(file: &File, stored: &SegmentRun, run: &SegmentRun) -> Option<Vec<u8>> {
    let before = (run.segments.start - stored.segments.start) as usize;
    let mut hashes = vec![0; run.segments.len() * HASH];
    file.read_exact_at(&mut hashes, (before * HASH) as u64).ok()?;
    let start = stored.segments.len() * HASH + before * SEGMENT as usize;
    let mut bytes = vec![0; run.len()];
    file.read_exact_at(&mut bytes, start as u64).ok()?;
    let mut rest = &bytes[..];
    for (segment, expected) in run.segments.clone().zip(hashes.chunks(HASH)) {
        let (now, later) = rest.split_at_checked(run.len_of(segment))?;
        if hash(&run.chunk, segment, now) != expected {
            return None;
        }
        rest = later;
    }
    Some(bytes)
}

/// Marks a file as used.
fn note_use(file: &File) {
    let time = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let times = Timestamps { last_access: time(UTIME_OMIT), last_modification: time(UTIME_NOW) };
    let _ = futimens(file, &times); // it may be evicted a little early
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::FileTimes;
    use std::time::Duration;

    const SEGMENT: usize = 1 << 16;

    fn run(chunk: u8, segments: Range<u32>) -> SegmentRun {
        SegmentRun { chunk: ChunkName([chunk; 32]), chunk_len: (3 * SEGMENT + 5) as u32, segments }
    }

    fn content(chunk: u8) -> Vec<u8> {
        (0..3 * SEGMENT + 5).map(|at| (at / 1000) as u8 ^ chunk).collect()
    }

    fn size_of(dir: &Path) -> u64 {
        let files = fs::read_dir(dir).expect("listed").flatten();
        files
            .filter(|file| file.file_name() != SUM)
            .map(|it| it.metadata().expect("it").len())
            .sum()
    }

    #[test]
    fn runs_come_out_as_they_went_in_or_not_at_all() {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = CacheDir::open(&dir.path().join("cache"), 10 << 20).expect("made");
        cache.write(&run(1, 0..4), &content(1)).expect("written");
        cache.write(&run(2, 2..4), &content(2)[2 * SEGMENT..]).expect("written");
        // Another process finds the same files.
        let cache = CacheDir::open(&dir.path().join("cache"), 10 << 20).expect("opened");
        assert_eq!(cache.read(&run(1, 0..4)), Some(content(1)));
        assert_eq!(cache.read(&run(1, 3..4)), Some(content(1)[3 * SEGMENT..].to_vec()));
        assert_eq!(cache.read(&run(2, 2..4)), Some(content(2)[2 * SEGMENT..].to_vec()));
        assert_eq!(cache.read(&run(2, 0..4)), None);
        assert_eq!(cache.read(&run(3, 0..4)), None);

        // A bit flips in one segment: the others are as good as before, until somebody meets it.
        let path = cache.path(&run(1, 0..4));
        let mut bytes = fs::read(&path).expect("read");
        bytes[4 * HASH + SEGMENT + 7] ^= 4;
        fs::write(&path, bytes).expect("written");
        assert_eq!(cache.read(&run(1, 2..3)), Some(content(1)[2 * SEGMENT..3 * SEGMENT].to_vec()));
        assert_eq!(cache.read(&run(1, 1..2)), None);
        assert!(!path.exists(), "it is gone");
        // One chunk's file is not taken for another's either.
        cache.write(&run(1, 0..4), &content(1)).expect("written");
        fs::rename(&path, cache.path(&run(4, 0..4))).expect("renamed");
        assert_eq!(cache.read(&run(4, 0..4)), None);
    }

    #[test]
    fn removed_cache_directory_is_recreated() {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = CacheDir::open(&dir.path().join("cache"), 10 << 20).expect("made");
        cache.write(&run(1, 0..4), &content(1)).expect("written");
        fs::remove_dir_all(dir.path().join("cache")).expect("removed");
        assert_eq!(cache.read(&run(1, 0..4)), None);
        cache.write(&run(2, 0..4), &content(2)).expect("written");
        assert_eq!(cache.read(&run(2, 0..4)), Some(content(2)));
    }

    #[test]
    fn there_is_never_more_than_its_size_and_what_was_used_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let most = 10 * content(0).len() as u64;
        let cache = CacheDir::open(dir.path(), most).expect("made");
        let other = CacheDir::open(dir.path(), most).expect("opened");
        let long_ago = |chunk: u8| {
            let then = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(chunk));
            let file = File::open(cache.path(&run(chunk, 0..4))).expect("opened");
            file.set_times(FileTimes::new().set_modified(then)).expect("set");
        };
        for chunk in 0..9 {
            cache.write(&run(chunk, 0..4), &content(chunk)).expect("written");
            long_ago(chunk);
        }
        assert_eq!(cache.read(&run(0, 0..1)).map(|bytes| bytes.len()), Some(SEGMENT), "used");
        for chunk in 100..103 {
            other.write(&run(chunk, 0..4), &content(chunk)).expect("written");
            assert!(size_of(dir.path()) <= most);
        }
        assert!(cache.read(&run(0, 0..4)).is_some());
        assert!(cache.read(&run(102, 0..4)).is_some());
        assert_eq!(cache.read(&run(1, 0..4)), None, "the oldest");
        // A smaller cache, and what a killed process had begun.
        fs::write(dir.path().join("new.1.1"), [0; 1000]).expect("written");
        CacheDir::open(dir.path(), most / 2).expect("opened");
        assert!(size_of(dir.path()) <= most / 2);
        assert!(!dir.path().join("new.1.1").exists());
    }
}
