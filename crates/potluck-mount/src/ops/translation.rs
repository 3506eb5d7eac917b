//! Translations between the kernel's terms and those of this crate.

use crate::file_system::{NewEntry, OpenMode, OwnerChange, ShownEntry, WriteMode};
use fuser::{FileAttr, FileType, INodeNo, OpenAccMode, OpenFlags, Request, TimeOrNow, WriteFlags};
use potluck_core::attributes::{EntryAttributes, FileOwner, FileTime, Permissions};
use potluck_wire::control::{EntryKind, LockLevel};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::time::{Duration, UNIX_EPOCH};

/// The most bytes of one write, and so of each FUSE thread's buffer that is used.
pub const LARGEST_WRITE: u32 = 1 << 20;

/// Returns an error number as fuser takes it.
pub fn number(why: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(why.raw_os_error())
}

/// Translates a name from the kernel into text.
///
/// Errors: [`Errno::ILSEQ`] for a name that is not UTF-8.
pub fn text(name: &OsStr) -> Result<String, Errno> {
    name.to_str().map(str::to_owned).ok_or(Errno::ILSEQ)
}

/// Returns the kernel's kind of an entry.
pub fn kind(kind: EntryKind) -> FileType {
    match kind {
        EntryKind::File => FileType::RegularFile,
        EntryKind::Dir => FileType::Directory,
        EntryKind::Link => FileType::Symlink,
    }
}

/// The owners that programs see. A mount of root shows the owners that the pool keeps, and sets them: on a machine of
/// many users these numbers mean something. In a mount of any other user everything belongs to that user: access is
/// decided by the user's rights in the pool, and the user's number is somebody else's on another machine.
#[derive(Debug, Clone, Copy)]
pub struct Owners {
    /// The user who mounts.
    own: FileOwner,
}

impl Owners {
    /// Makes the owners for a mount of this process's user.
    pub fn of_process() -> Self {
        use rustix::process::{getgid, getuid};
        Self { own: FileOwner { uid: getuid().as_raw(), gid: getgid().as_raw() } }
    }

    fn are_kept(self) -> bool {
        self.own.uid == 0
    }

    fn shown(self, kept: Option<FileOwner>) -> FileOwner {
        kept.filter(|_| self.are_kept()).unwrap_or(self.own)
    }

    /// Returns the attributes of an entry that a process makes with this mode.
    pub fn new_entry(self, request: &Request, mode: u32) -> NewEntry {
        let owner = FileOwner { uid: request.uid(), gid: request.gid() };
        let owner = self.are_kept().then_some(owner);
        NewEntry { permissions: Permissions::of_mode(mode), owner }
    }

    /// Translates a change of owner; returns `None` if none is asked for, or if it changes nothing.
    ///
    /// Errors: [`Errno::PERM`] for another owner in a mount of a user, where everything belongs to that user. In mounts
    /// of root the kernel checks who may change owners.
    pub fn change(self, uid: Option<u32>, gid: Option<u32>) -> Result<Option<OwnerChange>, Errno> {
        let is_own = |given: Option<u32>, own: u32| given.is_none_or(|given| given == own);
        match self.are_kept() {
            true if uid.is_none() && gid.is_none() => Ok(None),
            true => Ok(Some(OwnerChange { uid, gid, unsaid: self.own })),
            false if is_own(uid, self.own.uid) && is_own(gid, self.own.gid) => Ok(None),
            false => Err(Errno::PERM),
        }
    }
}

/// Translates the facts about an entry into the kernel's attributes.
pub fn shown(facts: &ShownEntry, owners: Owners) -> FileAttr {
    let EntryAttributes { mtime, permissions, owner, changed, accessed } = facts.attributes;
    let owner = owners.shown(owner);
    FileAttr {
        ino: INodeNo(facts.inode),
        size: facts.size,
        blocks: facts.size.saturating_sub(facts.holes).div_ceil(512),
        atime: accessed.unwrap_or(mtime).system(),
        mtime: mtime.system(),
        ctime: changed.system(),
        crtime: mtime.system(),
        kind: kind(facts.kind),
        perm: permissions.bits() as u16,
        // For a directory, 1 says that subdirectories are not counted. With 2, programs that walk trees would conclude
        // that it has none.
        nlink: facts.has_name.into(),
        uid: owner.uid,
        gid: owner.gid,
        rdev: 0,
        blksize: LARGEST_WRITE,
        flags: 0,
    }
}

/// The kinds of locks of fcntl(2), which are the same on all architectures that Potluck is built for.
const SHARED: i32 = 0;
const EXCLUSIVE: i32 = 1;
/// The kind that stands for no lock, and in a request for an unlock.
pub const UNLOCKED: i32 = 2;

/// Returns the level of a lock; `None` for an unlock.
pub fn lock_level(kind: i32) -> Option<LockLevel> {
    match kind {
        SHARED => Some(LockLevel::Shared),
        EXCLUSIVE => Some(LockLevel::Exclusive),
        _ => None,
    }
}

/// Returns the kernel's kind of lock for a level.
pub fn lock_kind(level: LockLevel) -> i32 {
    match level {
        LockLevel::Shared => SHARED,
        LockLevel::Exclusive => EXCLUSIVE,
    }
}

/// Returns the way in which a program opens a file, from its flags.
pub fn mode(flags: i32) -> OpenMode {
    let access = OpenFlags(flags).acc_mode();
    let given = OFlags::from_bits_retain(flags as u32);
    OpenMode {
        writes: access != OpenAccMode::O_RDONLY,
        truncates: given.contains(OFlags::TRUNC),
        is_exclusive: given.contains(OFlags::EXCL),
    }
}

/// Returns the way in which a program writes, from the flags of the request and those that the descriptor has now: a
/// program may set `O_APPEND` after it opened the file, and clear it. Pages that were changed in memory are written by
/// any descriptor that has the file mapped, and come without the flags of one: they have their places in the file.
pub fn write_mode(request: WriteFlags, descriptor: OpenFlags) -> WriteMode {
    let given = OFlags::from_bits_retain(descriptor.0 as u32);
    WriteMode {
        appends: given.contains(OFlags::APPEND),
        // `O_DSYNC` is one of the bits of `O_SYNC`.
        syncs: given.intersects(OFlags::SYNC),
        // For a write that bypasses the page cache the kernel leaves it to this daemon to clear these bits.
        clears_set_ids: request.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
    }
}

/// Returns the time that a program sets; `now` is the present time.
pub fn file_time(time: TimeOrNow, now: FileTime) -> FileTime {
    match time {
        // The nanoseconds of a time before 1970 have to be added to its second, but fuser 0.18 subtracts them.
        TimeOrNow::SpecificTime(time) => {
            FileTime::of_system(match UNIX_EPOCH.duration_since(time) {
                Ok(before) => time + Duration::from_nanos(2 * u64::from(before.subsec_nanos())),
                Err(_) => time,
            })
        }
        TimeOrNow::Now => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: FileOwner = FileOwner { uid: 42, gid: 43 };

    #[test]
    fn root_sees_and_gives_owners_and_everybody_else_owns_all() {
        let root = Owners { own: FileOwner { uid: 0, gid: 0 } };
        assert_eq!((root.shown(Some(KEPT)), root.shown(None)), (KEPT, root.own));
        let change = root.change(Some(7), None).expect("the kernel asked root").expect("a change");
        assert_eq!((change.uid, change.gid, change.unsaid), (Some(7), None, root.own));
        assert!(root.change(None, None).expect("nothing").is_none());

        let user = Owners { own: FileOwner { uid: 1000, gid: 100 } };
        assert_eq!((user.shown(Some(KEPT)), user.shown(None)), (user.own, user.own));
        assert!(user.change(Some(1000), Some(100)).expect("so it is").is_none());
        for (uid, gid) in [(Some(0), None), (None, Some(43)), (Some(1000), Some(43))] {
            assert_eq!(user.change(uid, gid).map(|_| ()), Err(Errno::PERM));
        }
    }
}
