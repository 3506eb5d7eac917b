//! Orders, carried out one by one beside everything else. Deletions are done as fast as the disk
//! allows, for an owner may wait for the room; looks at chunks, which read them whole, wait for
//! everything else on the machine and hold up no deletion.

use crate::reclaim::Buried;
use crate::scrub::on_idle_thread;
use crate::store::Store;
use potluck_core::chunk::ChunkName;
use potluck_wire::control::Order;
use potluck_wire::env::Env;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;

/// Orders of each kind waiting at most; the manager repeats what is not done.
const MOST: usize = 65_536;
/// Orders done per hop to another thread.
const AT_ONCE: usize = 32;
/// The same of looks at chunks: some ten megabytes.
const LOOKS_AT_ONCE: usize = 4;

/// Orders that wait to be carried out.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    waiting: Mutex<Waiting>,
    more: Notify,
    more_looks: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    deletions: VecDeque<Order>,
    looks: VecDeque<Order>,
    /// What is in the queues or being done: the manager repeats itself each second.
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

impl Waiting {
    fn queue(&mut self, verb: Verb) -> &mut VecDeque<Order> {
        match verb {
            Verb::Delete => &mut self.deletions,
            Verb::Verify => &mut self.looks,
        }
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
            if waiting.queue(key.0).len() < MOST && waiting.known.insert(key) {
                waiting.queue(key.0).push_back(order);
            }
        }
        self.more.notify_one();
        self.more_looks.notify_one();
    }

    /// Carries out orders until dropped.
    pub async fn obey_for_ever(&self, store: Arc<Store>, env: Env) {
        tokio::join!(self.delete_for_ever(&store, &env), self.look_for_ever(&store, &env));
    }

    async fn delete_for_ever(&self, store: &Arc<Store>, env: &Env) {
        loop {
            let batch = self.next(Verb::Delete, AT_ONCE);
            if batch.is_empty() {
                self.more.notified().await;
                continue;
            }
            let store = Arc::clone(store);
            self.done(&env.offload.run(move || obeyed(&store, batch)).await);
            tokio::task::yield_now().await;
        }
    }

    async fn look_for_ever(&self, store: &Arc<Store>, env: &Env) {
        loop {
            let batch = self.next(Verb::Verify, LOOKS_AT_ONCE);
            if batch.is_empty() {
                self.more_looks.notified().await;
                continue;
            }
            let (store, keys) = (Arc::clone(store), batch.clone());
            on_idle_thread(env, move || obeyed(&store, batch)).await;
            self.done(&keys);
            // Reads of whole chunks must not keep a single-threaded runtime from everything else.
            tokio::task::yield_now().await;
        }
    }

    fn next(&self, verb: Verb, most: usize) -> Vec<Order> {
        let mut waiting = self.waiting();
        let queue = waiting.queue(verb);
        let count = queue.len().min(most);
        queue.drain(..count).collect()
    }

    fn done(&self, batch: &[Order]) {
        let mut waiting = self.waiting();
        for key in batch.iter().filter_map(key) {
            waiting.known.remove(&key);
        }
    }
}

fn obeyed(store: &Store, batch: Vec<Order>) -> Vec<Order> {
    batch.iter().for_each(|order| obey(store, order));
    batch
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

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::ids::Incarnation;

    #[test]
    fn looks_that_wait_hold_up_no_deletion() {
        let orders = Orders::default();
        let name = |number: u64| ChunkName::of(&number.to_be_bytes());
        let looks = (0..MOST as u64 + 9).map(|number| Order::Verify { chunk: name(number) });
        orders.take(looks.collect());
        assert_eq!(orders.waiting().looks.len(), MOST);
        let (chunk, incarnation) = (name(0), Incarnation(1));
        orders.take(vec![Order::Delete { chunk, incarnation, touches: 1 }]);
        assert_eq!(orders.next(Verb::Delete, AT_ONCE).len(), 1);
    }
}
