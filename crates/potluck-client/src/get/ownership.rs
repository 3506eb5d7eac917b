//! Ownership of local copies of files.

use potluck_core::attributes::FileOwner;
use rustix::fs::{AtFlags, Gid, Uid, chownat, fchown};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Gives an open file its owner as far as this process may, like `cp -a`: root sets user and group, any other process
/// only a group that it is in. An owner that may not be set is no error.
pub fn give(file: &File, owner: FileOwner) -> io::Result<()> {
    as_far_as_allowed(owner, |uid, gid| fchown(file, uid, gid))
}

/// Gives the file, directory or link at a name in a directory its owner as [`give`] does. A symbolic link is not
/// followed.
pub fn give_at(dir: impl AsFd, name: &Path, owner: FileOwner) -> io::Result<()> {
    let give = |uid, gid| chownat(&dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW);
    as_far_as_allowed(owner, give)
}

fn as_far_as_allowed(
    owner: FileOwner,
    give: impl Fn(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
) -> io::Result<()> {
    // To the system this number means "leave as it is", so no user or group has it.
    if [owner.uid, owner.gid].contains(&u32::MAX) {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    let given = match give(Some(uid), Some(gid)) {
        Err(Errno::PERM) => give(None, Some(gid)),
        given => given,
    };
    match given {
        // The system calls a number invalid that this process's user namespace does not map.
        Err(Errno::PERM | Errno::INVAL) => Ok(()),
        given => Ok(given?),
    }
}
