//! Orders of the manager to delete and to verify chunks. Deletions are done as fast as the disk allows, because an
//! owner may wait for the room. Verifications read whole chunks: they yield to everything else on the machine, and hold
//! up no deletion.

use crate::deletion::Deletion;
use crate::idle_thread::on_idle_thread;
use crate::service::Service;
use crate::store::Store;
use potluck_core::chunk::ChunkName;
use potluck_wire::control::{ChunkOrders, Tombstone};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;

/// The most orders of each kind that wait; the manager repeats orders that are not done.
const MOST: usize = 65_536;
/// The number of chunks that are deleted in one piece of work on another thread.
const DELETED_AT_ONCE: usize = 32;
/// The number of chunks that are verified in one piece of work on another thread: some ten megabytes.
const VERIFIED_AT_ONCE: usize = 4;

/// The chunk orders that are not done yet.
#[derive(Debug, Default)]
pub(crate) struct ChunkOrderQueues {
    delete: Queue<Tombstone>,
    verify: Queue<ChunkName>,
}

/// A queue of orders. An order stays in it until it is done, so that an order that the manager repeats meanwhile is not
/// done twice.
#[derive(Debug)]
struct Queue<T> {
    waiting: Mutex<BTreeSet<T>>,
    more: Notify,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), more: Notify::new() }
    }
}

impl<T: Ord + Clone> Queue<T> {
    fn waiting(&self) -> MutexGuard<'_, BTreeSet<T>> {
        self.waiting.lock().expect("no holder panics")
    }

    fn take(&self, orders: Vec<T>) {
        let mut waiting = self.waiting();
        for order in orders {
            if waiting.len() < MOST {
                waiting.insert(order);
            }
        }
        self.more.notify_one();
    }

    /// Waits until there are orders, and returns some of them.
    async fn batch(&self, most: usize) -> Vec<T> {
        loop {
            let batch: Vec<T> = self.waiting().iter().take(most).cloned().collect();
            if !batch.is_empty() {
                return batch;
            }
            self.more.notified().await;
        }
    }

    async fn done(&self, batch: &[T]) {
        for order in batch {
            self.waiting().remove(order);
        }
        // Work on the disk must not keep a single-threaded runtime from everything else.
        tokio::task::yield_now().await;
    }
}

impl ChunkOrderQueues {
    /// Takes orders to be carried out, as far as the queues have room.
    pub fn take(&self, orders: ChunkOrders) {
        self.delete.take(orders.delete);
        self.verify.take(orders.verify.0);
    }

    /// Carries out orders until the future is dropped.
    pub async fn carry_out_for_ever(&self, service: &Service) {
        tokio::join!(self.delete_for_ever(service), self.verify_for_ever(service));
    }

    async fn delete_for_ever(&self, service: &Service) {
        loop {
            let batch = self.delete.batch(DELETED_AT_ONCE).await;
            service.owner.on().await;
            let (store, orders) = (Arc::clone(&service.store), batch.clone());
            let delete = move || {
                let deleted = orders.iter().filter(|order| delete(&store, order));
                let names: Vec<_> = deleted.map(|order| order.chunk).collect();
                store.tell_deleted(&names);
            };
            service.env.offload.run(delete).await;
            self.delete.done(&batch).await;
        }
    }

    async fn verify_for_ever(&self, service: &Service) {
        loop {
            let batch = self.verify.batch(VERIFIED_AT_ONCE).await;
            service.owner.on().await;
            let (store, chunks) = (Arc::clone(&service.store), batch.clone());
            let owner = Arc::clone(&service.owner);
            let verify = move || {
                for chunk in chunks.iter().take_while(|_| !owner.is_off()) {
                    // A heartbeat reports the result. An error was logged, and the manager repeats the order.
                    let _ = store.verify(chunk);
                }
            };
            on_idle_thread(&service.env, verify).await;
            self.verify.done(&batch).await;
        }
    }
}

/// Carries out a tombstone; returns whether the chunk is not here any more.
fn delete(store: &Store, Tombstone { chunk, incarnation, write_sequence }: &Tombstone) -> bool {
    let outcome = store.delete(chunk, *incarnation, *write_sequence);
    match outcome {
        Deletion::Deleted => tracing::debug!("deleted chunk {chunk}"),
        refused => tracing::debug!("did not delete chunk {chunk}: {refused:?}"),
    }
    outcome == Deletion::Deleted
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::ids::Incarnation;
    use potluck_wire::packed::Packed;

    #[tokio::test]
    async fn verifications_that_wait_hold_up_no_deletion() {
        let orders = ChunkOrderQueues::default();
        let name = |number: u64| ChunkName::of(&number.to_be_bytes());
        let verify = Packed((0..MOST as u64 + 9).map(name).collect());
        orders.take(ChunkOrders { verify, ..ChunkOrders::default() });
        assert_eq!(orders.verify.waiting().len(), MOST);
        let tombstone =
            Tombstone { chunk: name(0), incarnation: Incarnation(1), write_sequence: 1 };
        orders.take(ChunkOrders { delete: vec![tombstone], ..ChunkOrders::default() });
        assert_eq!(orders.delete.batch(DELETED_AT_ONCE).await, [tombstone]);
    }
}
