//! The least that any file system in user space does: each request of the kernel becomes the same request to a
//! local directory, with the settings of Potluck's mounts (two threads, 1 MiB a request, no page cache). It knows
//! only the files of one directory.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    Session, TimeOrNow, WriteFlags,
};

use crate::mounted::FuseFloor;

/// The size of the largest request, in bytes; `BELIEVED` is how long the kernel believes an answer. Both are those
/// of Potluck's mounts.
const LARGEST_WRITE: u32 = 1 << 20;
const BELIEVED: Duration = Duration::from_secs(1);
const THREADS: usize = 2;

/// Serves the directory `source` at `mount_point` until it is unmounted. The *NULL-FUSE* of the checkpoint store
/// (section V.A) does so without the disk: what is written is copied to memory, where a mount must have it when the
/// request is answered, and forgotten.
pub fn serve(floor: FuseFloor, source: &Path, mount_point: &Path) -> Result<()> {
    let mut config = Config::default();
    config.n_threads = Some(THREADS);
    let files = PassThrough { source: source.to_owned(), floor, state: Mutex::default() };
    Ok(Session::new(files, mount_point, &config)?.run()?)
}

struct PassThrough {
    source: PathBuf,
    floor: FuseFloor,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    numbers: BTreeMap<PathBuf, u64>,
    names: BTreeMap<u64, PathBuf>,
    open: BTreeMap<u64, Arc<File>>,
    last: u64,
}

impl PassThrough {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    fn number(&self, name: &Path) -> u64 {
        let mut state = self.state();
        if let Some(number) = state.numbers.get(name) {
            return *number;
        }
        state.last += 1;
        let number = state.last + INodeNo::ROOT.0;
        state.numbers.insert(name.into(), number);
        state.names.insert(number, name.into());
        number
    }

    fn path(&self, number: INodeNo) -> PathBuf {
        match self.state().names.get(&number.0) {
            Some(name) => self.source.join(name),
            None => self.source.clone(),
        }
    }

    fn file(&self, handle: FileHandle) -> io::Result<Arc<File>> {
        self.state().open.get(&handle.0).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn open(&self, file: File) -> FileHandle {
        let mut state = self.state();
        state.last += 1;
        let handle = state.last;
        state.open.insert(handle, Arc::new(file));
        FileHandle(handle)
    }

    fn named(&self, name: &OsStr) -> io::Result<FileAttr> {
        let about = self.source.join(name).symlink_metadata()?;
        Ok(shown(self.number(name.as_ref()), &about))
    }
}

fn shown(number: u64, about: &Metadata) -> FileAttr {
    let time = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    FileAttr {
        ino: INodeNo(number),
        size: about.len(),
        blocks: about.blocks(),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: if about.is_dir() { FileType::Directory } else { FileType::RegularFile },
        perm: (about.permissions().mode() & 0o7777) as u16,
        nlink: about.nlink() as u32,
        uid: about.uid(),
        gid: about.gid(),
        rdev: 0,
        blksize: LARGEST_WRITE,
        flags: 0,
    }
}

fn error(why: &io::Error) -> Errno {
    Errno::from_i32(why.raw_os_error().unwrap_or(libc::EIO))
}

impl Filesystem for PassThrough {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(LARGEST_WRITE); // It is less than the most that there may be.
        for capability in [
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ] {
            let _ = config.add_capabilities(capability); // A kernel that lacks one asks in another way.
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.named(name) {
            Ok(attr) => reply.entry(&BELIEVED, &attr, Generation(0)),
            Err(why) => reply.error(error(&why)),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.path(inode).symlink_metadata() {
            Ok(about) => reply.attr(&BELIEVED, &shown(inode.0, &about)),
            Err(why) => reply.error(error(&why)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let path = self.path(inode);
        let set = || {
            if let Some(size) = size {
                OpenOptions::new().write(true).open(&path)?.set_len(size)?;
            }
            path.symlink_metadata()
        };
        match set() {
            Ok(about) => reply.attr(&BELIEVED, &shown(inode.0, &about)),
            Err(why) => reply.error(error(&why)),
        }
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let mut options = OpenOptions::new();
        let made = options.read(true).write(true).create(true).truncate(true);
        let made = made.open(self.source.join(name)).and_then(|file| Ok((file, self.named(name)?)));
        match made {
            Ok((file, attr)) => {
                let direct = FopenFlags::FOPEN_DIRECT_IO;
                reply.created(&BELIEVED, &attr, Generation(0), self.open(file), direct);
            }
            Err(why) => reply.error(error(&why)),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let writes = flags.acc_mode() != OpenAccMode::O_RDONLY;
        match OpenOptions::new().read(true).write(writes).open(self.path(inode)) {
            Ok(file) => reply.opened(self.open(file), FopenFlags::FOPEN_DIRECT_IO),
            Err(why) => reply.error(error(&why)),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        match self.file(handle).and_then(|file| file.read_at(&mut bytes, offset)) {
            Ok(read) => reply.data(&bytes[..read]),
            Err(why) => reply.error(error(&why)),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = match self.floor {
            FuseFloor::PassThrough => {
                self.file(handle).and_then(|file| file.write_all_at(bytes, offset))
            }
            FuseFloor::Null => {
                drop(std::hint::black_box(bytes.to_vec()));
                Ok(())
            }
        };
        match written {
            Ok(()) => reply.written(bytes.len() as u32),
            Err(why) => reply.error(error(&why)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.state().open.remove(&handle.0);
        reply.ok();
    }

    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match std::fs::remove_file(self.source.join(name)) {
            Ok(()) => reply.ok(),
            Err(why) => reply.error(error(&why)),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let entries = match std::fs::read_dir(&self.source) {
            Ok(entries) => entries.flatten(),
            Err(why) => return reply.error(error(&why)),
        };
        for (at, entry) in (1..).zip(entries).skip(offset as usize) {
            let name = entry.file_name();
            let number = INodeNo(self.number(name.as_ref()));
            if reply.add(number, at, FileType::RegularFile, &name) {
                break;
            }
        }
        reply.ok();
    }
}
