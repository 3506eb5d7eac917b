//! Finds and removes the leftovers of killed downloads.
//!
//! A download is written under a name of its own form, and locked by the process that writes it. The lock ends with the
//! process, so that a file of that form without a lock is a leftover, and the next download into its directory removes
//! it. All other files are the user's.

use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The mark in the name of a download, between the name of its target and the digits.
const MARK: &str = ".potluck-";
/// The end of the name of a download.
const END: &str = ".part";
/// The number of hexadecimal digits that make the name of a download unique.
const DIGITS: usize = 16;

/// The name of a file while it is downloaded: a hidden one, beside the file that it becomes.
pub struct PartName<'a> {
    beside: &'a Path,
    name: String,
}

impl<'a> PartName<'a> {
    /// Makes the name of a download of `to`.
    pub fn of(to: &'a Path, unique: u64) -> io::Result<Self> {
        let name = to.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_string_lossy();
        // A name of 255 bytes must leave room for what makes the temporary one unique.
        let short: String = name.chars().take(40).collect();
        Ok(Self { beside: to, name: format!(".{short}{MARK}{unique:0DIGITS$x}{END}") })
    }

    /// Returns the path of the unfinished file.
    pub fn path(&self) -> PathBuf {
        self.beside.with_file_name(&self.name)
    }
}

/// Returns whether a file of this name is a download that is under way, or was left by a killed process.
fn is_part(name: &str) -> bool {
    let digits = name.strip_prefix('.').and_then(|name| name.strip_suffix(END));
    let digits = digits.and_then(|name| name.rsplit_once(MARK)).map(|(_, digits)| digits);
    digits.is_some_and(|digits| {
        digits.len() == DIGITS
            && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}

/// Locks a file for as long as it is open; returns false where another process has locked it.
pub fn lock(file: &File) -> bool {
    // Where a file system has no locks, nothing is ever taken for left behind either.
    !matches!(
        flock(file, FlockOperation::NonBlockingLockExclusive),
        Err(rustix::io::Errno::WOULDBLOCK)
    )
}

/// Removes from `dir` the files that killed downloads left. A file that cannot be removed is left for the next
/// download.
pub fn remove(dir: &Path) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let parts = entries.filter(|entry| {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        is_file && entry.file_name().to_str().is_some_and(is_part)
    });
    for part in parts.map(|entry| entry.path()) {
        let left = File::open(&part)
            .and_then(|file| Ok(flock(&file, FlockOperation::NonBlockingLockExclusive)?));
        if left.is_ok() && fs::remove_file(&part).is_ok() {
            tracing::info!("removed {}, which a download left that was killed", part.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_dead_download_left_is_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let to = dir.path().join("data.h5");
        let part = |unique| PartName::of(&to, unique).expect("a name").path();
        for path in [&part(1), &part(2), &to] {
            fs::write(path, "bytes").expect("written");
        }
        let users = [".data.h5.part", "x.potluck-0123456789abcdef.part", ".x.potluck-0123.part"];
        users.iter().for_each(|name| fs::write(dir.path().join(name), "mine").expect("written"));
        let held = File::open(part(2)).expect("open");
        assert!(lock(&held));
        remove(dir.path());
        assert!(!part(1).exists(), "nobody has it");
        assert!(part(2).exists(), "it is being written");
        assert!(to.exists() && users.iter().all(|name| dir.path().join(name).exists()));
        drop(held);
        remove(dir.path());
        assert!(!part(2).exists());
    }
}
