//! Turns of many peers on few threads.
//!
//! A donor answers a request on a thread that blocks in the kernel, and a manager reads its catalog on one. There are
//! only so many of these threads: a connection has one for a turn, and waits without one in between. Turns are given in
//! the order in which they were asked for, but no peer has all at once, so that a peer that is slow on purpose, on
//! however many connections, leaves some to others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Shares out a fixed number of turns among peers of kind `K`.
#[derive(Debug)]
pub struct Turns<K> {
    all: Arc<Semaphore>,
    limit_each: usize,
    /// The turns that each peer may still have. Peers that have none and want none are forgotten when a new peer comes.
    each: Mutex<BTreeMap<K, Weak<Semaphore>>>,
    waiting: AtomicUsize,
}

/// The right to a thread, until it is dropped.
#[derive(Debug)]
pub struct ServingTurn {
    // Fields are dropped in this order: the common turn is given back first, so that the peer's next connection can ask
    // for it then.
    _of_all: OwnedSemaphorePermit,
    _of_peer: OwnedSemaphorePermit,
}

impl<K: Copy + Ord> Turns<K> {
    /// Makes room for `limit` turns at once, of which one peer may have `limit_each`.
    pub fn new(limit: usize, limit_each: usize) -> Self {
        let (all, each) = (Arc::new(Semaphore::new(limit)), Mutex::default());
        Self { all, limit_each, each, waiting: AtomicUsize::new(0) }
    }

    /// Waits for a turn.
    pub async fn turn(&self, peer: K) -> ServingTurn {
        let _waiting = Waiting::begin(&self.waiting);
        let own = self.of_peer(peer);
        // A connection waits among the peer's own first, so that the peer never stands in the common line more often
        // than it can be served.
        let own = own.acquire_owned().await.expect("it is never closed");
        let all = Arc::clone(&self.all).acquire_owned().await.expect("it is never closed");
        ServingTurn { _of_all: all, _of_peer: own }
    }

    /// Returns whether a connection waits for a turn.
    pub fn wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    fn of_peer(&self, peer: K) -> Arc<Semaphore> {
        let mut each = self.each.lock().expect("no holder panics");
        if let Some(known) = each.get(&peer).and_then(Weak::upgrade) {
            return known;
        }
        each.retain(|_, known| known.strong_count() > 0);
        let own = Arc::new(Semaphore::new(self.limit_each));
        each.insert(peer, Arc::downgrade(&own));
        own
    }
}

/// A count of one connection that waits, until it is dropped.
struct Waiting<'t>(&'t AtomicUsize);

impl<'t> Waiting<'t> {
    fn begin(count: &'t AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn at_once<T>(turn: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(Duration::ZERO, turn).await.ok()
    }

    #[tokio::test]
    async fn no_peer_has_all_turns_and_none_waits_for_ever() {
        let turns = Turns::new(4, 3);
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(at_once(turns.turn(1)).await.expect("a turn"));
        }
        let mut fourth = Box::pin(turns.turn(1));
        assert!(at_once(&mut fourth).await.is_none() && turns.wanted());
        let other = at_once(turns.turn(2)).await.expect("another peer's turn");
        held.pop();
        held.push(at_once(&mut fourth).await.expect("it was next"));
        drop(fourth);
        assert!(!turns.wanted());
        drop((held, other));
        assert!(at_once(turns.turn(3)).await.is_some());
        assert_eq!(turns.each.lock().expect("no panic").len(), 1, "peers that left are forgotten");
    }
}
