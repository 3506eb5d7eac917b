//! Unmaps pages of the program that an idle daemon does not use.
//!
//! The kernel maps the pages around each page that the start touches, so that most of the program counts as resident
//! in a daemon that then runs one small loop for months. Unmapped pages stay in the page cache while other processes
//! use them, and a page that is needed again is mapped by a page fault of a microsecond.

use std::io;
use std::time::Duration;

/// The time from the start to the first round: by then connections are made and stores are listed.
const AFTER_START: Duration = Duration::from_secs(10);
/// The time from one round to the next, which unmaps what was used meanwhile.
const EVERY: Duration = Duration::from_secs(600);

/// Unmaps the program's pages from time to time.
pub async fn unmap_for_ever() {
    tokio::time::sleep(AFTER_START).await;
    loop {
        // A failure does no harm but that the daemon stays larger.
        if let Err(why) = unmap() {
            tracing::debug!("the program's pages stay mapped: {why}");
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Unmaps the code of this program.
fn unmap() -> io::Result<()> {
    let program = std::fs::read_link("/proc/self/exe")?;
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    for range in maps.lines().filter_map(|line| code_range(line, &program.to_string_lossy())) {
        let len = range.end - range.start;
        // SAFETY: the range is a whole mapping of this process, which is private, read-only and of a file, so that the
        // kernel reads the same bytes again wherever one is wanted. Nothing unmaps the program's code.
        unsafe {
            let start = std::ptr::with_exposed_provenance_mut(range.start);
            rustix::mm::madvise(start, len, rustix::mm::Advice::LinuxDontNeed)?;
        }
    }
    Ok(())
}

/// Returns the addresses of a mapping, if a line of `/proc/self/maps` says that it is code of `program`. Code is never
/// written to, so that it can be read again from the file.
fn code_range(line: &str, program: &str) -> Option<std::ops::Range<usize>> {
    let (range, rest) = line.split_once(' ')?;
    let is_code = rest.starts_with("r-xp ") && rest.ends_with(program);
    let (start, end) = range.split_once('-').filter(|_| is_code)?;
    let address = |hex| usize::from_str_radix(hex, 16).ok();
    Some(address(start)?..address(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_the_program_is_unmapped_and_the_program_goes_on() {
        let line = |permissions: &str, path: &str| {
            format!("5581a000-5582c000 {permissions} 0001a000 fe:00 5311938      {path}")
        };
        let range = |line: &str| code_range(line, "/usr/bin/potluck");
        assert_eq!(range(&line("r-xp", "/usr/bin/potluck")), Some(0x5581_a000..0x5582_c000));
        assert_eq!(range(&line("r--p", "/usr/bin/potluck")), None);
        assert_eq!(range(&line("rw-p", "/usr/bin/potluck")), None);
        assert_eq!(range(&line("r-xp", "/usr/lib/libc.so.6")), None);
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
            let line = status.lines().find_map(|line| line.strip_prefix("RssFile:"));
            let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
            kib.and_then(|kib| kib.trim().parse::<u64>().ok()).expect("a number")
        };
        let before = resident();
        unmap().expect("unmapped");
        let after = resident();
        assert!(after < before, "{before} KiB of files were resident, and then {after}");
    }
}
