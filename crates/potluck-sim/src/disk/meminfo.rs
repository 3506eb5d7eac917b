//! `/proc/meminfo` of a simulated machine, by which its donor tells how much of the memory the owner's programs take. Donors
//! read `/proc` through the same interface as their disks.

use super::{Drive, MemoryDisk};
use potluck_donor::disk::OldFile;
use potluck_wire::bulk::ReadAt;
use std::fs::File;
use std::io;

/// The path of the file.
pub const PATH: &str = "/proc/meminfo";

/// The memory of every machine, in KiB.
const TOTAL: u64 = 8 << 20;

/// The file, opened by a donor, which reads it again and again.
pub struct MemInfo(MemoryDisk);

impl MemInfo {
    /// Opens the file of the machine with this disk.
    pub fn open(disk: &MemoryDisk) -> Self {
        Self(disk.clone())
    }
}

impl Drive {
    /// Has the owner's programs take nearly all of the machine's memory, or nearly none of it.
    pub fn fill_memory(&self, is_filled: bool) {
        self.state().memory_is_filled = is_filled;
    }
}

impl ReadAt for MemInfo {
    fn as_file(&self) -> Option<&File> {
        None
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let free = if self.0.alive()?.memory_is_filled { TOTAL / 50 } else { TOTAL / 10 * 9 };
        let text = format!("MemTotal: {TOTAL} kB\nMemAvailable: {free} kB\n");
        let rest = text.as_bytes().get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(out.len());
        out[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

impl OldFile for MemInfo {
    /// Returns 0, as the kernel tells of files whose content it makes when they are read.
    fn len(&self) -> u64 {
        0
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
