//! Answers the requests of the kernel. A request that has to wait becomes a task of the runtime, which has the reply,
//! so that a FUSE thread never waits.

mod listing;
mod translation;

use crate::file_system::{AttributeChange, FileSystem, NewEntry, PoolAttribute, ShownEntry};
use crate::interruption::killed;
use crate::locks::RangeLock;
use crate::opener::process_of;
use fuser::{
    BsdFileFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use potluck_core::attributes::Permissions;
use rustix::fs::{FileType as RawFileType, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;
use translation::{
    LARGEST_WRITE, Owners, UNLOCKED, file_time, lock_kind, lock_level, mode, number, shown, text,
    write_mode,
};

/// The time for which the kernel believes names and attributes that it was told, unless it is made to forget them; then
/// it asks again.
const BELIEVED: Duration = Duration::from_secs(1);
/// The ways of lseek(2) that the kernel leaves to a file system.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
/// The size in bytes of the blocks in which sizes of a file system are counted.
const BLOCK: u32 = 4096;
/// The flags of an open file: reads and writes bypass the page cache, which would mix versions of one name.
const DIRECT: FopenFlags = FopenFlags::FOPEN_DIRECT_IO;

/// The handler of the kernel's requests, which serves a file system on a runtime.
pub struct KernelRequests {
    files: Arc<FileSystem>,
    runtime: Handle,
    owners: Owners,
}

impl KernelRequests {
    /// Makes a handler that serves `files` to the user who runs this process.
    pub fn new(files: Arc<FileSystem>, runtime: Handle) -> Self {
        Self { files, runtime, owners: Owners::of_process() }
    }

    /// Polls `work` once, and leaves it to the runtime if it has to wait. Most requests wait for nothing, and the calls
    /// of others to donors or the manager are under way before a thread is woken. Once the mount has ended the request
    /// is dropped, which answers it with `EIO`.
    fn begin(&self, work: impl Future<Output = ()> + Send + 'static) {
        if self.files.has_ended() {
            return;
        }
        let _runtime = self.runtime.enter();
        let mut work = Box::pin(work);
        let mut now = Context::from_waker(Waker::noop());
        if work.as_mut().poll(&mut now).is_pending() {
            self.runtime.spawn(work);
        }
    }

    /// Answers a request with the result of its work.
    fn answer<T, F>(
        &self,
        request: &Request,
        work: impl FnOnce(Arc<FileSystem>) -> F,
        reply: impl FnOnce(Result<&T, Errno>) + Send + 'static,
    ) where
        T: Send + Sync + 'static,
        F: Future<Output = Result<T, Errno>> + Send + 'static,
    {
        let (thread, work) = (request.pid(), work(Arc::clone(&self.files)));
        self.begin(async move { drop(answered(thread, work, reply).await) });
    }

    /// Answers a request for an entry, whose number the kernel knows from then on.
    fn reply_entry<F>(
        &self,
        request: &Request,
        reply: ReplyEntry,
        work: impl FnOnce(Arc<FileSystem>) -> F,
    ) where
        F: Future<Output = Result<ShownEntry, Errno>> + Send + 'static,
    {
        let (owners, files, thread) = (self.owners, Arc::clone(&self.files), request.pid());
        let work = work(Arc::clone(&self.files));
        self.begin(async move {
            let reply = move |found: Result<&ShownEntry, Errno>| match found {
                Ok(facts) => {
                    reply.entry(&BELIEVED, &shown(facts, owners), Generation(0));
                }
                Err(why) => reply.error(number(why)),
            };
            if let Some(facts) = answered(thread, work, reply).await {
                files.forget(facts.inode, 1); // the kernel was not told
            }
        });
    }

    /// Answers a request to open something with its handle.
    fn reply_opened<F>(
        &self,
        request: &Request,
        (reply, flags): (ReplyOpen, FopenFlags),
        work: impl FnOnce(Arc<FileSystem>) -> F,
    ) where
        F: Future<Output = Result<u64, Errno>> + Send + 'static,
    {
        let (files, thread) = (Arc::clone(&self.files), request.pid());
        let work = work(Arc::clone(&self.files));
        self.begin(async move {
            let reply = move |opened: Result<&u64, Errno>| match opened {
                Ok(handle) => reply.opened(FileHandle(*handle), flags),
                Err(why) => reply.error(number(why)),
            };
            if let Some(handle) = answered(thread, work, reply).await {
                files.give_up(handle).await;
            }
        });
    }

    fn reply_attributes<F>(
        &self,
        request: &Request,
        inode: INodeNo,
        reply: ReplyAttr,
        work: impl FnOnce(Arc<FileSystem>) -> F,
    ) where
        F: Future<Output = Result<ShownEntry, Errno>> + Send + 'static,
    {
        let (owners, files) = (self.owners, Arc::clone(&self.files));
        self.answer(request, work, move |found| match found {
            Ok(facts) => {
                reply.attr(&BELIEVED, &shown(facts, owners));
            }
            Err(why) => reply.error(number(files.looked_up_again(inode.0, why))),
        });
    }

    fn reply_empty<F>(
        &self,
        request: &Request,
        reply: ReplyEmpty,
        work: impl FnOnce(Arc<FileSystem>) -> F,
    ) where
        F: Future<Output = Result<(), Errno>> + Send + 'static,
    {
        self.answer(request, work, move |done| match done {
            Ok(()) => reply.ok(),
            Err(why) => reply.error(number(why)),
        });
    }
}

/// Replies to a thread with the result of its work. A thread that is killed while it waits gets [`Errno::INTR`] at
/// once, because it cannot end without an answer. The work then goes on, since breaking it off in the middle could harm
/// what others write, and a result that came too late is returned to the caller.
async fn answered<T>(
    thread: u32,
    work: impl Future<Output = Result<T, Errno>>,
    reply: impl FnOnce(Result<&T, Errno>),
) -> Option<T> {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => {
            reply(done.as_ref().map_err(|why| *why));
            None
        }
        () = killed(thread) => {
            reply(Err(Errno::INTR));
            work.await.ok()
        }
    }
}

impl Filesystem for KernelRequests {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(LARGEST_WRITE); // accepted, for it is less than the largest possible value
        // The kernel is to pass locks on to this mount; otherwise other machines would not see them.
        for capability in [
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_POSIX_LOCKS,
            InitFlags::FUSE_FLOCK_LOCKS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ] {
            // A kernel that lacks one of these asks in another way.
            let _ = config.add_capabilities(capability);
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (name, thread) = (text(name), request.pid());
        self.reply_entry(request, reply, |files| async move {
            files.lookup_for(thread, parent.0, &name?).await
        });
    }

    fn forget(&self, _: &Request, inode: INodeNo, times: u64) {
        self.files.forget(inode.0, times);
    }

    fn getattr(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        self.reply_attributes(request, inode, reply, |files| async move {
            files.facts(inode.0, handle.map(|handle| handle.0)).await
        });
    }

    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        permissions: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let owner = match self.owners.change(uid, gid) {
            Ok(owner) => owner,
            Err(why) => return reply.error(number(why)),
        };
        let (permissions, thread) = (permissions.map(Permissions::of_mode), request.pid());
        let now = self.files.now();
        let [atime, mtime] = [atime, mtime].map(|time| time.map(|time| file_time(time, now)));
        let change = AttributeChange { size, atime, mtime, permissions, owner };
        self.reply_attributes(request, inode, reply, |files| async move {
            files.change(inode.0, handle.map(|handle| handle.0), change, thread).await
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let (name, made) = (text(name), self.owners.new_entry(request, mode));
        self.reply_entry(request, reply, |files| async move {
            files.make_dir(parent.0, &name?, made).await
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        if RawFileType::from_raw_mode(mode) != RawFileType::RegularFile {
            return reply.error(fuser::Errno::EOPNOTSUPP);
        }
        let (name, made) = (text(name), self.owners.new_entry(request, mode));
        self.reply_entry(request, reply, |files| async move {
            files.make_empty_file(parent.0, &name?, made).await
        });
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = text(name);
        self.reply_empty(request, reply, |files| async move {
            files.remove(parent.0, &name?, false).await
        });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = text(name);
        self.reply_empty(request, reply, |files| async move {
            files.remove(parent.0, &name?, true).await
        });
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (name, target) = (text(name), text(target.as_os_str()));
        let NewEntry { owner, .. } = self.owners.new_entry(request, 0);
        self.reply_entry(request, reply, |files| async move {
            files.make_link(parent.0, &name?, target?, owner).await
        });
    }

    fn readlink(&self, request: &Request, inode: INodeNo, reply: ReplyData) {
        let work = |files: Arc<FileSystem>| async move { files.target(inode.0).await };
        self.answer(request, work, |found| match found {
            Ok(target) => reply.data(target.as_str().as_bytes()),
            Err(why) => reply.error(number(why)),
        });
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(fuser::Errno::EOPNOTSUPP);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !(flags - RenameFlags::RENAME_NOREPLACE).is_empty() {
            return reply.error(fuser::Errno::EINVAL);
        }
        let no_replace = flags.contains(RenameFlags::RENAME_NOREPLACE);
        let (name, new_name) = (text(name), text(new_name));
        self.reply_empty(request, reply, |files| async move {
            let (name, new_name) = (name?, new_name?);
            files.rename((parent.0, &name), (new_parent.0, &new_name), no_replace).await
        });
    }

    fn open(&self, request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (mode, thread) = (mode(flags.0), request.pid());
        self.reply_opened(request, (reply, DIRECT), |files| async move {
            files.open(inode.0, mode, thread).await
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        permissions: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (name, owners) = (text(name), self.owners);
        let made = owners.new_entry(request, permissions);
        let opener = process_of(request.pid());
        let (files, thread) = (Arc::clone(&self.files), request.pid());
        self.begin(async move {
            let create = async { files.create(parent.0, &name?, mode(flags), made, opener).await };
            let reply = move |created: Result<&(ShownEntry, u64), Errno>| match created {
                Ok((facts, handle)) => {
                    let shown = shown(facts, owners);
                    let handle = FileHandle(*handle);
                    reply.created(&BELIEVED, &shown, Generation(0), handle, DIRECT);
                }
                Err(why) => reply.error(number(why)),
            };
            if let Some((facts, handle)) = answered(thread, create, reply).await {
                files.give_up(handle).await;
                files.forget(facts.inode, 1); // the kernel was not told
            }
        });
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = |files: Arc<FileSystem>| async move {
            files.read(handle.0, offset, size as usize).await
        };
        self.answer(request, read, |read| match read {
            Ok(bytes) => reply.data(bytes),
            Err(why) => reply.error(number(why)),
        });
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
        descriptor: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let bytes = bytes.to_vec();
        let len = bytes.len() as u32;
        let (mode, thread) = (write_mode(flags, descriptor), request.pid());
        let write = move |files: Arc<FileSystem>| async move {
            files.write(handle.0, thread, offset, bytes, mode).await
        };
        self.answer(request, write, move |written| match written {
            Ok(()) => reply.written(len),
            Err(why) => reply.error(number(why)),
        });
    }

    fn lseek(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let seek = move |files: Arc<FileSystem>| async move {
            let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
            match whence {
                SEEK_DATA => files.seek(handle.0, offset, false).await,
                SEEK_HOLE => files.seek(handle.0, offset, true).await,
                _ => Err(Errno::INVAL), // the kernel asks for nothing else
            }
        };
        self.answer(request, seek, move |found| match found {
            Ok(offset) => reply.offset(*offset as i64),
            Err(why) => reply.error(number(why)),
        });
    }

    fn flush(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let thread = request.pid();
        self.reply_empty(request, reply, |files| async move {
            files.flush(handle.0, thread, owner.0).await
        });
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        owner: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let files = Arc::clone(&self.files);
        self.begin(async move {
            files.release(handle.0, owner.map(|owner| owner.0)).await;
            reply.ok();
        });
    }

    fn fsync(&self, request: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.reply_empty(request, reply, |files| async move { files.sync(handle.0).await });
    }

    fn fsyncdir(&self, request: &Request, _: INodeNo, dir: FileHandle, _: bool, reply: ReplyEmpty) {
        // Any other change of a directory is on the manager's disk when its request returns.
        self.reply_empty(request, reply, |files| async move { files.sync_closed(dir.0).await });
    }

    fn opendir(&self, request: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.reply_opened(request, (reply, FopenFlags::empty()), |files| async move {
            let opened = files.open_dir(inode.0).await;
            opened.map_err(|why| files.looked_up_again(inode.0, why))
        });
    }

    fn readdir(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let files = Arc::clone(&self.files);
        let list = |files: Arc<FileSystem>| async move { files.listing(handle.0, offset).await };
        self.answer(request, list, move |entries| match entries {
            Ok(entries) => listing::reply_names(reply, &files, inode.0, entries, offset),
            Err(why) => reply.error(number(why)),
        });
    }

    fn readdirplus(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let (files, owners) = (Arc::clone(&self.files), self.owners);
        let list = |files: Arc<FileSystem>| async move { files.listing(handle.0, offset).await };
        self.answer(request, list, move |entries| match entries {
            Ok(entries) => {
                listing::reply_entries(reply, (&files, owners), inode.0, entries, offset)
            }
            Err(why) => reply.error(number(why)),
        });
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let files = Arc::clone(&self.files);
        self.begin(async move {
            files.release(handle.0, None).await;
            reply.ok();
        });
    }

    fn statfs(&self, request: &Request, inode: INodeNo, reply: ReplyStatfs) {
        let work = |files: Arc<FileSystem>| async move { files.capacity(inode.0).await };
        self.answer(request, work, |found| match found {
            Ok(found) => {
                let block = u64::from(BLOCK);
                let (total, free) = (found.total / block, found.free / block);
                reply.statfs(total, free, free, 0, 0, BLOCK, 255, BLOCK);
            }
            Err(why) => reply.error(number(why)),
        });
    }

    fn getxattr(
        &self,
        request: &Request,
        inode: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let attribute = match text(name).and_then(|name| PoolAttribute::named(&name)) {
            Ok(attribute) => attribute,
            Err(why) => return reply.error(number(why)),
        };
        let thread = request.pid();
        let work = |files: Arc<FileSystem>| async move {
            files.pool_attribute(inode.0, attribute, thread).await
        };
        self.answer(request, work, move |found| match found {
            Ok(value) if size == 0 => reply.size(value.len() as u32),
            Ok(value) if value.len() > size as usize => reply.error(fuser::Errno::ERANGE),
            Ok(value) => reply.data(value.as_bytes()),
            Err(why) => reply.error(number(why)),
        });
    }

    fn listxattr(&self, _: &Request, _: INodeNo, size: u32, reply: ReplyXattr) {
        // No attributes are listed: a program that copies a file with all of them would also set the policy of the
        // copy.
        match size {
            0 => reply.size(0),
            _ => reply.data(&[]),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let attribute = match text(name).and_then(|name| PoolAttribute::named(&name)) {
            Ok(_) if XattrFlags::from_bits_retain(flags as u32).contains(XattrFlags::CREATE) => {
                return reply.error(fuser::Errno::EEXIST); // a policy always holds
            }
            Ok(attribute) => attribute,
            Err(_) => return reply.error(fuser::Errno::EOPNOTSUPP),
        };
        let value = std::str::from_utf8(value).map(str::to_owned).map_err(|_| Errno::INVAL);
        let thread = request.pid();
        self.reply_empty(request, reply, |files| async move {
            files.set_pool_attribute(inode.0, attribute, &value?, thread).await
        });
    }

    fn removexattr(&self, request: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match text(name).and_then(|name| PoolAttribute::named(&name)) {
            Ok(PoolAttribute::Shared) => {
                let thread = request.pid();
                self.reply_empty(request, reply, |files| async move {
                    files.set_shared(inode.0, "0", thread).await
                });
            }
            Ok(_) => reply.error(fuser::Errno::EPERM), // a policy always holds
            Err(why) => reply.error(number(why)),
        }
    }

    fn getlk(
        &self,
        request: &Request,
        inode: INodeNo,
        _: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let Some(level) = lock_level(kind) else { return reply.locked(start, end, kind, pid) };
        let wanted = RangeLock { owner: owner.0, pid, start, end, level };
        let work =
            |files: Arc<FileSystem>| async move { files.find_conflict(inode.0, wanted).await };
        self.answer(request, work, |found| match found {
            Ok(None) => reply.locked(0, 0, UNLOCKED, 0),
            Ok(Some(lock)) => reply.locked(lock.start, lock.end, lock_kind(lock.level), lock.pid),
            Err(why) => reply.error(number(why)),
        });
    }

    fn setlk(
        &self,
        request: &Request,
        inode: INodeNo,
        _: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        let (files, thread, owner) = (Arc::clone(&self.files), request.pid(), owner.0);
        self.begin(async move {
            let lock = async {
                match lock_level(kind) {
                    None => files.unlock(inode.0, owner, start, end),
                    Some(level) => {
                        let lock = RangeLock { owner, pid, start, end, level };
                        files.lock(inode.0, lock, waits.then_some(thread)).await
                    }
                }
            };
            let reply = move |done: Result<&(), Errno>| match done {
                Ok(()) => reply.ok(),
                Err(why) => reply.error(number(why)),
            };
            if answered(thread, lock, reply).await.is_some() {
                // No program was told that it has the lock. If it cannot be removed, it ends when the file is closed.
                let _ = files.unlock(inode.0, owner, start, end);
            }
        });
    }
}
