//! Numbered orders: each is carried out once, however often the manager repeats it, and answered
//! in the heartbeats until one of them got through.
//!
//! They wait in lanes, so that a long one holds up none of another sort: chunks that come from
//! other donors, a few at a time; groups that are coded, one at a time, for each takes memory by
//! the width of its code; and what only concerns this store.

use crate::audit;
use crate::copy::{self, Wanted};
use crate::fault::Fault;
use crate::rebuild::{self, Group};
use crate::service::Service;
use potluck_wire::control::{Order, OrderOutcome, OrderResult};
use potluck_wire::env::{Env, Offload};
use potluck_wire::packed::Packed;
use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

/// Orders at once that wait or whose results do; the manager repeats what is not taken.
const MOST: usize = 4096;
/// Answered orders remembered, so that one repeated once too often is not carried out again.
const REMEMBERED: usize = 8192;
/// Results in one heartbeat.
const BATCH: usize = 1024;

/// What can wait for each other.
#[derive(Debug, Clone, Copy)]
enum Lane {
    /// One chunk comes from another donor.
    Fetch,
    /// Chunks of a group come from other donors, and another is made of them.
    Group,
    /// Chunks here are looked at.
    Look,
}

impl Lane {
    const ALL: [Self; 3] = [Self::Fetch, Self::Group, Self::Look];

    /// How many of its orders are carried out at once.
    fn width(self) -> usize {
        match self {
            Self::Fetch => 4,
            Self::Group | Self::Look => 1,
        }
    }

    /// The lane and the number of an order, if it has one.
    fn of(order: &Order) -> Option<(Self, u64)> {
        match order {
            Order::Copy { order, .. } | Order::Probe { order, .. } => Some((Self::Fetch, *order)),
            Order::Rebuild { order, .. } | Order::Encode { order, .. } => {
                Some((Self::Group, *order))
            }
            Order::Audit { order, .. } | Order::Scrub { order, .. } | Order::Describe { order } => {
                Some((Self::Look, *order))
            }
            Order::Delete { .. } | Order::Verify { .. } => None,
        }
    }
}

/// Numbered orders that wait, and results that do.
pub(crate) struct Errands {
    desk: Mutex<Desk>,
    /// A permit for each order that waits in the lane.
    waiting: [Semaphore; Lane::ALL.len()],
    answered: Notify,
}

#[derive(Default)]
struct Desk {
    /// Counts the managers that gave orders: each has numbers of its own.
    managers: u64,
    queues: [VecDeque<Errand>; Lane::ALL.len()],
    /// Numbers that need not be taken again.
    known: BTreeSet<u64>,
    /// Those of them that were answered, the oldest first.
    answered: VecDeque<u64>,
    results: VecDeque<OrderResult>,
}

struct Errand {
    manager: u64,
    number: u64,
    order: Order,
}

impl Default for Errands {
    fn default() -> Self {
        Self {
            desk: Mutex::default(),
            waiting: std::array::from_fn(|_| Semaphore::new(0)),
            answered: Notify::new(),
        }
    }
}

impl Errands {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().expect("no holder panics")
    }

    /// Takes an order to be carried out, if it is a numbered one and news; gives it back if it has
    /// no number.
    pub fn take(&self, order: Order) -> Option<Order> {
        let Some((lane, number)) = Lane::of(&order) else { return Some(order) };
        let mut desk = self.desk();
        let busy = desk.queues.iter().map(VecDeque::len).sum::<usize>() + desk.results.len();
        if busy < MOST && desk.known.insert(number) {
            let manager = desk.managers;
            desk.queues[lane as usize].push_back(Errand { manager, number, order });
            self.waiting[lane as usize].add_permits(1);
        }
        None
    }

    /// Another manager is in charge: the old one's orders and their results mean nothing to it.
    pub fn forget(&self) {
        let mut desk = self.desk();
        *desk = Desk { managers: desk.managers + 1, ..Desk::default() };
    }

    /// The oldest results, for a heartbeat; kept until [`Errands::confirm`].
    pub fn results(&self) -> Vec<OrderResult> {
        self.desk().results.iter().take(BATCH).cloned().collect()
    }

    /// The manager has the oldest `count` results.
    pub fn confirm(&self, count: usize) {
        let mut desk = self.desk();
        let count = count.min(desk.results.len());
        desk.results.drain(..count);
    }

    /// Waits until there are results.
    pub async fn some_answered(&self) {
        while self.desk().results.is_empty() {
            self.answered.notified().await;
        }
    }

    /// Carries out orders until dropped.
    pub async fn run_for_ever(self: Arc<Self>, service: Arc<Service>) {
        let mut workers = JoinSet::new();
        for lane in Lane::ALL {
            for _ in 0..lane.width() {
                workers.spawn(Arc::clone(&self).work(Arc::clone(&service), lane));
            }
        }
        while workers.join_next().await.is_some() {}
        // All ended, for the donor goes down.
        std::future::pending().await
    }

    async fn work(self: Arc<Self>, service: Arc<Service>, lane: Lane) {
        loop {
            let Some(Errand { manager, number, order }) = self.next(lane).await else { continue };
            let task = {
                let service = Arc::clone(&service);
                async move {
                    tokio::select! {
                        outcome = carry_out(&service, order) => Some(outcome),
                        () = service.closed() => None,
                    }
                }
            };
            match beside(&service.env, task).await {
                Some(outcome) => self.answer(manager, OrderResult { order: number, outcome }),
                None => return,
            }
        }
    }

    async fn next(&self, lane: Lane) -> Option<Errand> {
        let permit = self.waiting[lane as usize].acquire().await;
        permit.expect("never closed").forget();
        self.desk().queues[lane as usize].pop_front() // none after they were forgotten
    }

    fn answer(&self, manager: u64, result: OrderResult) {
        let mut desk = self.desk();
        if desk.managers != manager {
            return;
        }
        desk.answered.push_back(result.order);
        if desk.answered.len() > REMEMBERED
            && let Some(oldest) = desk.answered.pop_front()
        {
            desk.known.remove(&oldest);
        }
        desk.results.push_back(result);
        self.answered.notify_one();
    }
}

/// Runs work that waits for the network and, in between, blocks on the disk and hashes.
pub(crate) async fn beside<T: Send + 'static>(
    env: &Env,
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    match env.offload {
        Offload::Inline => work.await,
        Offload::Threads => {
            let runtime = Handle::current();
            env.offload.run(move || runtime.block_on(work)).await
        }
    }
}

async fn carry_out(service: &Service, order: Order) -> OrderOutcome {
    match obey(service, order).await {
        Ok(outcome) => outcome,
        Err(fault) => fault.into(),
    }
}

async fn obey(service: &Service, order: Order) -> Result<OrderOutcome, Fault> {
    match order {
        Order::Copy { chunk, len, ack, kind, from, .. } => {
            copy::copy(service, &Wanted { chunk, len, ack, kind }, &from).await?;
        }
        Order::Probe { chunk, len, from, .. } => {
            copy::probe(service, chunk, len, &from).await?;
        }
        Order::Rebuild { chunk, len, ack, kind, ec, position, data, shards, .. } => {
            let wanted = Wanted { chunk, len, ack, kind };
            let group = Group { ec, data: data.into(), shards };
            rebuild::rebuild(service, &wanted, position.into(), group).await?;
        }
        Order::Encode { ec, ack, shards, .. } => {
            let group = Group { ec, data: shards.len(), shards };
            let parity = Packed(rebuild::encode(service, ack, group).await?);
            return Ok(OrderOutcome::Encoded { parity });
        }
        Order::Audit { chunk, key, offset, len, .. } => {
            let hash = audit::audit(&service.store, &chunk, &key, offset, len)?;
            return Ok(OrderOutcome::Audited { hash });
        }
        Order::Describe { .. } => return audit::describe(service).await,
        Order::Scrub { rate, .. } => service.scrub.hurry(rate),
        Order::Delete { .. } | Order::Verify { .. } => unreachable!("orders without a number"),
    }
    Ok(OrderOutcome::Done)
}
