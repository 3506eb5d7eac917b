//! Writes a local file that appears whole or not at all.

use super::leftovers::{self, part_name};
use super::local_dir::LocalPlace;
use super::ownership;
use potluck_core::attributes::{FileOwner, FileTime, Permissions};
use potluck_core::entropy::Entropy;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, linkat, openat, renameat, renameat_with,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

/// The permission bits that a file has beside its own while it is being written: its owner may read and write it.
const OWN: u32 = 0o600;

/// A file under a temporary name, which is removed on drop unless [`LocalFile::finish`] gives it its own. The task that
/// waits for the copy owns it: a thread that still writes has only the open file, so that it leaves nothing behind when
/// no task waits any more. The lock on it distinguishes a file that is still being written from one that a killed
/// process left ([`leftovers`]).
pub struct LocalFile {
    file: Arc<File>,
    permissions: Permissions,
    temp: OsString,
    to: LocalPlace,
    finished: bool,
}

impl LocalFile {
    /// Starts the file at a place. If a link is there, the file replaces the link.
    pub fn create(
        to: LocalPlace,
        permissions: Permissions,
        entropy: &dyn Entropy,
    ) -> io::Result<Self> {
        if to.kind()? == Some(FileType::Directory) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // Without the set-ID bits a program from the pool runs only with the rights of the user who starts it.
        let permissions = permissions.nine_bits();
        // The owner may read it, so that a clean-up after a killed process can open it.
        let mode = Mode::from(permissions.bits() | OWN);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        loop {
            let temp = part_name(&to.name, entropy.u64());
            let file = File::from(openat(&*to.dir, &temp, flags, mode)?);
            // Before it is locked it looks like a leftover, and another process may remove it.
            if leftovers::lock(&file) && file.metadata()?.nlink() > 0 {
                let file = Arc::new(file);
                return Ok(Self { file, permissions, temp, to, finished: false });
            }
        }
    }

    /// Returns a writer to the file.
    pub fn writer(&self) -> LocalWriter {
        LocalWriter(Arc::clone(&self.file))
    }

    /// Gives the file this size. Bytes that are not written are zeros, and take no room.
    pub fn set_size(&self, size: u64) -> io::Result<()> {
        self.file.set_len(size)
    }

    /// Gives the file, whose bytes are all written, its `owner` if there is one, its modification time, and then its
    /// name. Without `replace` this fails with [`io::ErrorKind::AlreadyExists`] if there is an entry of that name.
    pub fn finish(
        mut self,
        mtime: FileTime,
        owner: Option<FileOwner>,
        replace: bool,
    ) -> io::Result<()> {
        if let Some(owner) = owner {
            ownership::give(&self.file, owner)?;
            // An archived file has the permissions that it had, whatever the umask of this process.
            self.file.set_permissions(fs::Permissions::from_mode(self.permissions.bits() | OWN))?;
        }
        self.file.set_times(FileTimes::new().set_modified(mtime.system()))?;
        let lacking = OWN & !self.permissions.bits();
        if lacking != 0 {
            let mode = self.file.metadata()?.mode() & !lacking;
            self.file.set_permissions(fs::Permissions::from_mode(mode))?;
        }
        match replace {
            true => renameat(&*self.to.dir, &self.temp, &*self.to.dir, &self.to.name)?,
            false => rename_new(&self.temp, &self.to)?,
        }
        self.finished = true;
        Ok(())
    }
}

/// Gives the file of the name `from` its place unless there is an entry at it, in one step.
fn rename_new(from: &OsStr, to: &LocalPlace) -> io::Result<()> {
    let LocalPlace { dir, name } = to;
    match renameat_with(&**dir, from, &**dir, name, RenameFlags::NOREPLACE) {
        // Network file systems know no such rename; a second name is refused there just as well.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            linkat(&**dir, from, &**dir, name, AtFlags::empty())?;
            dir.remove(from)
        }
        result => Ok(result?),
    }
}

/// Writes parts of a [`LocalFile`].
#[derive(Clone)]
pub struct LocalWriter(Arc<File>);

impl LocalWriter {
    /// Writes all of `bytes` at `offset`.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }
}

impl Drop for LocalFile {
    fn drop(&mut self) {
        if !self.finished {
            let _ = self.to.dir.remove(&self.temp); // nothing more can be done about it here
        }
    }
}

/// Opens `to` for writing in place if it exists and is neither a file nor a directory. A disk is
/// refused: everything on it would be gone for a slip of one letter.
pub fn open_device(to: &Path) -> io::Result<Option<File>> {
    match fs::metadata(to) {
        Ok(about) if about.file_type().is_block_device() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is a whole disk; `potluck cat` writes to one when its output is redirected there",
        )),
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
    fn cancelled_download_leaves_nothing_despite_a_running_thread_d2() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = || fs::read_dir(dir.path()).expect("listed").count();
        let entropy = SeededEntropy::new(1);
        let create = || {
            let place = LocalPlace::of(&dir.path().join("f")).expect("a place");
            LocalFile::create(place, Permissions::FILE, &entropy).expect("made")
        };
        let file = create();
        let writer = file.writer();
        assert_eq!(files(), 1);
        drop(file);
        assert_eq!(files(), 0, "the writer keeps no name");
        writer.write_at(b"late", 4096).expect("into nowhere");
        let file = create();
        file.writer().write_at(b"all", 0).expect("written");
        file.finish(FileTime(7), None, false).expect("named");
        assert_eq!((files(), fs::read(dir.path().join("f")).expect("there")), (1, b"all".into()));
        let late = create().finish(FileTime(8), None, false).expect_err("somebody was first");
        assert_eq!((late.kind(), files()), (io::ErrorKind::AlreadyExists, 1));
        create().finish(FileTime(8), None, true).expect("replaced");
    }

    #[test]
    fn download_to_a_named_symlink_replaces_its_target_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::write(&real, "old").expect("written");
        std::os::unix::fs::symlink(&real, &link).expect("linked");
        let entropy = SeededEntropy::new(1);
        let write = |place: LocalPlace, content: &[u8]| {
            let file = LocalFile::create(place, Permissions::FILE, &entropy).expect("made");
            file.writer().write_at(content, 0).expect("written");
            file.finish(FileTime(7), None, true).expect("named");
        };
        write(LocalPlace::named(&link).expect("a place"), b"new");
        assert!(link.is_symlink());
        assert_eq!(fs::read(&real).expect("there"), b"new");
        write(LocalPlace::of(&link).expect("a place"), b"other");
        assert!(!link.is_symlink());
        assert_eq!(fs::read(&link).expect("there"), b"other");
        assert_eq!(fs::read(&real).expect("there"), b"new");
        fs::remove_file(&link).expect("gone");
        std::os::unix::fs::symlink("nowhere", &link).expect("linked");
        let dangling = LocalPlace::named(&link).expect_err("nowhere");
        assert_eq!(dangling.kind(), io::ErrorKind::NotFound);
        write(LocalPlace::of(&link).expect("a place"), b"third");
        assert_eq!(fs::read(&link).expect("there"), b"third");
    }
}
