//! A manager that has just started expects those donors that an earlier term heard until its end.

use super::Pool;
use crate::expected_donors::ExpectedDonors;
use potluck_core::ids::DonorId;
use std::collections::BTreeSet;
use std::time::Duration;

/// A donor that had been silent for longer when the earlier term ended is not waited for.
const HEARD_LATELY: Duration = Duration::from_secs(60);

impl Pool {
    /// Expects those donors that an earlier term of this manager heard until its end.
    pub fn expect_donors(&mut self) {
        let lately = |silent: Option<Duration>| silent.is_none_or(|silent| silent <= HEARD_LATELY);
        let donors = self.donors.iter().filter(|(_, donor)| lately(donor.record.silent_before));
        let donors: BTreeSet<DonorId> = donors.map(|(id, _)| id).collect();
        self.expected = ExpectedDonors { report: donors.clone(), listing: donors };
    }

    /// Whether a donor that is expected has not reported yet.
    pub fn expects_report(&self, donor: DonorId) -> bool {
        self.expected.report.contains(&donor)
    }

    /// Whether any has not.
    pub fn expects_reports(&self) -> bool {
        !self.expected.report.is_empty()
    }

    /// Whether a donor that is expected has not told yet all that it holds.
    pub fn expects_listing(&self, donor: DonorId) -> bool {
        self.expected.listing.contains(&donor)
    }

    /// Whether what an expected donor holds is not known yet.
    pub fn expects_listings(&self) -> bool {
        !self.expected.listing.is_empty()
    }
}
