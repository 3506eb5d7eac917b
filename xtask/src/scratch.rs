//! Makes the directories in which tests and torture keep their files.

use std::io;
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statvfs};
use tempfile::{Builder, TempDir};

/// The bytes that must be free in memory: far more than the pools of the tests that run at once hold.
const ROOM: u64 = 8 << 30;

/// Makes a directory whose name begins with `prefix`, in memory where there is room for it: pools that live for
/// seconds make and remove directories and sync all the time, and ext4 looks through a block group for each new
/// directory after many were removed, which is half of the time of all tests.
pub fn directory(prefix: &str) -> io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    let mut builder = Builder::new();
    builder.prefix(prefix);
    if serves(memory) { builder.tempdir_in(memory) } else { builder.tempdir() }
}

/// Returns whether programs may write much in `directory` and be started from there.
fn serves(directory: &Path) -> bool {
    statvfs(directory).is_ok_and(|there| {
        let free = there.f_bavail.saturating_mul(there.f_frsize);
        free >= ROOM
            && !there.f_flag.intersects(StatVfsMountFlags::NOEXEC | StatVfsMountFlags::RDONLY)
    })
}
