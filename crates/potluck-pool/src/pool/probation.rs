//! Probation: a donor that is not trusted any more is tested before it is trusted again.

use super::Pool;
use crate::running_probations::{ProbationResult, RunningProbation};
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId};
use potluck_core::size::count;
use potluck_wire::control::{TaskFault, TaskOutcome};
use std::time::Duration;

/// The time for which a test may go unanswered before another donor is asked for it.
const ANOTHER_AFTER: Duration = Duration::from_secs(15);

impl Pool {
    /// Begins a donor's probation: it may be trusted again when each chunk of `sample` proves right. Earlier
    /// complaints are settled.
    pub fn try_again(&mut self, donor: DonorId, why: String, sample: Vec<(ChunkName, u32)>) {
        self.settle_complaints(donor);
        let of = sample.len();
        let left = sample.into_iter().map(|(name, len)| (name, (len, None))).collect();
        self.probation.0.insert(donor, RunningProbation { why, of, left });
        self.tell_of_probation(donor);
    }

    fn tell_of_probation(&mut self, donor: DonorId) {
        let Some(probation) = self.probation.0.get(&donor) else { return };
        let right = probation.of - probation.left.len();
        let told = format!(
            "{}; it is being tested: other donors found {right} of {} right",
            probation.why,
            count(probation.of as u64, "chunk")
        );
        if let Some(donor) = self.donors.get_mut(donor) {
            donor.record.quarantined = Some(told);
        }
    }

    /// Ends a probation without a verdict.
    pub(super) fn end_probation(&mut self, donor: DonorId) {
        self.probation.0.remove(&donor);
    }

    /// Returns the tests that are due, each with the suspect donor, the chunk and its stored bytes. They count as
    /// asked.
    pub fn due_tests(&mut self, now: Tick) -> Vec<(DonorId, ChunkName, u32)> {
        let mut due = Vec::new();
        for (donor, probation) in &mut self.probation.0 {
            if !self.donors.is_live(*donor, now, &self.limits) {
                continue;
            }
            for (chunk, (len, asked)) in &mut probation.left {
                if asked.is_none_or(|at| now.saturating_sub(at) >= ANOTHER_AFTER) {
                    *asked = Some(now);
                    due.push((*donor, *chunk, *len));
                }
            }
        }
        due
    }

    /// Returns the live donors whose word on `suspect` is taken.
    pub fn testers(&self, suspect: DonorId, now: Tick) -> Vec<DonorId> {
        let trusted = |id: DonorId| {
            let in_quarantine =
                self.donors.get(id).is_none_or(|at| at.record.quarantined.is_some());
            !in_quarantine && !self.is_unreliable(MemberId(id.0), now)
        };
        let live = self.live_donors(now).into_iter();
        live.filter(|id| *id != suspect && trusted(*id)).collect()
    }

    /// Notes whether another donor could fetch a chunk from `suspect`. Returns the result of the probation once it is
    /// known: at the first chunk that is wrong or missing, or when all were right.
    pub fn tested(
        &mut self,
        suspect: DonorId,
        chunk: &ChunkName,
        outcome: &TaskOutcome,
    ) -> Option<ProbationResult> {
        let probation = self.probation.0.get_mut(&suspect)?;
        if !probation.left.contains_key(chunk) {
            return None;
        }
        let found = match outcome {
            TaskOutcome::Done => {
                probation.left.remove(chunk);
                let verdict = probation.left.is_empty().then_some(ProbationResult::Right);
                self.tell_of_probation(suspect);
                return verdict;
            }
            TaskOutcome::Failed { why: TaskFault::SourceWrong, .. } => "other bytes of",
            TaskOutcome::Failed { why: TaskFault::SourceMissing, .. } => "nothing of",
            // Such an answer says more of the tester or the network, so another donor is asked.
            _ => return None,
        };
        Some(ProbationResult::Wrong(format!("when it was tested, it sent {found} chunk {chunk}")))
    }
}
