//! The file system as an argument: the trait that a donor uses, the machine's file system, and the suite that every
//! implementation must pass ([`conformance`]).

#[doc(hidden)]
pub mod conformance;
mod system;

pub use system::SystemDisk;

use potluck_wire::bulk::ReadAt;
use std::ffi::OsStr;
use std::io;
use std::path::Path;

/// The operations that a donor needs of a file system.
///
/// # Contract
/// - Every call may block, and may come from any thread at any time; the donor serialises calls that must not overlap.
///   Only [`Disk::rename`] and [`Disk::create`] have to be atomic.
/// - Paths are absolute. The last component of a file's path is never followed when it is a symbolic link; a directory
///   may be reached through a link.
/// - Only [`NewFile::sync`], [`OldFile::sync`] and [`Disk::sync_dir`] make anything survive a power cut: a file's bytes
///   need one of the first two, its name (made, renamed or removed) the last, on the directory that holds it.
/// - Failures carry the system's error number ([`io::Error::raw_os_error`]); the donor tells a full
///   disk (`ENOSPC`, `EDQUOT`) from a broken one (`EIO`, `EROFS`, …) by it. An error leaves the disk
///   as it was, except that a failed write may have written a part.
pub trait Disk: Send + Sync + 'static {
    /// Makes a directory that only its owner can enter; its parent must exist. Succeeds if the directory exists
    /// already.
    fn make_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes the names in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes an empty file that only its owner can read; fails with `AlreadyExists` if anything has that name, even a
    /// link. Dropping the handle leaves the file.
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>>;

    /// Opens a file to be read. The handle stays good when the file is renamed or removed. Fails at once where
    /// anything but a regular file has the name ([`is_no_file`]).
    fn open(&self, path: &Path) -> io::Result<Box<dyn OldFile>>;

    /// Returns the size of the file at `path` in bytes, without opening it.
    fn len(&self, path: &Path) -> io::Result<u64>;

    /// Gives a file another name, and atomically replaces a file that has that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file; fails with `NotFound` if there is none.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Calls `each` for every entry directly in `dir`, in any order. Entries that come or go meanwhile may be listed or
    /// not; all others are listed once.
    fn list(&self, dir: &Path, each: &mut dyn FnMut(DirEntry<'_>)) -> io::Result<()>;

    /// Returns the state of the file system that holds `dir`.
    fn space(&self, dir: &Path) -> io::Result<DiskSpace>;

    /// Returns the device of the file system that holds `dir`, as its major and minor number; `None` where there is no
    /// such thing.
    fn device(&self, _dir: &Path) -> Option<(u32, u32)> {
        None
    }

    /// Takes the lock of a directory until the result is dropped or the process dies; fails with `WouldBlock` if any
    /// process, even this one, holds it.
    fn lock(&self, dir: &Path) -> io::Result<Box<dyn Send + Sync>>;
}

/// A file being written, from its start to its end, by one thread at a time.
pub trait NewFile: Send {
    /// Has the file system find a place for the first `len` bytes, in one piece if it can. The file stays as long as it is.
    /// Does nothing where that cannot be asked for.
    fn reserve(&mut self, _len: u64) -> io::Result<()> {
        Ok(())
    }

    /// Appends all of `bytes`.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes the bytes appended so far durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file that is only read.
pub trait OldFile: ReadAt {
    /// Returns the size of the file when it was opened, in bytes.
    fn len(&self) -> u64;

    /// Returns whether the file has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the file's bytes durable, also those that were written through other handles.
    fn sync(&self) -> io::Result<()>;
}

/// One entry of a directory.
#[derive(Debug, Clone, Copy)]
pub struct DirEntry<'a> {
    /// The name of the entry in its directory.
    pub name: &'a OsStr,
    /// The size in bytes of a regular file; `None` for anything else.
    pub file: Option<u64>,
}

/// The size and state of a file system at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// The size of the file system in bytes.
    pub total: u64,
    /// The bytes that an ordinary process may still write.
    pub available: u64,
    /// True if the file system takes no writes.
    pub read_only: bool,
}

/// Returns whether `why` means that the disk is full, or a quota used up, and the disk not broken.
pub fn is_full(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns whether `why`, from [`Disk::open`], means that the path is no regular file but a symbolic link, a directory
/// or a pipe, for example.
pub fn is_no_file(why: &io::Error) -> bool {
    why.kind() == io::ErrorKind::InvalidData
}

/// Returns whether `why` means that the disk is broken or gone, and not that this process lacks a resource.
pub fn is_broken(why: &io::Error) -> bool {
    use rustix::io::Errno;
    // A missing file or directory counts, because a store's own directories never go away while its disk is there.
    const BROKEN: [Errno; 13] = [
        Errno::IO,
        Errno::ROFS,
        Errno::NOENT,
        Errno::NOTDIR,
        Errno::NXIO,
        Errno::NODEV,
        Errno::STALE,
        Errno::UCLEAN,
        Errno::ACCESS,
        // With these Linux reports a medium that cannot be read, and file systems a wrong checksum.
        Errno::NODATA,
        Errno::REMOTEIO,
        Errno::ILSEQ,
        Errno::BADMSG,
    ];
    Errno::from_io_error(why).is_some_and(|errno| BROKEN.contains(&errno))
}

/// Replaces a small file durably: temp, write, sync, rename, sync of the directory.
pub fn replace_durably(disk: &dyn Disk, path: &Path, content: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let temp = path.with_extension(TEMP_EXTENSION);
    match disk.remove(&temp) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => {} // this was left by an earlier incarnation, or nothing was there
    }
    let mut file = disk.create(&temp)?;
    file.append(content)?;
    file.sync()?;
    disk.rename(&temp, path)?;
    disk.sync_dir(dir)
}

/// The suffix of the names of files that [`replace_durably`] did not finish.
pub const TEMP_EXTENSION: &str = "tmp";

/// Reads the content of a small file; fails with `InvalidData` when it has more than `most` bytes.
pub fn read_small(disk: &dyn Disk, path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    if file.len() > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "far too long"));
    }
    let mut content = vec![0; file.len() as usize];
    read_exact_at(&*file, &mut content, 0)?;
    Ok(content)
}

/// Fills `out` with the file's bytes from `offset` on; fails with `UnexpectedEof` when the file ends first.
pub fn read_exact_at(file: &dyn OldFile, out: &mut [u8], offset: u64) -> io::Result<()> {
    let mut filled = 0;
    while filled < out.len() {
        match file.read_at(&mut out[filled..], offset + filled as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => filled += n,
        }
    }
    Ok(())
}
