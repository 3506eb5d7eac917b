//! Tasks of the manager: each is carried out once, however often the manager repeats it, and
//! answered in the heartbeats until one of them got through.
//!
//! Tasks of one kind wait for each other and for no others, so that a long one holds up none of
//! another kind.

use crate::audit;
use crate::copy::{self, NewCopy};
use crate::fault::Fault;
use crate::rebuild::{self, Group};
use crate::service::Service;
use potluck_wire::control::{Task, TaskOutcome, TaskResult, Work};
use potluck_wire::packed::Packed;
use std::collections::{BTreeSet, VecDeque};
use std::future::pending;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};

/// Tasks that may be unanswered at once. The manager repeats what was not taken.
const MOST: usize = 4096;
/// Results in one heartbeat.
const BATCH: usize = 1024;

/// Tasks that are not answered yet.
pub(crate) struct Tasks {
    /// Tasks that wait or are carried out. One that the donor's end cuts off has no result.
    running: JoinSet<Option<TaskResult>>,
    /// Results that the manager has not confirmed, the oldest first.
    results: VecDeque<TaskResult>,
    /// The numbers of all these tasks: they need not be taken again.
    known: BTreeSet<u64>,
    limits: Limits,
}

/// How many tasks of each kind are carried out at once.
struct Limits {
    /// One chunk comes from another donor.
    fetch: Arc<Semaphore>,
    /// Chunks of a group come from other donors, and another is made of them. Each such task takes
    /// memory by the width of its code.
    code: Arc<Semaphore>,
    /// Chunks here are read or listed.
    inspect: Arc<Semaphore>,
}

impl Limits {
    fn of(&self, work: &Work) -> Arc<Semaphore> {
        Arc::clone(match work {
            Work::Copy { .. } | Work::Probe { .. } => &self.fetch,
            Work::Rebuild { .. } | Work::Encode { .. } => &self.code,
            Work::Audit { .. } | Work::Scrub { .. } | Work::Describe => &self.inspect,
        })
    }
}

impl Default for Tasks {
    fn default() -> Self {
        let limit = |at_once| Arc::new(Semaphore::new(at_once));
        Self {
            running: JoinSet::new(),
            results: VecDeque::new(),
            known: BTreeSet::new(),
            limits: Limits { fetch: limit(4), code: limit(1), inspect: limit(1) },
        }
    }
}

impl Tasks {
    /// Takes a task to be carried out, unless it is known.
    pub fn take(&mut self, service: &Arc<Service>, Task { number, work }: Task) {
        if self.known.len() >= MOST || !self.known.insert(number) {
            return;
        }
        let (service, limit) = (Arc::clone(service), self.limits.of(&work));
        self.running.spawn(async move {
            let permit = limit.acquire_owned().await.ok()?;
            let worker = Arc::clone(&service);
            // Boxed only now: thousands may wait, and few are carried out.
            let carry_out = Box::pin(async move {
                let _permit = permit;
                let outcome = carry_out(&worker, work).await.unwrap_or_else(TaskOutcome::from);
                TaskResult { task: number, outcome }
            });
            service.run_blocking(carry_out).await
        });
    }

    /// Another manager is in charge: the old one's tasks and their results mean nothing to it.
    pub fn forget(&mut self) {
        self.running = JoinSet::new();
        self.results.clear();
        self.known.clear();
    }

    /// The oldest results, for a heartbeat; kept until [`Tasks::confirm`].
    pub fn results(&mut self) -> Vec<TaskResult> {
        while let Some(ended) = self.running.try_join_next() {
            self.ended(ended);
        }
        self.results.iter().take(BATCH).cloned().collect()
    }

    /// The manager has the oldest `count` results, and does not repeat their tasks.
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
        // One that panicked stays known and unanswered, until the manager gives it up.
        self.results.extend(ended.ok().flatten());
    }
}

async fn carry_out(service: &Service, work: Work) -> Result<TaskOutcome, Fault> {
    match work {
        Work::Copy { chunk, len, ack, kind, from } => {
            copy::copy(service, &NewCopy { chunk, len, ack, kind }, &from).await?;
        }
        Work::Probe { chunk, len, from } => copy::probe(service, chunk, len, &from).await?,
        Work::Rebuild { chunk, len, ack, kind, ec, position, data, shards } => {
            let wanted = NewCopy { chunk, len, ack, kind };
            let group = Group { ec, data: data.into(), shards };
            rebuild::rebuild(service, &wanted, position.into(), group).await?;
        }
        Work::Encode { ec, ack, shards } => {
            let group = Group { ec, data: shards.len(), shards };
            let parity = Packed(rebuild::encode(service, ack, group).await?);
            return Ok(TaskOutcome::Encoded { parity });
        }
        Work::Audit { chunk, key, offset, len } => {
            let hash = audit::audit(&service.store, &chunk, &key, offset, len)?;
            return Ok(TaskOutcome::Audited { hash });
        }
        Work::Describe => return audit::describe(service).await,
        Work::Scrub { rate } => service.scrub.hurry(rate),
    }
    Ok(TaskOutcome::Done)
}
