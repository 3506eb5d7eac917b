//! A manager that has just started expects those donors that an earlier term heard until its end.

use super::Pool;
use crate::expected_donors::ExpectedDonors;
use potluck_core::ids::DonorId;
use std::collections::BTreeSet;
use std::time::Duration;

/// The longest silence of a donor at the end of the earlier term with which it is still waited for.
const HEARD_LATELY: Duration = Duration::from_secs(60);

impl Pool {
    /// Expects those donors that an earlier term of this manager heard until its end, and those that registered with it
    /// so shortly before its end that it did not note when they were heard. A donor that was invited and has never lent
    /// anything is not waited for: it may never come.
    pub fn expect_donors(&mut self) {
        let lately = |silent: Option<Duration>| silent.is_none_or(|silent| silent <= HEARD_LATELY);
        let lent = self.donors.iter().filter(|(_, donor)| !donor.has_never_lent());
        let donors = lent.filter(|(_, donor)| lately(donor.record.silent_before));
        let donors: BTreeSet<DonorId> = donors.map(|(id, _)| id).collect();
        self.expected = ExpectedDonors { report: donors.clone(), listing: donors };
    }

    /// Returns whether a donor that is expected has not registered yet.
    pub fn expects_report(&self, donor: DonorId) -> bool {
        self.expected.report.contains(&donor)
    }

    /// Returns whether any expected donor has not registered yet.
    pub fn expects_reports(&self) -> bool {
        !self.expected.report.is_empty()
    }

    /// Returns whether a donor that is expected has not yet listed all that it holds.
    pub fn expects_listing(&self, donor: DonorId) -> bool {
        self.expected.listing.contains(&donor)
    }

    /// Returns whether any expected donor has not yet listed all that it holds.
    pub fn expects_listings(&self) -> bool {
        !self.expected.listing.is_empty()
    }
}
