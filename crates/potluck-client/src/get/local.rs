//! A local file that appears whole or not at all.

use potluck_core::entropy::Entropy;
use std::fs::{File, FileTimes, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// A file under a temporary name; removed unless [`LocalFile::finish`] gives it its own.
pub struct LocalFile {
    file: File,
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
        Ok(Self { file, temp, to: to.to_path_buf(), finished: false })
    }

    /// Writes all of `bytes` at `offset`.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Gives the file its modification time and its name.
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
