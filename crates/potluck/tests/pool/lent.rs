//! What lies on a donor's disk.

use std::fs;
use std::path::{Path, PathBuf};

/// A donor's lent directory, looked at from outside.
#[derive(Debug, Clone)]
pub struct Lent(pub PathBuf);

impl Lent {
    /// The files of all chunks.
    pub fn chunks(&self) -> Vec<PathBuf> {
        let buckets = files_of(&self.0.join("chunks"));
        buckets.iter().flat_map(|bucket| files_of(bucket)).collect()
    }

    /// Chunks on their way in.
    pub fn temp(&self) -> Vec<PathBuf> {
        files_of(&self.0.join("temp"))
    }

    /// What was set aside.
    pub fn quarantine(&self) -> Vec<PathBuf> {
        files_of(&self.0.join("quarantine"))
    }
}

/// The entries of a directory that other processes change meanwhile; one that is gone has none.
pub fn files_of(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Every file below a directory.
pub fn all_files(root: &Path) -> Vec<PathBuf> {
    let (dirs, mut files): (Vec<_>, Vec<_>) =
        files_of(root).into_iter().partition(|path| path.is_dir());
    files.extend(dirs.iter().flat_map(|dir| all_files(dir)));
    files
}
