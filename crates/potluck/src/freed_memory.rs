//! What becomes of memory that was freed.

use crate::args::Command;

/// Heaps that threads share: enough for as many as compute at once.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HEAPS: i32 = 2;
/// Bytes from which memory is asked of the system, and given back to it, alone: bodies of calls and pages of scans are larger,
/// and what the catalog keeps for long is smaller.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ALONE: i32 = 256 << 10;

/// Has a manager give memory back to the system that it freed, and a mount share heaps. The C library keeps what was freed otherwise,
/// in eight heaps a processor: of the 2 GB that the manager of a thousand donors took, 98 MB were in use, and of the 390 MB of a
/// mount in which files were changed at random, 216 MB. Other daemons and commands, and mounts, pass large buffers on, and are faster if they keep
/// them. Call before there are threads.
pub fn give_back(command: &Command) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if matches!(command, Command::Manager(_) | Command::Mount(_)) {
        // SAFETY: mallopt changes what later calls of malloc do, and nothing else.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, HEAPS);
        }
    }
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if matches!(command, Command::Manager(_)) {
        // SAFETY: as above.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, ALONE);
        }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = command;
}
