//! Donors that a manager which has just started waits for.
//!
//! Nothing can be written to a donor, and nothing be read there, before it has reported to this term
//! of the manager. A donor that an earlier term heard until its end will report within seconds: calls
//! that need it meanwhile are held up instead of refused.

use potluck_core::ids::DonorId;
use std::collections::BTreeSet;

/// The donors that an earlier term of the manager heard until its end, or that registered with it just before.
#[derive(Debug, Default)]
pub struct ExpectedDonors {
    /// The expected donors that have not registered yet.
    pub(crate) report: BTreeSet<DonorId>,
    /// The expected donors that have not listed all they hold yet.
    pub(crate) listing: BTreeSet<DonorId>,
}

impl ExpectedDonors {
    /// Notes that a donor has registered.
    pub fn registered(&mut self, donor: DonorId) {
        self.report.remove(&donor);
    }

    /// Notes that the inventory of the donor was compared.
    pub fn compared(&mut self, donor: DonorId) {
        self.listing.remove(&donor);
    }

    /// Forgets a donor that is no longer in the pool.
    pub fn forget(&mut self, donor: DonorId) {
        self.report.remove(&donor);
        self.listing.remove(&donor);
    }
}
