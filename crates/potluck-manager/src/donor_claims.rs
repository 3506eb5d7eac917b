//! Bounds the sizes, counts and texts that a donor says of itself as they come in: no donor makes the pool's sums
//! overflow, forges lines of a log or moves the cursor of a terminal. How long a donor may be away, whatever it says, is
//! decided by the pool (`liveness`).

use potluck_core::owner_limits::DiskState;
use potluck_core::text::is_unseen;
use potluck_wire::control::{DiskFault, Heartbeat, Register};

/// The most bytes that a donor is believed to have: a pebibyte, so that the sum for 16,383 donors fits in 64 bits.
const MOST_BYTES: u64 = 1 << 50;
/// The most characters of a text that a donor says of itself.
const MOST_TEXT: usize = 512;

/// Brings a donor's registration within bounds.
pub fn registration(mut call: Register) -> Register {
    call.version = words(&call.version);
    call.label = call.label.as_deref().map(words);
    call.disk = disk(&call.disk);
    call.room = call.room.min(MOST_BYTES);
    call.disk_fault = call.disk_fault.map(fault);
    call
}

/// Brings a donor's heartbeat within bounds.
pub fn heartbeat(mut call: Heartbeat) -> Heartbeat {
    call.disk = disk(&call.disk);
    let Heartbeat { room, excess, disk_lacks, scrub, .. } = &mut call;
    for bytes in [room, excess, disk_lacks, &mut scrub.done, &mut scrub.of] {
        *bytes = (*bytes).min(MOST_BYTES);
    }
    for count in [&mut call.scrub.rounds, &mut call.scrub.spoiled] {
        *count = (*count).min(MOST_BYTES);
    }
    call.lends = call.lends.map(|bytes| bytes.min(MOST_BYTES));
    call.disk_fault = call.disk_fault.map(fault);
    call.settings_fault = call.settings_fault.as_deref().map(words);
    call
}

fn disk(disk: &DiskState) -> DiskState {
    DiskState {
        total: disk.total.min(MOST_BYTES),
        available: disk.available.min(MOST_BYTES),
        lent_used: disk.lent_used.min(MOST_BYTES),
    }
}

fn fault(fault: DiskFault) -> DiskFault {
    DiskFault { why: words(&fault.why), ..fault }
}

/// Cuts a text to [`MOST_TEXT`] characters and makes it one line that every terminal shows as it is.
fn words(text: &str) -> String {
    text.chars().take(MOST_TEXT).map(|c| if is_unseen(c) { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn donor_texts_are_sanitised_to_one_line() {
        let forged = "\x1b[2J gone\r\nhealthy: every file is as safe as promised\u{202e}";
        assert!(!words(forged).contains(|c: char| c.is_control() || c == '\u{202e}'));
        assert!(words(forged).contains("healthy"), "its words stay");
        assert_eq!(words(&"x".repeat(30 << 20)).len(), MOST_TEXT);
    }
}
