//! The failures of tasks that the manager gave.

use crate::store::{NotPlaced, StoreRefusal};
use potluck_core::ids::DonorId;
use potluck_wire::control::{TaskFault, TaskOutcome};

/// The failure of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskFailure {
    /// The reason why the task was not carried out.
    pub why: TaskFault,
    /// The donor that was at fault; `None` if it was this one.
    pub donor: Option<DonorId>,
}

impl TaskFailure {
    /// Makes a failure that is the fault of another donor.
    pub fn of(donor: DonorId, why: TaskFault) -> Self {
        Self { why, donor: Some(donor) }
    }

    /// Makes a failure that is this donor's own fault.
    pub fn here(why: TaskFault) -> Self {
        Self { why, donor: None }
    }

    /// Returns the fault that the manager must rather hear of: wrong bytes of a source come before a missing source,
    /// and that before all others; of equals, `self`.
    pub fn or_worse(self, other: Self) -> Self {
        let rank = |fault: &Self| match fault.why {
            TaskFault::SourceWrong => 2,
            TaskFault::SourceMissing => 1,
            _ => 0,
        };
        if rank(&other) > rank(&self) { other } else { self }
    }
}

impl From<StoreRefusal> for TaskFailure {
    fn from(refusal: StoreRefusal) -> Self {
        Self::here(match refusal {
            StoreRefusal::Full => TaskFault::Full,
            StoreRefusal::Disk => TaskFault::Disk,
            StoreRefusal::Lost => TaskFault::NotHere,
        })
    }
}

impl From<TaskFailure> for TaskOutcome {
    fn from(fault: TaskFailure) -> Self {
        Self::Failed { why: fault.why, donor: fault.donor }
    }
}

/// Returns the failure of a task whose chunk was not placed: it was fetched from `donor`, or computed here if that is
/// `None`.
pub(crate) fn not_placed(why: NotPlaced, donor: Option<DonorId>) -> TaskFailure {
    match (why, donor) {
        (NotPlaced::Refused(refusal), _) => refusal.into(),
        (NotPlaced::Mismatch, Some(donor)) => TaskFailure::of(donor, TaskFault::SourceWrong),
        (NotPlaced::Mismatch, None) => TaskFailure::here(TaskFault::WrongResult),
    }
}
