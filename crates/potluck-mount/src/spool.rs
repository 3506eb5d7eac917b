//! The place on this machine for what was written to drafts that are not written in order, and how much that may be.
//!
//! Spool files have no names: whatever becomes of the process, the system gives their space back.

use rangemap::RangeSet;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The directory in which spool files are, and what all of them may take together.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
    /// Bytes that may be written to all files.
    limit: u64,
    /// Bytes that were written to the files that there are.
    taken: AtomicU64,
}

/// A file without a name in the spool: bytes that were written, each at its place. It is made by the first.
#[derive(Debug)]
pub struct SpoolFile {
    spool: Arc<Spool>,
    file: Option<Arc<File>>,
    /// The ranges that were written.
    written: RangeSet<u64>,
    /// How many bytes these are.
    taken: u64,
}

impl Spool {
    /// A spool in `dir`, of at most `limit` bytes.
    pub fn new(dir: PathBuf, limit: u64) -> Self {
        Self { dir, limit, taken: AtomicU64::new(0) }
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
    /// A file of which nothing was written.
    pub fn new(spool: &Arc<Spool>) -> Self {
        Self { spool: Arc::clone(spool), file: None, written: RangeSet::new(), taken: 0 }
    }

    /// Writes bytes at `offset`.
    ///
    /// Errors: [`Errno::NOSPC`] where the spool, or its disk, is full. What was written there before may be lost then
    /// if it was overwritten, and nothing else.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let range = offset..offset.checked_add(bytes.len() as u64).ok_or(Errno::FBIG)?;
        if range.is_empty() {
            return Ok(());
        }
        let there: u64 = self.written(&range).map(|run| run.end - run.start).sum();
        let more = bytes.len() as u64 - there;
        self.spool.take(more)?;
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

    /// The bytes of a range that was written.
    pub fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; len];
        let file = self.file.as_ref().ok_or(Errno::IO)?;
        file.read_exact_at(&mut bytes, offset).map_err(|why| local(&why))?;
        Ok(bytes)
    }

    /// The parts of a range that were written, in order.
    pub fn written(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let (start, end) = (range.start, range.end);
        let runs = (start < end).then(|| self.written.overlapping(start..end));
        runs.into_iter().flatten().map(move |run| run.start.max(start)..run.end.min(end))
    }

    /// Forgets what was written from `size` on.
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

    /// Waits until the disk has what was written.
    pub async fn sync(&self) -> Result<(), Errno> {
        let Some(file) = self.file.clone() else { return Ok(()) };
        let synced = tokio::task::spawn_blocking(move || file.sync_data()).await;
        synced.map_err(|_| Errno::IO)?.map_err(|why| local(&why))
    }

    fn file(&mut self) -> Result<&File, Errno> {
        if self.file.is_none() {
            let dir = &self.spool.dir;
            std::fs::create_dir_all(dir).map_err(|why| local(&why))?;
            self.file = Some(Arc::new(tempfile::tempfile_in(dir).map_err(|why| local(&why))?));
        }
        Ok(self.file.as_ref().expect("just made"))
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        self.spool.give_back(self.taken);
    }
}

/// The error number of a failure of the spool's disk.
fn local(why: &io::Error) -> Errno {
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
        assert_eq!(other.written(&(10..1000)).collect::<Vec<_>>(), [10..80]);
        assert_eq!(other.read(10, 20), Ok([[3; 10], [4; 10]].concat()));
        drop(other);
        one.write(0, &[5; 80]).expect("what was dropped is free");
        assert_eq!(one.write(u64::MAX, &[0; 2]), Err(Errno::FBIG));
        let names = std::fs::read_dir(dir.path().join("spool")).expect("listed");
        assert_eq!(names.count(), 0, "spool files have no names");
    }
}
