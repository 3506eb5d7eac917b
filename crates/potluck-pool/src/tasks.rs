//! The tasks that donors were asked to do and have not answered: to make or compute something.

use crate::redundancy::Purpose;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_wire::control::{Task, Work};
use std::collections::BTreeMap;
use std::time::Duration;

/// The time for which a donor may leave a task and all earlier ones unanswered before the task counts as lost; it is
/// lost too when its donor's incarnation ends. Donors carry out their tasks one after the other, so the time of a task
/// that waits behind others begins anew with each of their answers.
const EXPIRES: Duration = Duration::from_secs(60);

/// The tasks under way, each with its purpose.
#[derive(Debug, Default)]
pub struct AskedTasks {
    last: u64,
    donors: BTreeMap<DonorId, BTreeMap<u64, OpenTask>>,
}

/// A task that is not answered yet.
#[derive(Debug)]
pub struct OpenTask {
    /// The work that the donor is asked to do.
    pub work: Work,
    /// The time at which the task was given, or a task that was given before it was last answered.
    pub since: Tick,
    /// The purpose of the task.
    pub purpose: Purpose,
}

impl AskedTasks {
    /// Numbers tasks after `first` from now on, so that no answer to an earlier term of the manager is taken for one
    /// to this term.
    pub fn begin_at(&mut self, first: u64) {
        self.last = first;
    }

    /// Returns the number of the task that was given last, or the number after which the numbers begin.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Gives a donor work under the next number.
    pub fn give(&mut self, donor: DonorId, now: Tick, purpose: Purpose, work: Work) {
        self.last += 1;
        let open = OpenTask { work, since: now, purpose };
        self.donors.entry(donor).or_default().insert(self.last, open);
    }

    /// Takes out a task that its donor answered. Tasks that the donor was given later have waited for this one, tasks
    /// given before have not: a donor that withholds an answer does not put it off by other answers.
    pub fn take(&mut self, donor: DonorId, number: u64, now: Tick) -> Option<OpenTask> {
        let open = self.donors.get_mut(&donor)?;
        let answered = open.remove(&number)?;
        open.range_mut(number..).for_each(|(_, task)| task.since = now);
        Some(answered)
    }

    /// Forgets all tasks of a donor that will not answer them, and returns them.
    pub fn forget(&mut self, donor: DonorId) -> Vec<OpenTask> {
        self.donors.remove(&donor).unwrap_or_default().into_values().collect()
    }

    /// Takes out the tasks that count as lost, each with its donor.
    pub fn expired(&mut self, now: Tick) -> Vec<(DonorId, OpenTask)> {
        let mut expired = Vec::new();
        for (donor, open) in &mut self.donors {
            let old = open.extract_if(.., |_, task| now.saturating_sub(task.since) >= EXPIRES);
            expired.extend(old.map(|(_, task)| (*donor, task)));
        }
        expired
    }

    /// Returns how many tasks a donor has not answered.
    pub fn count(&self, donor: DonorId) -> usize {
        self.donors.get(&donor).map_or(0, BTreeMap::len)
    }

    /// Returns the tasks that a donor was asked for and has not answered.
    pub fn of(&self, donor: DonorId) -> impl Iterator<Item = &OpenTask> {
        self.donors.get(&donor).into_iter().flat_map(BTreeMap::values)
    }

    /// Returns the tasks that a donor was asked for and has not answered, as they are sent.
    pub fn for_donor(&self, donor: DonorId) -> Vec<Task> {
        let open = self.donors.get(&donor).into_iter().flatten();
        open.map(|(number, open)| Task { number: *number, work: open.work.clone() }).collect()
    }
}
