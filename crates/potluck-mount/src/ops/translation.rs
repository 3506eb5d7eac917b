//! What the kernel says and is told, in the terms of this crate.

use crate::file_system::{OpenMode, ShownEntry};
use fuser::{FileAttr, FileType, INodeNo, OpenAccMode, OpenFlags, TimeOrNow};
use potluck_core::attributes::FileTime;
use potluck_wire::control::EntryKind;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::time::{Duration, UNIX_EPOCH};

/// Bytes of one write; a thread's buffer is touched so far.
pub const LARGEST_WRITE: u32 = 1 << 20;

/// The number of an error as the kernel takes it.
pub fn number(why: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(why.raw_os_error())
}

/// A name as the pool has names.
pub fn text(name: &OsStr) -> Result<String, Errno> {
    name.to_str().map(str::to_owned).ok_or(Errno::ILSEQ)
}

/// The kind of an entry as the kernel has it.
pub fn kind(kind: EntryKind) -> FileType {
    match kind {
        EntryKind::File => FileType::RegularFile,
        EntryKind::Dir => FileType::Directory,
        EntryKind::Link => FileType::Symlink,
    }
}

/// The facts about an entry as the kernel has them; all entries belong to `owner`.
pub fn shown(facts: &ShownEntry, owner: (u32, u32)) -> FileAttr {
    let time = facts.attributes.mtime.system();
    let nlink = match facts.kind {
        EntryKind::Dir => 2,
        EntryKind::File | EntryKind::Link => 1,
    };
    FileAttr {
        ino: INodeNo(facts.inode),
        size: facts.size,
        blocks: facts.size.div_ceil(512),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: kind(facts.kind),
        perm: facts.attributes.permissions.bits() as u16,
        nlink,
        uid: owner.0,
        gid: owner.1,
        rdev: 0,
        blksize: LARGEST_WRITE,
        flags: 0,
    }
}

/// The way in which a program opens a file, from its flags.
pub fn mode(flags: i32) -> OpenMode {
    let access = OpenFlags(flags).acc_mode();
    let given = OFlags::from_bits_retain(flags as u32);
    OpenMode {
        writes: access != OpenAccMode::O_RDONLY,
        truncates: given.contains(OFlags::TRUNC),
        appends: given.contains(OFlags::APPEND),
        is_exclusive: given.contains(OFlags::EXCL),
    }
}

/// A time that a program sets, where it is `now`.
pub fn file_time(time: TimeOrNow, now: FileTime) -> FileTime {
    match time {
        // The nanoseconds of a time before 1970 go on from its second, and fuser 0.18 takes them off it.
        TimeOrNow::SpecificTime(time) => {
            FileTime::of_system(match UNIX_EPOCH.duration_since(time) {
                Ok(before) => time + Duration::from_nanos(2 * u64::from(before.subsec_nanos())),
                Err(_) => time,
            })
        }
        TimeOrNow::Now => now,
    }
}
