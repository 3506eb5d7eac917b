//! Finds and removes the leftovers of killed downloads.
//!
//! A download is written under a name of its own form, and locked by the process that writes it. The lock ends with the
//! process, so that a file of that form without a lock is a leftover, and the next download into its directory removes
//! it. All other files are the user's.

use super::local_dir::LocalDir;
use rustix::fs::{Dir, FileType, FlockOperation, Mode, OFlags, flock, openat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;

/// The mark in the name of a download, between the name of its target and the digits.
const MARK: &str = ".potluck-";
/// The end of the name of a download.
const END: &str = ".part";
/// The number of hexadecimal digits that make the name of a download unique.
const DIGITS: usize = 16;

/// Makes the name of a file while it is downloaded: a hidden one, beside the file `name` that it becomes.
pub fn part_name(name: &OsStr, unique: u64) -> OsString {
    // A name of 255 bytes must leave room for what makes the temporary one unique.
    let short: String = name.to_string_lossy().chars().take(40).collect();
    format!(".{short}{MARK}{unique:0DIGITS$x}{END}").into()
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
pub fn remove(dir: &LocalDir) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // A directory that cannot be read keeps what is in it.
    let Ok(listed) = openat(dir, ".", flags, Mode::empty()).and_then(Dir::new) else { return };
    for entry in listed.flatten() {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        // Some file systems do not tell what an entry is.
        let may_be_file = matches!(entry.file_type(), FileType::RegularFile | FileType::Unknown);
        if !may_be_file || !name.to_str().is_some_and(is_part) || !is_abandoned(dir, name) {
            continue;
        }
        if dir.remove(name).is_ok() {
            let path = dir.path().join(name);
            tracing::info!("removed {}, which a download left that was killed", path.display());
        }
    }
}

/// Returns whether a file is there that no process has locked.
fn is_abandoned(dir: &LocalDir, name: &OsStr) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::empty()).is_ok_and(|file| {
        let file = File::from(file);
        file.metadata().is_ok_and(|about| about.is_file())
            && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_what_a_dead_download_left_is_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let to = dir.path().join("data.h5");
        let part = |unique| dir.path().join(part_name(OsStr::new("data.h5"), unique));
        let opened = LocalDir::open(dir.path()).expect("open");
        for path in [&part(1), &part(2), &to] {
            fs::write(path, "bytes").expect("written");
        }
        let users = [".data.h5.part", "x.potluck-0123456789abcdef.part", ".x.potluck-0123.part"];
        users.iter().for_each(|name| fs::write(dir.path().join(name), "mine").expect("written"));
        let held = File::open(part(2)).expect("open");
        assert!(lock(&held));
        remove(&opened);
        assert!(!part(1).exists(), "nobody has it");
        assert!(part(2).exists(), "it is being written");
        assert!(to.exists() && users.iter().all(|name| dir.path().join(name).exists()));
        drop(held);
        remove(&opened);
        assert!(!part(2).exists());
    }
}
