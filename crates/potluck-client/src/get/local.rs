//! A local file that appears whole or not at all.

use potluck_core::entropy::Entropy;
use std::fs::{File, FileTimes, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// A file under a temporary name; removed unless [`LocalFile::finish`] gives it its own. It
/// belongs to who waits for the copy: a thread that still writes has the open file only, so that
/// it leaves nothing behind when nobody waits any more.
pub struct LocalFile {
    file: Arc<File>,
    temp: PathBuf,
    to: PathBuf,
    finished: bool,
}

impl LocalFile {
    /// Starts the file `to` in its directory.
    pub fn create(to: &Path, executable: bool, entropy: &dyn Entropy) -> io::Result<Self> {
        if to.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let name = to.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_string_lossy();
        // A name of 255 bytes must leave room for what makes the temporary one unique.
        let short: String = name.chars().take(40).collect();
        let temp = to.with_file_name(format!(".{short}.{:016x}.part", entropy.u64()));
        let mode = if executable { 0o777 } else { 0o666 };
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temp)?;
        let file = Arc::new(file);
        Ok(Self { file, temp, to: to.to_path_buf(), finished: false })
    }

    /// What writes to it.
    pub fn writer(&self) -> Writer {
        Writer(Arc::clone(&self.file))
    }

    /// Gives the file its modification time and its name. All is written.
    pub fn finish(mut self, mtime_ms: i64) -> io::Result<()> {
        if let Ok(since) = u64::try_from(mtime_ms) {
            let modified = UNIX_EPOCH + Duration::from_millis(since);
            self.file.set_times(FileTimes::new().set_modified(modified))?;
        }
        std::fs::rename(&self.temp, &self.to)?;
        self.finished = true;
        Ok(())
    }
}

/// Writes parts of a [`LocalFile`].
#[derive(Clone)]
pub struct Writer(Arc<File>);

impl Writer {
    /// Writes all of `bytes` at `offset`.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }
}

impl Drop for LocalFile {
    fn drop(&mut self) {
        if !self.finished {
            let _ = std::fs::remove_file(&self.temp); // nothing more can be done about it here
        }
    }
}

/// Opens `to` for writing in place if it exists and is neither a file nor a directory.
pub fn open_device(to: &Path) -> io::Result<Option<File>> {
    match std::fs::metadata(to) {
        Ok(about) if !about.is_file() && !about.is_dir() => {
            OpenOptions::new().write(true).open(to).map(Some)
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::entropy::SeededEntropy;

    #[test]
    fn d2_a_copy_that_nobody_waits_for_leaves_nothing_though_a_thread_still_writes() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = || std::fs::read_dir(dir.path()).expect("listed").count();
        let entropy = SeededEntropy::new(1);
        let create = || LocalFile::create(&dir.path().join("f"), false, &entropy).expect("made");
        let file = create();
        let writer = file.writer();
        assert_eq!(files(), 1);
        drop(file);
        assert_eq!(files(), 0, "the writer keeps no name");
        writer.write_at(b"late", 4096).expect("into nowhere");
        let file = create();
        file.writer().write_at(b"all", 0).expect("written");
        file.finish(7).expect("named");
        assert_eq!(
            (files(), std::fs::read(dir.path().join("f")).expect("there")),
            (1, b"all".into())
        );
    }
}
