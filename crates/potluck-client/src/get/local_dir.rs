//! Local directories that are reached by their descriptors. A name from the pool is looked up in the directory that
//! was opened, and a symbolic link at such a name is never followed: an earlier copy may have made it, and it may lead
//! to any file of this user.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory that is open for making and finding entries in it. It need not be readable.
#[derive(Debug)]
pub struct LocalDir {
    fd: OwnedFd,
    /// The path by which it was found, for messages.
    path: PathBuf,
}

impl LocalDir {
    /// Opens the directory at a path that the user named. Links on the way are followed.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let fd = openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, NO_MODE)?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Opens a directory in this one.
    ///
    /// Errors: [`io::ErrorKind::NotADirectory`] where a file or a link is at the name.
    pub fn below(&self, name: &OsStr) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&self.fd, name, flags, NO_MODE)?;
        Ok(Self { fd, path: self.path.join(name) })
    }

    /// Makes a directory in this one; returns false if there is one already.
    pub fn make(&self, name: &OsStr) -> io::Result<bool> {
        match mkdirat(&self.fd, name, Mode::from(0o777)) {
            Err(Errno::EXIST) => Ok(false),
            made => Ok(made.map(|()| true)?),
        }
    }

    /// Removes the entry at `name`, which is no directory.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// Returns the kind of the entry at `name`, which is not followed if it is a link; `None` if nothing is there.
    pub fn kind_of(&self, name: &OsStr) -> io::Result<Option<FileType>> {
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(about) => Ok(Some(FileType::from_raw_mode(about.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(why) => Err(why.into()),
        }
    }

    /// Returns the path by which the directory was found, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for LocalDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The mode of what is opened and not made.
const NO_MODE: Mode = Mode::empty();

/// A name in an open directory, at which a copy is made. Nothing at it is followed.
#[derive(Debug, Clone)]
pub struct LocalPlace {
    /// The directory that the name is in.
    pub dir: Arc<LocalDir>,
    /// The name, which is one component.
    pub name: OsString,
}

impl LocalPlace {
    /// Finds the place for a copy whose whole path the user named: if a link is there, what it leads to, as `cp` does.
    pub fn named(to: &Path) -> io::Result<Self> {
        if to.is_symlink() { Self::of(&fs::canonicalize(to)?) } else { Self::of(to) }
    }

    /// Finds the place whose last component is not followed, because it is a name from the pool.
    pub fn of(to: &Path) -> io::Result<Self> {
        let name = to.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_owned();
        let dir = LocalDir::open(to.parent().unwrap_or(Path::new("")))?;
        Ok(Self { dir: Arc::new(dir), name })
    }

    /// Returns what is at the place; `None` if nothing is.
    pub fn kind(&self) -> io::Result<Option<FileType>> {
        self.dir.kind_of(&self.name)
    }

    /// Returns the path of the place, for messages.
    pub fn path(&self) -> PathBuf {
        self.dir.path.join(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn opened_directory_is_immune_to_renames() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("a/b")).expect("made");
        fs::create_dir(at("outside")).expect("made");
        let a = LocalDir::open(&at("a")).expect("open");
        let b = a.below(OsStr::new("b")).expect("open");
        fs::rename(at("a/b"), at("a/moved")).expect("renamed");
        symlink("../outside", at("a/b")).expect("a link");
        assert!(b.make(OsStr::new("made")).expect("made"));
        assert!(!b.make(OsStr::new("made")).expect("there"));
        assert!(at("a/moved/made").is_dir() && !at("outside/made").exists());
        let through = a.below(OsStr::new("b")).expect_err("a link");
        assert_eq!(through.kind(), io::ErrorKind::NotADirectory);
        assert_eq!(a.kind_of(OsStr::new("b")).expect("seen"), Some(FileType::Symlink));
    }
}
