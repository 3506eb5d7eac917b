//! Donors that a manager which has just started waits for.
//!
//! Nothing can be written to a donor, and nothing be read there, before it has reported to this term
//! of the manager. An earlier term heard it until the end, so that it will report within seconds;
//! whoever asks for something that needs it meanwhile is held up instead of refused.

use super::Pool;
use potluck_core::ids::DonorId;
use std::collections::BTreeSet;
use std::time::Duration;

/// A donor that had been silent for longer when the earlier term ended is not waited for.
const HEARD_LATELY: Duration = Duration::from_secs(60);

/// Donors of which an earlier term heard until its end.
#[derive(Debug, Default)]
pub struct Expected {
    /// Those that have not registered, …
    report: BTreeSet<DonorId>,
    /// … and those that have not told all they hold.
    listing: BTreeSet<DonorId>,
}

impl Expected {
    /// The donor has registered with this registration.
    pub fn registered(&mut self, donor: DonorId) {
        self.report.remove(&donor);
    }

    /// What the donor holds was compared.
    pub fn compared(&mut self, donor: DonorId) {
        self.listing.remove(&donor);
    }

    /// The donor is of the pool no more.
    pub fn forget(&mut self, donor: DonorId) {
        self.report.remove(&donor);
        self.listing.remove(&donor);
    }
}

impl Pool {
    /// Expects those donors that an earlier term of this manager heard until its end.
    pub fn expect_donors(&mut self) {
        let lately = |silent: Option<Duration>| silent.is_none_or(|silent| silent <= HEARD_LATELY);
        let donors = self.donors.iter().filter(|(_, donor)| lately(donor.record.silent_before));
        let donors: BTreeSet<DonorId> = donors.map(|(id, _)| id).collect();
        self.expected = Expected { report: donors.clone(), listing: donors };
    }

    /// Whether a donor that is expected has not reported yet.
    pub fn expects_report(&self, donor: DonorId) -> bool {
        self.expected.report.contains(&donor)
    }

    /// Whether any has not.
    pub fn expects_reports(&self) -> bool {
        !self.expected.report.is_empty()
    }

    /// Whether what an expected donor holds is not known yet.
    pub fn expects_listings(&self) -> bool {
        !self.expected.listing.is_empty()
    }
}
