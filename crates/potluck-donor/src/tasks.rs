//! The tasks of the manager: each is carried out once, however often the manager repeats it, and its result is sent in
//! heartbeats until one of them is answered.
//!
//! Each kind of task has its own queue, so that a long task holds up none of another kind. The tasks of a kind are
//! begun in the order in which they came.

use crate::copy::{self, NewCopy};
use crate::log_blocks;
use crate::rebuild::{self, RebuiltGroup};
use crate::service::Service;
use crate::task_failure::TaskFailure;
use potluck_wire::control::{Task, TaskFault, TaskOutcome, TaskResult, Work};
use potluck_wire::packed::Packed;
use std::collections::{BTreeSet, VecDeque};
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};

/// The most tasks that may be unanswered at once. The manager repeats a task that was not taken.
const MOST: usize = 4096;
/// The most results in one heartbeat.
const BATCH: usize = 1024;

/// The tasks whose results the manager does not have yet.
pub(crate) struct TaskWorker {
    /// The tasks that wait or are carried out. A task that is cut off because the donor ends has no result.
    running: JoinSet<Option<TaskResult>>,
    /// The results that the manager has not confirmed, the oldest first.
    results: VecDeque<TaskResult>,
    /// The numbers of all tasks in `running` and `results`, which are not taken again.
    known: BTreeSet<u64>,
    queues: Queues,
}

/// The queues of all kinds of tasks.
struct Queues {
    /// The queue of tasks that fetch one chunk from another donor.
    fetch: Queue,
    /// The queue of tasks that fetch chunks of a group from other donors and compute further ones. Such a task needs
    /// memory in proportion to the width of its code.
    code: Queue,
    /// The queue of tasks that begin a scrub or list chunks of this donor.
    inspect: Queue,
}

/// The waiting tasks of one kind, the oldest first.
struct Queue {
    /// The permits for tasks of this kind that are carried out at once.
    permits: Arc<Semaphore>,
    waiting: Arc<Mutex<VecDeque<Task>>>,
}

impl Queues {
    fn of(&self, work: &Work) -> &Queue {
        match work {
            Work::Copy { .. } => &self.fetch,
            Work::Rebuild { .. } | Work::Encode { .. } => &self.code,
            Work::Scrub { .. } | Work::Describe => &self.inspect,
        }
    }
}

impl Queue {
    fn new(at_once: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(at_once)), waiting: Arc::default() }
    }

    /// Puts a task behind the others. The future waits for a permit and then returns the oldest waiting task, which
    /// need not be this one: a runtime of several threads polls these futures in any order.
    fn enter(
        &self,
        task: Task,
    ) -> impl Future<Output = Option<(Task, OwnedSemaphorePermit)>> + use<> {
        let (permits, waiting) = (Arc::clone(&self.permits), Arc::clone(&self.waiting));
        waiting.lock().expect("no panic holds it").push_back(task);
        async move {
            let permit = permits.acquire_owned().await.ok()?;
            let next = waiting.lock().expect("no panic holds it").pop_front()?;
            Some((next, permit))
        }
    }

    /// Empties the queue; a future that still waits for a permit then finds no task, even if one comes later.
    fn clear(&mut self) {
        std::mem::take(&mut self.waiting).lock().expect("no panic holds it").clear();
    }
}

impl Default for TaskWorker {
    fn default() -> Self {
        Self {
            running: JoinSet::new(),
            results: VecDeque::new(),
            known: BTreeSet::new(),
            queues: Queues { fetch: Queue::new(4), code: Queue::new(1), inspect: Queue::new(1) },
        }
    }
}

impl TaskWorker {
    /// Takes a task to be carried out, unless it is known or too many are.
    pub fn take(&mut self, service: &Arc<Service>, task: Task) {
        if self.known.len() >= MOST || !self.known.insert(task.number) {
            return;
        }
        let (service, turn) = (Arc::clone(service), self.queues.of(&task.work).enter(task));
        self.running.spawn(async move {
            let (Task { number, work }, permit) = turn.await?;
            let worker = Arc::clone(&service);
            // Boxed only now: thousands may wait, and few are carried out.
            let carry_out = Box::pin(async move {
                let _permit = permit;
                let outcome = outcome(number, carry_out(&worker, work)).await;
                TaskResult { task: number, outcome }
            });
            let closing = Arc::clone(&service);
            let result = service.run_blocking(carry_out).await;
            // Nobody hears the result of a task that is cut off because the donor shuts down. Where its owner has it do
            // nothing, the manager learns that another donor must do it.
            let outcome = TaskOutcome::from(TaskFailure::here(TaskFault::NotHere));
            let cut_off = || (!closing.closing()).then_some(TaskResult { task: number, outcome });
            result.or_else(cut_off)
        });
    }

    /// Forgets all tasks and results, for another manager takes charge and did not give them.
    pub fn forget(&mut self) {
        self.running = JoinSet::new();
        let Queues { fetch, code, inspect } = &mut self.queues;
        [fetch, code, inspect].into_iter().for_each(Queue::clear);
        self.results.clear();
        self.known.clear();
    }

    /// Returns the oldest results, for a heartbeat; they are kept until [`TaskWorker::confirm`].
    pub fn results(&mut self) -> Vec<TaskResult> {
        while let Some(ended) = self.running.try_join_next() {
            self.ended(ended);
        }
        self.results.iter().take(BATCH).cloned().collect()
    }

    /// Notes that the manager has the oldest `count` results, and does not repeat their tasks.
    pub fn confirm(&mut self, count: usize) {
        for result in self.results.drain(..count) {
            self.known.remove(&result.task);
        }
    }

    /// Waits until there are results.
    pub async fn some_answered(&mut self) {
        while self.results.is_empty() {
            match self.running.join_next().await {
                Some(ended) => self.ended(ended),
                None => pending().await,
            }
        }
    }

    fn ended(&mut self, ended: Result<Option<TaskResult>, JoinError>) {
        self.results.extend(ended.ok().flatten());
    }
}

/// Returns the outcome of a task. One that panics has failed, and is answered like any other: the manager
/// has another donor do it, and its number is not kept for ever.
async fn outcome(
    number: u64,
    work: impl Future<Output = Result<TaskOutcome, TaskFailure>>,
) -> TaskOutcome {
    let mut work = pin!(work);
    let ended = poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        polled.unwrap_or_else(|_| {
            tracing::error!(number, "a task of the manager panicked; this is a bug in Potluck");
            Poll::Ready(Err(TaskFailure::here(TaskFault::Panicked)))
        })
    });
    ended.await.unwrap_or_else(TaskOutcome::from)
}

async fn carry_out(service: &Service, work: Work) -> Result<TaskOutcome, TaskFailure> {
    match work {
        Work::Copy { chunk, len, ack, kind, from } => {
            copy::copy(service, &NewCopy { chunk, len, ack, kind }, &from).await?;
        }
        Work::Rebuild { chunk, len, ack, kind, ec, position, data, shards } => {
            let wanted = NewCopy { chunk, len, ack, kind };
            let group = RebuiltGroup { ec, data: data.into(), shards };
            rebuild::rebuild(service, &wanted, position.into(), group).await?;
        }
        Work::Encode { ec, ack, shards } => {
            let group = RebuiltGroup { ec, data: shards.len(), shards };
            let parity = Packed(rebuild::encode(service, ack, group).await?);
            return Ok(TaskOutcome::Encoded { parity });
        }
        Work::Describe => return log_blocks::describe(service).await,
        Work::Scrub { rate } => service.scrub.hurry(rate),
    }
    Ok(TaskOutcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_of_a_kind_are_begun_in_the_order_in_which_they_came() {
        let queue = Queue::new(1);
        let task = |number| Task { number, work: Work::Describe };
        let (one, other) = (queue.enter(task(1)), queue.enter(task(2)));
        let (first, permit) = other.await.expect("a task");
        assert_eq!(first.number, 1, "whoever is polled first");
        drop(permit);
        let (second, _permit) = one.await.expect("a task");
        assert_eq!(second.number, 2);
    }

    #[tokio::test]
    async fn tasks_waiting_for_an_earlier_manager_are_dropped() {
        let mut queue = Queue::new(1);
        let before = queue.enter(Task { number: 1, work: Work::Describe });
        queue.clear();
        let after = queue.enter(Task { number: 1, work: Work::Scrub { rate: 1 } });
        assert!(before.await.is_none());
        assert!(matches!(after.await, Some((Task { work: Work::Scrub { .. }, .. }, _))));
    }

    #[tokio::test]
    async fn a_task_that_panics_is_answered_as_failed() {
        let panics = async { if true { panic!("on purpose") } else { Ok(TaskOutcome::Done) } };
        let failed = TaskOutcome::Failed { why: TaskFault::Panicked, donor: None };
        assert_eq!(outcome(1, panics).await, failed);
        assert_eq!(outcome(2, async { Ok(TaskOutcome::Done) }).await, TaskOutcome::Done);
    }
}
