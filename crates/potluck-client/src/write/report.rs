//! The outcome of files that were to be stored.

use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_core::size::count;
use potluck_wire::error::Failure;
use std::time::Duration;

/// The report of a put.
#[derive(Debug, Clone, Default)]
pub struct PutReport {
    /// The files of [`Session::add`](super::session::Session::add) or a put that became visible, in that order. A file
    /// of a [`Writer`](crate::Writer) is not among them; the writer is told.
    pub stored: Vec<(PoolPath, VersionId)>,
    /// The number of symbolic links that were made.
    pub links: u64,
    /// The files and links that could not be stored, with the reasons. The failure of a file of a
    /// [`Writer`](crate::Writer) is told to the writer.
    pub failed: Vec<(PoolPath, Failure)>,
    /// The plaintext bytes of all files that became visible.
    pub bytes: u64,
    /// The plaintext bytes of what was read of the files and stored, or in the pool already: all but their holes.
    pub data: u64,
    /// The number of chunks that went to donors, parity included, copies not counted.
    pub sent_chunks: u64,
    /// The stored bytes of the sent chunks, copies not counted.
    pub sent_bytes: u64,
    /// The number of chunks that were not sent because the pool held them already, or they occur twice in the files.
    pub held_chunks: u64,
    /// The plaintext bytes of data chunks that the pool held already, or that occur twice in the files.
    pub held_bytes: u64,
    /// The time from the opening of the session until the last of its files became visible. The bytes divided by this
    /// time are the observed application bandwidth (OAB; checkpoint store, section V.B).
    pub visible_after: Duration,
    /// The time from the opening until all copies were made that this client makes. If no others are pending, the bytes
    /// divided by this time are the achieved storage bandwidth (ASB).
    pub stored_after: Duration,
    /// The stored bytes of chunks that an interrupted upload had left and that were not sent again, copies not counted.
    pub resumed_bytes: u64,
    /// The resumed bytes with all their copies, as `potluck status` counts what is kept.
    pub resumed_copies_bytes: u64,
    /// The number of copies that were not made when this report was made: an asynchronous protocol makes copies after
    /// the files became visible, and repair makes those that found no donor.
    pub pending_copies: u64,
    /// The number of files of which the death of one donor may lose something until their pending copies are made.
    pub at_risk: u64,
    /// The number of files that became visible with less redundancy than their policy asks for, because donors are
    /// away. They survive the death of one more donor, unless they are at risk; repair makes the rest when there are
    /// donors for it.
    pub below_policy: u64,
}

impl PutReport {
    /// Returns the plaintext bytes that were stored a second until the files were visible; `None` if there were no bytes.
    pub fn observed_application_bandwidth(&self) -> Option<f64> {
        rate(self.data, self.visible_after)
    }

    /// Returns the plaintext bytes that were stored a second until all copies were made; `None` if there were no bytes, or copies are
    /// pending.
    pub fn achieved_storage_bandwidth(&self) -> Option<f64> {
        rate(self.data, self.stored_after).filter(|_| self.pending_copies == 0)
    }

    /// Returns the failure that ended a put, with the number of files that had become visible by then.
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

fn rate(bytes: u64, took: Duration) -> Option<f64> {
    (bytes > 0).then(|| bytes as f64 / took.as_secs_f64().max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_wire::error::{ErrorKind, code};

    #[test]
    fn write_behind_report_has_separate_visible_and_stored_rates() {
        let (visible_after, stored_after) = (Duration::from_secs(2), Duration::from_secs(5));
        let mut report =
            PutReport { data: 100, visible_after, stored_after, ..PutReport::default() };
        assert_eq!(report.observed_application_bandwidth(), Some(50.0));
        assert_eq!(report.achieved_storage_bandwidth(), Some(20.0));
        report.pending_copies = 1;
        assert_eq!(report.achieved_storage_bandwidth(), None);
        assert_eq!(PutReport::default().observed_application_bandwidth(), None);
    }

    #[test]
    fn no_space_report_says_how_much_was_stored() {
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
