//! The outcome of files that were to be stored.

use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_core::size::count;
use potluck_wire::error::Failure;

/// The report of a put.
#[derive(Debug, Clone, Default)]
pub struct PutReport {
    /// Files that became visible, in that order.
    pub stored: Vec<(PoolPath, VersionId)>,
    /// Symbolic links that were made.
    pub links: u64,
    /// Files and links that did not, and why.
    pub failed: Vec<(PoolPath, Failure)>,
    /// Plaintext bytes of the stored files.
    pub bytes: u64,
    /// Chunks that went to donors, parity included, copies not counted.
    pub sent_chunks: u64,
    /// Stored bytes of the sent chunks, copies not counted.
    pub sent_bytes: u64,
    /// Chunks the pool held already, or that occur twice in the files.
    pub held_chunks: u64,
    /// Stored bytes of chunks that an interrupted upload had left and that were not sent again,
    /// copies not counted.
    pub resumed_bytes: u64,
    /// The resumed bytes with all their copies, as `potluck status` counts what is kept.
    pub resumed_copies_bytes: u64,
    /// Copies that were not made yet when this was said: an asynchronous protocol makes them after
    /// the files became visible, and until then the loss of one donor may lose data.
    pub pending_copies: u64,
    /// Files that became visible with less redundancy than their policy asks for, because donors are
    /// away. One more donor may die; repair makes the rest when there are donors for it.
    pub below_policy: u64,
}

impl PutReport {
    /// The failure that ended a put, which says how much had become visible by then.
    pub(crate) fn with_stored(&self, failure: Failure) -> Failure {
        if self.stored.is_empty() {
            return failure;
        }
        let stored = self.stored.len() as u64;
        let were = if stored == 1 { "was" } else { "were" };
        let message =
            format!("{}; {} {were} stored before that", failure.message, count(stored, "file"));
        Failure { message, ..failure }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_wire::error::{ErrorKind, code};

    #[test]
    fn who_finds_no_room_in_the_middle_is_told_what_was_stored_before() {
        let path: PoolPath = "pot://lab/a".parse().expect("a path");
        let failure = || Failure::new(ErrorKind::NoSpace, code::NO_DONORS, "the pool is full");
        let mut report = PutReport::default();
        assert_eq!(report.with_stored(failure()).message, "the pool is full");
        report.stored.push((path, VersionId(7)));
        let said = report.with_stored(failure());
        assert_eq!(said.message, "the pool is full; 1 file was stored before that");
        assert_eq!(said.code, code::NO_DONORS);
    }
}
