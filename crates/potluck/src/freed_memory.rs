//! Settings of the C library's allocator, by which daemons return freed memory to the system.

use crate::args::Command;

/// The number of heaps that all threads share.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HEAPS: i32 = 2;
/// The size in bytes from which each allocation is mapped on its own, and unmapped when it is freed. Bodies of calls
/// and pages of scans are larger, and what the catalog keeps for long is smaller.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ALONE: i32 = 256 << 10;

/// Has a manager and a mount use few heaps, and a manager return large freed buffers to the system; `up` has a manager
/// in its process, whose donor allocates few large buffers. By default the C library keeps freed memory in up to eight
/// heaps for each processor: of 2 GB that the manager of a thousand donors took, 98 MB were in use, and of 390 MB of a
/// mount in which files were changed at random, 216 MB. Mounts, other daemons and commands reuse large buffers, and are
/// faster if they keep them.
///
/// Call it before there are threads.
pub fn give_back(command: &Command) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if matches!(command, Command::Manager(_) | Command::Up(_) | Command::Mount(_)) {
        // SAFETY: mallopt changes what later calls of malloc do, and nothing else.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, HEAPS);
        }
    }
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if matches!(command, Command::Manager(_) | Command::Up(_)) {
        // SAFETY: as above.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, ALONE);
        }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = command;
}
