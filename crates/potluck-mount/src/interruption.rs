//! Finds out whether a thread that waits for a reply was sent a signal. The kernel tells the mount of that by a request
//! that fuser 0.18 does not pass on, so the thread is looked up in `/proc`. What a killed open() opened is given up in
//! `file_system/closing`.

use std::fs;
use std::time::Duration;

/// The time before the first look at a thread that waits for a reply, and between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// The bit of SIGKILL in the masks of a thread. The kernel sends SIGKILL to the threads of a process that another
/// signal is to end, too.
const KILL: u64 = 1 << (9 - 1);
/// The signal bits in the exit code of a process that a signal has ended.
const SIGNAL_OF_EXIT: u32 = 0x7f;

/// The masks of signals in the `/proc` status of a thread.
struct Signals {
    pending: u64,
    blocked: u64,
    ignored: u64,
}

impl Signals {
    fn of(status: &str) -> Self {
        let mask = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            u64::from_str_radix(line.trim().trim_start_matches(':').trim(), 16).ok()
        };
        let mask = |name: &str| mask(name).unwrap_or(0);
        let pending = mask("SigPnd") | mask("ShdPnd");
        Self { pending, blocked: mask("SigBlk"), ignored: mask("SigIgn") }
    }
}

/// Returns whether a thread has a signal to handle, or is gone; false for the thread 0, as the kernel names threads of
/// other namespaces.
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
    let Signals { pending, blocked, ignored } = Signals::of(status);
    pending & !blocked & !ignored != 0
}

/// Returns when a signal is to end a thread that waits for a reply, but not in the first second. Never returns if that
/// cannot be known.
pub async fn killed(thread: u32) {
    loop {
        tokio::time::sleep(LOOK).await;
        if is_killed(thread) {
            return;
        }
    }
}

/// Returns whether a signal is to end a thread, or has ended it: a thread that closes its files as it ends has no
/// pending signals and no memory any more.
fn is_killed(thread: u32) -> bool {
    let about = |name: &str| fs::read_to_string(format!("/proc/{thread}/{name}")).ok();
    let Some(status) = about("status").filter(|_| thread != 0) else { return false };
    let has_memory = status.lines().any(|line| line.starts_with("VmSize:"));
    Signals::of(&status).pending & KILL != 0
        || (!has_memory && about("stat").is_some_and(|stat| has_ended_by_signal(&stat)))
}

/// Returns whether the exit code, the last number of a thread's `/proc` stat, tells of an end by a signal.
fn has_ended_by_signal(stat: &str) -> bool {
    let code = stat.split_whitespace().next_back().and_then(|code| code.parse::<u32>().ok());
    code.is_some_and(|code| code & SIGNAL_OF_EXIT != 0)
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

    #[test]
    fn a_thread_is_killed_by_what_nothing_keeps_it_from_dying_of() {
        let about = |pending: &str| Signals::of(&format!("SigPnd:\t{pending}\nShdPnd:\t0\n"));
        assert_eq!(about("0000000000000100").pending & KILL, KILL);
        assert_eq!(about("0000000000000002").pending & KILL, 0, "it may have a handler");
        for (code, is_by_signal) in [(9, true), (15, true), (0x8b, true), (0, false), (256, false)]
        {
            assert_eq!(has_ended_by_signal(&format!("7 (a b) D 1 0 {code}\n")), is_by_signal);
        }
        assert!(!is_killed(std::process::id()));
        assert!(!is_killed(u32::MAX) && !is_killed(0), "not known");
    }
}
