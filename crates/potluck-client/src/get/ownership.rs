//! Ownership of local copies of files.

use potluck_core::attributes::FileOwner;
use rustix::fs::{AtFlags, CWD, Gid, Uid, chownat, fchown};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::Path;

/// Gives an open file away, as far as this process may: root does, others hand files on to groups that they are in, and
/// keep what is left, as `cp -a` has it.
pub fn give(file: &File, owner: FileOwner) -> io::Result<()> {
    as_far_as_allowed(owner, |uid, gid| fchown(file, uid, gid))
}

/// Gives what is at a path away, as [`give`] does; a link itself, and not what it leads to.
pub fn give_at(path: &Path, owner: FileOwner) -> io::Result<()> {
    let give = |uid, gid| chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW);
    as_far_as_allowed(owner, give)
}

fn as_far_as_allowed(
    owner: FileOwner,
    give: impl Fn(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
) -> io::Result<()> {
    // To the system this number means "as it is", so it is nobody's.
    if [owner.uid, owner.gid].contains(&u32::MAX) {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    let given = match give(Some(uid), Some(gid)) {
        Err(Errno::PERM) => give(None, Some(gid)),
        given => given,
    };
    match given {
        // A number that the user namespace does not map is invalid in it.
        Err(Errno::PERM | Errno::INVAL) => Ok(()),
        given => Ok(given?),
    }
}
