//! The place on this machine for drafts that are not written in order, and how much they may take there.
//!
//! Spool files have no names: whatever becomes of the process, the system gives their space back.

use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The directory in which spool files are, and what all of them may take together.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
    /// Bytes that all files may have.
    limit: u64,
    /// Bytes that the files have now, by their sizes: holes count, for they may be filled.
    taken: AtomicU64,
}

/// A file without a name in the spool.
#[derive(Debug)]
pub struct SpoolFile {
    spool: Arc<Spool>,
    file: Arc<File>,
    size: u64,
}

impl Spool {
    /// A spool in `dir`, of at most `limit` bytes.
    pub fn new(dir: PathBuf, limit: u64) -> Self {
        Self { dir, limit, taken: AtomicU64::new(0) }
    }

    /// Makes an empty file.
    pub fn file(self: &Arc<Self>) -> Result<SpoolFile, Errno> {
        std::fs::create_dir_all(&self.dir).map_err(|why| local(&why))?;
        let file = tempfile::tempfile_in(&self.dir).map_err(|why| local(&why))?;
        Ok(SpoolFile { spool: Arc::clone(self), file: Arc::new(file), size: 0 })
    }

    fn take(&self, bytes: u64) -> Result<(), Errno> {
        let fits = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= self.limit);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map(drop).map_err(|taken| {
            tracing::warn!(
                "a program gets error {}: files that are not written in order have {taken} bytes in {} and may \
                 have {} (spool-max)",
                Errno::NOSPC,
                self.dir.display(),
                self.limit
            );
            Errno::NOSPC
        })
    }

    fn give_back(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl SpoolFile {
    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The open file, for a sync that waits elsewhere.
    pub fn shared(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Writes bytes at `offset`.
    ///
    /// Errors: [`Errno::NOSPC`] where the spool, or its disk, is full; the file has its size of before then.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(Errno::FBIG)?;
        let before = self.size;
        self.account(before.max(end))?;
        self.file.write_all_at(bytes, offset).map_err(|why| {
            // What was written of it lies beyond the end, where the next reader would find it again.
            let _ = self.file.set_len(before);
            self.spool.give_back(self.size - before);
            self.size = before;
            local(&why)
        })
    }

    /// The bytes at `offset`, as many as are asked for or the file has.
    pub fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let left = self.size.saturating_sub(offset);
        let mut bytes = vec![0; (len as u64).min(left) as usize];
        self.file.read_exact_at(&mut bytes, offset).map_err(|why| local(&why))?;
        Ok(bytes)
    }

    /// Cuts the file off, or extends it by zeros.
    pub fn set_size(&mut self, size: u64) -> Result<(), Errno> {
        let before = self.size;
        self.account(before.max(size))?;
        let set = self.file.set_len(size).map_err(|why| local(&why));
        let now = if set.is_ok() { size } else { before };
        self.spool.give_back(self.size - now);
        self.size = now;
        set
    }

    fn account(&mut self, size: u64) -> Result<(), Errno> {
        self.spool.take(size - self.size)?;
        self.size = size;
        Ok(())
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        self.spool.give_back(self.size);
    }
}

/// The error number of a failure of the spool's disk.
pub fn local(why: &io::Error) -> Errno {
    tracing::warn!("the spool directory failed: {why}");
    Errno::from_io_error(why).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_together_have_no_more_than_the_limit_and_give_back_what_they_had() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = Arc::new(Spool::new(dir.path().join("spool"), 100));
        let mut one = spool.file().expect("made");
        let mut other = spool.file().expect("made");
        one.write(10, &[1; 50]).expect("60 bytes, with the hole before");
        assert_eq!(other.write(0, &[2; 41]), Err(Errno::NOSPC));
        assert_eq!(other.size(), 0, "nothing of it was written");
        other.write(0, &[2; 40]).expect("it fits");
        other.write(0, &[3; 40]).expect("in place");
        assert_eq!(one.set_size(61), Err(Errno::NOSPC));
        one.set_size(20).expect("cut off");
        assert_eq!(one.read(5, 100), Ok([[0; 5].as_slice(), &[1; 10]].concat()));
        other.write(40, &[4; 40]).expect("what was cut off is free");
        drop(other);
        one.set_size(100).expect("what was dropped is free");
        assert_eq!(one.write(u64::MAX, &[0; 2]), Err(Errno::FBIG));
        let names = std::fs::read_dir(dir.path().join("spool")).expect("listed");
        assert_eq!(names.count(), 0, "spool files have no names");
    }
}
