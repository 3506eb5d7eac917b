//! Puts the machine into the same state before every measurement.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::interrupt;
use crate::measure;

/// Waits until the file system of `path` has written back everything, so that one measurement never pays for the
/// pages of the one before.
pub fn write_back(path: &Path) -> Result<()> {
    interrupt::check()?;
    rustix::fs::syncfs(File::open(path)?)?;
    Ok(())
}

/// Makes sure, in a virtual machine, that the free memory is really there; call it last before work that fills
/// fresh pages.
///
/// A host takes free pages back after a while, and the process that the virtual machine gives such a page to pays
/// for its return: on a put to two sinks 2.5 or 7 CPU seconds by chance, on either side of the comparison. Touching
/// only as much as the work needs did not help, since nobody can say which pages it will get.
pub fn back_memory() -> Result<()> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").context("cannot read /proc/cpuinfo")?;
    if !cpuinfo.contains(" hypervisor") {
        return Ok(());
    }
    // The rest is left free, so that the page cache, which has the sources, need not give way.
    let bytes = free_memory()? / 8 * 7;
    // This runs in a process of its own, for the memory of the bench would count as peak memory of later children.
    let program = std::env::current_exe().context("cannot find the bench's own program")?;
    measure::run(Command::new(program).args(["floor", "touch-memory", &bytes.to_string()]))
        .map(drop)
}

/// Writes to every page of `bytes` of memory. This is the program that `back_memory` runs.
pub fn touch(bytes: u64) {
    const PAGE: usize = 4096;
    let mut memory = Vec::<u8>::with_capacity(bytes as usize);
    let pages = memory.spare_capacity_mut();
    // SAFETY: advice about memory that `memory` owns; huge pages halve the time, and being refused them costs only that.
    unsafe {
        let misalignment = pages.as_ptr().align_offset(PAGE);
        libc::madvise(
            pages.as_mut_ptr().add(misalignment).cast(),
            pages.len() - misalignment,
            libc::MADV_HUGEPAGE,
        );
    }
    let part = pages.len().div_ceil(std::thread::available_parallelism().map_or(1, usize::from));
    std::thread::scope(|scope| {
        for part in pages.chunks_mut(part.max(PAGE)) {
            scope.spawn(move || {
                for page in part.chunks_mut(PAGE) {
                    page[0].write(1);
                }
            });
        }
    });
    std::hint::black_box(&memory);
}

fn free_memory() -> Result<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemFree:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB"));
    let kib: u64 = line.context("/proc/meminfo has no MemFree in kB")?.trim().parse()?;
    Ok(kib * 1024)
}
