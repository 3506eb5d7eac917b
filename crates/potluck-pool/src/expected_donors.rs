//! Donors that a manager which has just started waits for.
//!
//! Nothing can be written to a donor, and nothing be read there, before it has reported to this term
//! of the manager. An earlier term heard it until the end, so that it will report within seconds;
//! whoever asks for something that needs it meanwhile is held up instead of refused.

use potluck_core::ids::DonorId;
use std::collections::BTreeSet;

/// Donors of which an earlier term heard until its end.
#[derive(Debug, Default)]
pub struct ExpectedDonors {
    /// Donors that have not registered.
    pub(crate) report: BTreeSet<DonorId>,
    /// Donors that have not told all they hold.
    pub(crate) listing: BTreeSet<DonorId>,
}

impl ExpectedDonors {
    /// The donor has registered with this registration.
    pub fn registered(&mut self, donor: DonorId) {
        self.report.remove(&donor);
    }

    /// Notes that the inventory of the donor was compared.
    pub fn compared(&mut self, donor: DonorId) {
        self.listing.remove(&donor);
    }

    /// The donor is of the pool no more.
    pub fn forget(&mut self, donor: DonorId) {
        self.report.remove(&donor);
        self.listing.remove(&donor);
    }
}
