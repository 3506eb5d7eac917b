//! The machine's file system.

use super::{DirEntry, Disk, DiskSpace, NewFile, OldFile};
use potluck_wire::bulk::ReadAt;
use potluck_wire::private_dir;
#[cfg(target_os = "linux")]
use rustix::fs::FallocateFlags;
use rustix::fs::{FlockOperation, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

/// The machine's file system.
#[derive(Debug, Default)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists && is_dir(dir)? => {
                // Some file systems have no modes to set.
                let _ = private_dir::close_to_others(dir);
                Ok(())
            }
            made => made,
        }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Box::new(Appending(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn OldFile>> {
        // Without this flag, opening a pipe waits for its writer, which may never come.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let no_file = || io::Error::new(io::ErrorKind::InvalidData, "it is no regular file");
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Err(why) if Errno::from_io_error(&why) == Some(Errno::LOOP) => return Err(no_file()),
            file => file?,
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(no_file());
        }
        Ok(Box::new(Stored { file, len: metadata.len() }))
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::symlink_metadata(path)?.len())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, dir: &Path, each: &mut dyn FnMut(DirEntry<'_>)) -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            // This does not follow symbolic links.
            let metadata = match entry.metadata() {
                Err(why) if why.kind() == io::ErrorKind::NotFound => continue, // just removed
                metadata => metadata?,
            };
            let file = metadata.is_file().then_some(metadata.len());
            each(DirEntry { name: &entry.file_name(), file });
        }
        Ok(())
    }

    fn space(&self, dir: &Path) -> io::Result<DiskSpace> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(DiskSpace {
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
            available: stat.f_bavail.saturating_mul(stat.f_frsize),
            read_only: stat.f_flag.contains(StatVfsMountFlags::RDONLY),
        })
    }

    fn device(&self, dir: &Path) -> Option<(u32, u32)> {
        let device = rustix::fs::stat(dir).ok()?.st_dev;
        Some((rustix::fs::major(device), rustix::fs::minor(device)))
    }

    fn lock(&self, dir: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let dir = File::open(dir)?;
        rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(dir))
    }
}

fn is_dir(path: &Path) -> io::Result<bool> {
    // A symbolic link to a directory counts: the owner decides how the directories above the store are laid out.
    Ok(fs::metadata(path)?.is_dir())
}

struct Appending(File);

impl NewFile for Appending {
    #[cfg(target_os = "linux")]
    fn reserve(&mut self, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.0, FallocateFlags::KEEP_SIZE, 0, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()), // not every file system can
            reserved => Ok(reserved?),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }
}

struct Stored {
    file: File,
    len: u64,
}

impl ReadAt for Stored {
    fn as_file(&self) -> Option<&File> {
        Some(&self.file)
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(&self.file, out, offset)
    }
}

impl OldFile for Stored {
    fn len(&self) -> u64 {
        self.len
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}
