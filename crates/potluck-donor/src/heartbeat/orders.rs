//! Orders, carried out one by one beside everything else.

use crate::reclaim::Buried;
use crate::store::Store;
use potluck_core::chunk::ChunkName;
use potluck_wire::control::Order;
use potluck_wire::env::Offload;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;

/// Orders waiting at most; the manager repeats what is not done.
const MOST: usize = 65_536;
/// Orders done per hop to another thread.
const AT_ONCE: usize = 32;

/// Orders that wait to be carried out.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    waiting: Mutex<Waiting>,
    more: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    queue: VecDeque<Order>,
    /// What is in the queue or being done: the manager repeats itself each second.
    known: BTreeSet<(Verb, ChunkName)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verb {
    Delete,
    Verify,
}

fn key(order: &Order) -> Option<(Verb, ChunkName)> {
    match order {
        Order::Delete { chunk, .. } => Some((Verb::Delete, *chunk)),
        Order::Verify { chunk } => Some((Verb::Verify, *chunk)),
        _ => None,
    }
}

impl Orders {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no holder panics")
    }

    /// Takes orders to be carried out.
    pub fn take(&self, orders: Vec<Order>) {
        let mut waiting = self.waiting();
        for order in orders {
            let Some(key) = key(&order) else { continue };
            if waiting.queue.len() < MOST && waiting.known.insert(key) {
                waiting.queue.push_back(order);
            }
        }
        self.more.notify_one();
    }

    /// Carries out orders until dropped.
    pub async fn obey_for_ever(&self, store: Arc<Store>, offload: Offload) {
        loop {
            let batch = self.next();
            if batch.is_empty() {
                self.more.notified().await;
                continue;
            }
            let store = Arc::clone(&store);
            let obeyed = offload.run(move || {
                batch.iter().for_each(|order| obey(&store, order));
                batch
            });
            self.done(&obeyed.await);
            // Reads of whole chunks must not keep a single-threaded runtime from everything else.
            tokio::task::yield_now().await;
        }
    }

    fn next(&self) -> Vec<Order> {
        let mut waiting = self.waiting();
        let count = waiting.queue.len().min(AT_ONCE);
        waiting.queue.drain(..count).collect()
    }

    fn done(&self, batch: &[Order]) {
        let mut waiting = self.waiting();
        for key in batch.iter().filter_map(key) {
            waiting.known.remove(&key);
        }
    }
}

fn obey(store: &Store, order: &Order) {
    match order {
        Order::Delete { chunk, incarnation, touches } => {
            match store.bury(chunk, *incarnation, *touches) {
                Buried::Gone => tracing::debug!("deleted chunk {chunk}"),
                refused => tracing::debug!("did not delete chunk {chunk}: {refused:?}"),
            }
        }
        // The verdict is reported by heartbeat; an error was logged, and the order comes again.
        Order::Verify { chunk } => drop(store.verify(chunk)),
        _ => {}
    }
}
