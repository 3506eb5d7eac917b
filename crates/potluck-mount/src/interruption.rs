//! Whether a thread that waits for a reply was sent a signal. The kernel tells the mount of that by a request that fuser
//! 0.18 does not pass on, so the thread is looked at.

use std::fs;

/// Whether a thread has a signal to handle, or is gone; false where that cannot be known, as across namespaces.
pub fn is_interrupted(thread: u32) -> bool {
    if thread == 0 {
        return false;
    }
    match fs::read_to_string(format!("/proc/{thread}/status")) {
        Ok(status) => has_signal(&status),
        Err(_) => true,
    }
}

fn has_signal(status: &str) -> bool {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim().trim_start_matches(':').trim(), 16).ok()
    };
    let pending = mask("SigPnd").unwrap_or(0) | mask("ShdPnd").unwrap_or(0);
    pending & !mask("SigBlk").unwrap_or(0) & !mask("SigIgn").unwrap_or(0) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_counts_unless_it_is_blocked_or_ignored() {
        let status = |pending: &str, blocked: &str, ignored: &str| {
            format!(
                "Name:\tx\nSigPnd:\t0\nShdPnd:\t{pending}\nSigBlk:\t{blocked}\nSigIgn:\t{ignored}\n"
            )
        };
        assert!(!has_signal(&status("0000000000000000", "0", "0")));
        assert!(has_signal(&status("0000000000000002", "0", "0")));
        assert!(!has_signal(&status("0000000000000002", "2", "0")));
        assert!(!has_signal(&status("0000000000000002", "0", "2")));
        assert!(has_signal(&status("0000000000000102", "2", "0")));
        assert!(!is_interrupted(std::process::id()));
        assert!(is_interrupted(u32::MAX), "nobody has that number");
        assert!(!is_interrupted(0));
    }
}
