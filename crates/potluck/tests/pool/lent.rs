//! Reads and spoils files on a donor's disk.

use std::fs;
use std::io::{ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A donor's lent directory, looked at from outside.
#[derive(Debug, Clone)]
pub struct Lent(pub PathBuf);

impl Lent {
    /// Returns the files of all chunks.
    pub fn chunks(&self) -> Vec<PathBuf> {
        let buckets = files_of(&self.0.join("chunks"));
        buckets.iter().flat_map(|bucket| files_of(bucket)).collect()
    }

    /// Returns the temporary files of chunks that are on their way in.
    pub fn temp(&self) -> Vec<PathBuf> {
        files_of(&self.0.join("temp"))
    }

    /// Lists the quarantined files.
    pub fn quarantine(&self) -> Vec<PathBuf> {
        files_of(&self.0.join("quarantine"))
    }
}

/// Flips one bit of a file.
pub fn flip(path: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(path).expect("a chunk file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte");
    byte[0] ^= 4;
    file.write_all_at(&byte, at).expect("the flipped byte");
}

/// Returns the entries of a directory that other processes change meanwhile, and none where there is no directory.
pub fn files_of(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Returns every file below a directory.
pub fn all_files(root: &Path) -> Vec<PathBuf> {
    let (dirs, mut files): (Vec<_>, Vec<_>) =
        files_of(root).into_iter().partition(|path| path.is_dir());
    files.extend(dirs.iter().flat_map(|dir| all_files(dir)));
    files
}

/// Returns every file below a directory that other processes change meanwhile, with its content. Where one was renamed
/// or removed before it was read, all are read again.
pub fn all_contents(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let read = |path: PathBuf| fs::read(&path).map(|content| (path, content));
    loop {
        match all_files(root).into_iter().map(read).collect::<Result<_>>() {
            Ok(contents) => return contents,
            Err(why) => assert_eq!(why.kind(), ErrorKind::NotFound, "{why}"),
        }
    }
}
