//! Who opened a file, and whether somebody else's close() ends what they write.
//!
//! Each close() of a descriptor reaches the mount, also those of children that inherited it and of children that
//! closed it when they began another program. Were they to publish the file, a program that starts another in the
//! middle of writing would publish half a file.

use std::path::Path;

/// The process that a thread belongs to; `None` where that cannot be known, as across namespaces.
pub fn process_of(thread: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

/// Whether the close() of a `thread` publishes what was written through a handle that `opener` opened: its own does,
/// and everybody's once the opener has closed it (`None`) or is gone.
pub fn closes_for_good(opener: Option<u32>, thread: u32) -> bool {
    match (opener, process_of(thread)) {
        (Some(opener), Some(process)) => {
            opener == process || !Path::new("/proc").join(opener.to_string()).exists()
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_closes_for_good_only_when_the_opener_is_gone() {
        let own = std::process::id();
        assert_eq!(process_of(own), Some(own));
        assert!(closes_for_good(Some(own), own));
        assert!(closes_for_good(None, own));
        assert!(closes_for_good(Some(u32::MAX), own), "nobody has that number");
        assert!(!closes_for_good(Some(1), own), "process 1 is always there");
    }
}
