//! The spool: the place on this machine for bytes that were written to drafts and that donors do not have, with a limit
//! on their number.
//!
//! Spool files have no names, so that the system frees their space however the process ends.

use potluck_wire::private_dir;
use rangemap::RangeSet;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most ranges that one file keeps apart. Each takes memory and, however short it is, a block of the disk: a program
/// may write a byte here and there, as posix_fallocate(3) does in each block of a file of any size.
const MOST_RANGES: usize = 1 << 17;

/// The directory of the spool files, and the number of bytes that they may have together.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
    /// The most bytes that all files may have.
    limit: u64,
    /// The bytes that all files have now.
    taken: AtomicU64,
}

/// A file without a name in the spool, in which bytes may be written anywhere. It is made on the disk by the first
/// write.
#[derive(Debug)]
pub struct SpoolFile {
    spool: Arc<Spool>,
    file: Option<File>,
    /// The ranges that were written.
    written: RangeSet<u64>,
    /// The number of bytes in the written ranges.
    taken: u64,
}

impl Spool {
    /// Makes a spool in `dir`, of at most `limit` bytes.
    pub fn new(dir: PathBuf, limit: u64) -> Self {
        Self { dir, limit, taken: AtomicU64::new(0) }
    }

    fn try_take(&self, bytes: u64) -> bool {
        let fits = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= self.limit);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Logs why a program gets the error that there is no room.
    pub fn log_full(&self) {
        tracing::warn!(
            "a program gets error {}: files that are not at donors have {} bytes in {} and may have {} (spool-max)",
            Errno::NOSPC,
            self.taken.load(Ordering::Relaxed),
            self.dir.display(),
            self.limit
        );
    }

    /// Makes a new file without a name, which may be given one later where the file system can do that.
    fn nameless(&self) -> io::Result<File> {
        private_dir::make(&self.dir)?;
        let (flags, mode) = (OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::from(0o600));
        match rustix::fs::open(&self.dir, flags, mode) {
            Ok(file) => Ok(file.into()),
            // A file that is made and removed at once has lost its name for good.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => tempfile::tempfile_in(&self.dir),
            Err(why) => Err(why.into()),
        }
    }

    /// Returns the directory of the spool.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the bytes that all files have.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    fn give_back(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A file without a name in the spool that is written in order, while earlier bytes are read.
#[derive(Debug)]
pub struct Temporary {
    spool: Arc<Spool>,
    file: File,
    /// The bytes that were written.
    taken: AtomicU64,
}

impl Temporary {
    /// Makes an empty file.
    pub fn new(spool: &Arc<Spool>) -> Result<Self, Errno> {
        let file = spool.nameless().map_err(|why| local(&why))?;
        Ok(Self { spool: Arc::clone(spool), file, taken: AtomicU64::new(0) })
    }

    /// Writes bytes at `offset`, where nothing was written before.
    ///
    /// Errors: [`Errno::NOSPC`] if the spool or its disk is full; the bytes do not count as written then.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let len = bytes.len() as u64;
        if !self.spool.try_take(len) {
            return Err(Errno::NOSPC);
        }
        let written = self.file.write_all_at(bytes, offset).map_err(|why| local(&why));
        match written {
            Ok(()) => drop(self.taken.fetch_add(len, Ordering::Relaxed)),
            Err(_) => self.spool.give_back(len),
        }
        written
    }

    /// Returns the bytes of a range that was written.
    pub fn read(&self, range: Range<u64>) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.file.read_exact_at(&mut bytes, range.start).map_err(|why| local(&why))?;
        Ok(bytes)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        self.spool.give_back(*self.taken.get_mut());
    }
}

impl SpoolFile {
    /// Makes a file in which nothing is written.
    pub fn new(spool: &Arc<Spool>) -> Self {
        Self { spool: Arc::clone(spool), file: None, written: RangeSet::new(), taken: 0 }
    }

    /// Writes bytes at `offset`.
    ///
    /// Errors: [`Errno::NOSPC`] if the spool or its disk is full, or if the file has [`MOST_RANGES`] and bytes are to be
    /// added. If the disk fails or is full, bytes that were to be overwritten may be lost, and no others.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let range = offset..offset.checked_add(bytes.len() as u64).ok_or(Errno::FBIG)?;
        if range.is_empty() {
            return Ok(());
        }
        let there: u64 = self.written(&range).map(|run| run.end - run.start).sum();
        let more = bytes.len() as u64 - there;
        let has_too_many_ranges = more > 0 && self.written.len() >= MOST_RANGES;
        if has_too_many_ranges || !self.spool.try_take(more) {
            return Err(Errno::NOSPC);
        }
        let written = self
            .file()
            .and_then(|file| file.write_all_at(bytes, offset).map_err(|why| local(&why)));
        match written {
            Ok(()) => {
                self.written.insert(range);
                self.taken += more;
            }
            Err(_) => self.spool.give_back(more),
        }
        written
    }

    /// Returns the number of bytes in the written ranges.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns the bytes of a range that was written.
    pub fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; len];
        let file = self.file.as_ref().ok_or(Errno::IO)?;
        file.read_exact_at(&mut bytes, offset).map_err(|why| local(&why))?;
        Ok(bytes)
    }

    /// Returns a handle of the file, which shares its lock.
    pub fn handle(&mut self) -> io::Result<File> {
        self.made()?.try_clone()
    }

    /// Gives the file the name `path`, by which it outlives this process. With `synced` what was written is safe from
    /// power cuts, too; the directory is not synced.
    ///
    /// Errors: that the file system cannot name a file that was made without a name, or that it failed.
    pub fn link(&mut self, path: &Path, synced: bool) -> io::Result<()> {
        let file = self.made()?;
        if synced {
            file.sync_data()?;
        }
        let open = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(rustix::fs::linkat(CWD, open, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
    }

    /// Returns the parts of a range that were written, in order.
    pub fn written(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let (start, end) = (range.start, range.end);
        let runs = (start < end).then(|| self.written.overlapping(start..end));
        runs.into_iter().flatten().map(move |run| run.start.max(start)..run.end.min(end))
    }

    /// Forgets the bytes from `size` on.
    pub fn cut_off(&mut self, size: u64) -> Result<(), Errno> {
        if self.written.last().is_none_or(|last| last.end <= size) {
            return Ok(());
        }
        self.file()?.set_len(size).map_err(|why| local(&why))?;
        let cut: u64 = self.written(&(size..u64::MAX)).map(|run| run.end - run.start).sum();
        self.written.remove(size..u64::MAX);
        self.taken -= cut;
        self.spool.give_back(cut);
        Ok(())
    }

    /// Replaces all written bytes with these, at `offset`.
    ///
    /// Errors: [`Errno::NOSPC`] if these are more and do not fit, or if the disk is full; the file is then as it was.
    pub fn replace(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let len = bytes.len() as u64;
        let more = len.saturating_sub(self.taken);
        if !self.spool.try_take(more) {
            return Err(Errno::NOSPC);
        }
        let written = self.spool.nameless().and_then(|file| {
            file.write_all_at(bytes, offset)?;
            Ok(file)
        });
        let file = written.map_err(|why| {
            self.spool.give_back(more);
            local(&why)
        })?;
        self.spool.give_back(self.taken.saturating_sub(len));
        (self.file, self.taken) = (Some(file), len);
        self.written.clear();
        if len > 0 {
            self.written.insert(offset..offset + len);
        }
        Ok(())
    }

    fn file(&mut self) -> Result<&File, Errno> {
        self.made().map_err(|why| local(&why))
    }

    fn made(&mut self) -> io::Result<&File> {
        if self.file.is_none() {
            self.file = Some(self.spool.nameless()?);
        }
        Ok(self.file.as_ref().expect("just made"))
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        self.spool.give_back(self.taken);
    }
}

/// Returns the error number for a failure of the spool's disk, which is logged.
fn local(why: &io::Error) -> Errno {
    tracing::warn!("the spool directory failed: {why}");
    Errno::from_io_error(why).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spool_limit_covers_all_files_and_is_released() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = Arc::new(Spool::new(dir.path().join("spool"), 100));
        let (mut one, mut other) = (SpoolFile::new(&spool), SpoolFile::new(&spool));
        one.write(1 << 40, &[1; 60]).expect("what was not written takes nothing");
        assert_eq!(other.write(0, &[2; 41]), Err(Errno::NOSPC));
        assert_eq!(other.written(&(0..100)).next(), None, "nothing of it was written");
        other.write(0, &[2; 40]).expect("it fits");
        other.write(0, &[3; 40]).expect("in place");
        assert_eq!(one.write(10, &[1]), Err(Errno::NOSPC));
        one.cut_off((1 << 40) + 20).expect("cut off");
        assert_eq!(one.read(1 << 40, 20), Ok(vec![1; 20]));
        other.write(20, &[4; 60]).expect("what was cut off is free");
        assert_eq!(other.written(&(10..1000)).collect::<Vec<_>>(), vec![10..80; 1]);
        assert_eq!(other.read(10, 20), Ok([[3; 10], [4; 10]].concat()));
        assert_eq!(other.replace(7, &[6; 81]), Err(Errno::NOSPC));
        assert_eq!(other.read(10, 20), Ok([[3; 10], [4; 10]].concat()), "it is as it was");
        other.replace(7, &[6; 10]).expect("less than before");
        assert_eq!(other.written(&(0..1000)).collect::<Vec<_>>(), vec![7..17; 1]);
        let temporary = Temporary::new(&spool).expect("made");
        temporary.write(0, &[7; 70]).expect("what was replaced is free");
        assert_eq!(temporary.write(70, &[7; 1]), Err(Errno::NOSPC));
        assert_eq!(temporary.read(10..12), Ok(vec![7; 2]));
        drop((temporary, other));
        one.write(0, &[5; 80]).expect("what was dropped is free");
        assert_eq!(one.write(u64::MAX, &[0; 2]), Err(Errno::FBIG));
        let names = std::fs::read_dir(dir.path().join("spool")).expect("listed");
        assert_eq!(names.count(), 0, "spool files have no names");
    }

    #[test]
    fn scattered_writes_are_bounded_by_spool_then_memory() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = Arc::new(Spool::new(dir.path().into(), u64::MAX));
        let mut file = SpoolFile::new(&spool);
        for number in 0..MOST_RANGES as u64 {
            file.write(2 * number, &[1]).expect("written");
        }
        assert_eq!(file.write(1 << 40, &[1]), Err(Errno::NOSPC));
        file.write(0, &[2]).expect("in place");
        assert_eq!((file.taken(), file.read(0, 3)), (MOST_RANGES as u64, Ok(vec![2, 0, 1])));
        file.replace(0, &[3; 7]).expect("stored");
        file.write(1 << 40, &[1]).expect("there is room again");
    }
}
