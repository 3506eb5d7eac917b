//! Probation: a donor that is not trusted any more is tested before it is trusted again.

use super::Pool;
use crate::complaints::{Inquiring, OnProbation};
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_core::size::count;
use potluck_wire::control::Holding;
use std::time::Duration;

/// The time between two tests of a donor that the manager did not reach.
const AGAIN_AFTER: Duration = Duration::from_secs(15);

impl Pool {
    /// Begins a donor's probation: it may be trusted again when each chunk of `sample` proves right. Earlier
    /// complaints are settled.
    pub fn try_again(&mut self, donor: DonorId, why: String, sample: Vec<Holding>) {
        self.settle_complaints(donor);
        let (of, next) = (sample.len(), Tick::ZERO);
        let probation = OnProbation { why, of, left: sample, next, wrong: None };
        self.complaints.probations.insert(donor, probation);
        self.tell_of_probation(donor);
    }

    fn tell_of_probation(&mut self, donor: DonorId) {
        let Some(probation) = self.complaints.probations.get(&donor) else { return };
        let right = probation.of - probation.left.len();
        let told = format!(
            "{}; it is being tested: the manager found {right} of {} right",
            probation.why,
            count(probation.of as u64, "chunk")
        );
        if let Some(donor) = self.donors.get_mut(donor) {
            donor.record.quarantined = Some(told);
        }
    }

    /// Adds the tests that are due to the steps to take, and the verdicts that are known: at the first chunk that is
    /// wrong or missing, or when all were right.
    pub(super) fn test(&self, now: Tick, due: &mut Inquiring) {
        for (donor, OnProbation { left, next, wrong, .. }) in &self.complaints.probations {
            if let Some(chunk) = wrong {
                let why =
                    format!("when it was tested, it sent other bytes of chunk {chunk}, or none");
                due.lies.push((*donor, why));
            } else if let Some(copy) = left.last() {
                if *next <= now && self.donors.is_live(*donor, now, &self.limits) {
                    due.looks.push((*donor, *copy));
                }
            } else {
                due.right.push(*donor);
            }
        }
    }

    /// Notes what the manager got of a chunk of a donor on probation. Returns whether the donor is on probation.
    pub(super) fn tested(
        &mut self,
        donor: DonorId,
        chunk: &ChunkName,
        right: Option<bool>,
        now: Tick,
    ) -> bool {
        let Some(probation) = self.complaints.probations.get_mut(&donor) else { return false };
        match right {
            Some(true) => probation.left.retain(|copy| copy.name != *chunk),
            Some(false) => probation.wrong = Some(*chunk),
            // This says more of the network.
            None => probation.next = now + AGAIN_AFTER,
        }
        self.tell_of_probation(donor);
        true
    }
}
