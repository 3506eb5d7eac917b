//! Places for connections: a full room takes a place from the holder that has most of them, and never turns a newcomer
//! away.
//!
//! A server that hangs up on newcomers when it is full can be filled by one peer, and then serves
//! nobody else. Here the holder with the most places gives up the one that it has held longest.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::watch;

/// The most strangers that a manager serves at once: they ask for little, and each costs tens of kilobytes.
pub const STRANGERS_OF_A_MANAGER: usize = 128;
/// The most peers at a donor at once that have proved nothing yet.
pub const STRANGERS_OF_A_DONOR: usize = 512;

/// The part of a peer's address that one machine cannot choose freely: all of an IPv4 address, the
/// first 64 bits of an IPv6 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerNetwork(u64);

impl From<SocketAddr> for PeerNetwork {
    fn from(address: SocketAddr) -> Self {
        // Peers have no IPv6 address whose first 32 bits are all zero, except that of the loopback, and no IPv4 address
        // 0.0.0.0. So the two kinds do not meet.
        match address.ip().to_canonical() {
            IpAddr::V4(ip) => Self(u64::from(ip.to_bits())),
            IpAddr::V6(ip) => Self((ip.to_bits() >> 64) as u64),
        }
    }
}

/// A number of places that holders of kind `K` (addresses, members) share.
#[derive(Debug)]
pub struct SharedRoom<K> {
    limit: usize,
    taken: Mutex<Taken<K>>,
    count: watch::Sender<usize>,
}

#[derive(Debug)]
struct Taken<K> {
    next: u64,
    /// The places of each holder in the order in which they were taken.
    by_holder: BTreeMap<K, BTreeMap<u64, watch::Sender<bool>>>,
    count: usize,
}

impl<K: Copy + Ord> SharedRoom<K> {
    /// Makes a room of `limit` places, at least one.
    pub fn new(limit: usize) -> Arc<Self> {
        let taken = Taken { next: 0, by_holder: BTreeMap::new(), count: 0 };
        let (taken, count) = (Mutex::new(taken), watch::Sender::new(0));
        Arc::new(Self { limit: limit.max(1), taken, count })
    }

    fn taken(&self) -> MutexGuard<'_, Taken<K>> {
        self.taken.lock().expect("no holder panics")
    }

    /// Takes a place for `holder`. Where none is left, the holder with the most places loses its
    /// oldest one; of several such holders it is the one whose oldest place is the oldest.
    pub fn enter(self: &Arc<Self>, holder: K) -> AdmittedPlace<K> {
        let mut taken = self.taken();
        if taken.count >= self.limit {
            taken.evict();
        }
        let number = taken.next;
        taken.next += 1;
        taken.count += 1;
        let lost = watch::Sender::new(false);
        let told = lost.subscribe();
        taken.by_holder.entry(holder).or_default().insert(number, lost);
        self.count.send_replace(taken.count);
        AdmittedPlace { room: Arc::clone(self), holder, number, evicted: told }
    }

    /// Returns the number of places that are taken.
    pub fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits until no place is taken.
    pub async fn empty(&self) {
        // An error would mean that the sender, which is here, is gone.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl<K: Copy + Ord> Taken<K> {
    fn evict(&mut self) {
        let most = self.by_holder.iter().max_by_key(|(_, places)| {
            let oldest = places.keys().next().copied();
            (places.len(), std::cmp::Reverse(oldest))
        });
        let Some((&holder, places)) = most else { return };
        let Some(&oldest) = places.keys().next() else { return };
        if let Some(lost) = self.remove(holder, oldest) {
            lost.send_replace(true);
        }
    }

    /// Frees a place if it is still taken, and returns the sender that tells its owner.
    fn remove(&mut self, holder: K, number: u64) -> Option<watch::Sender<bool>> {
        let places = self.by_holder.get_mut(&holder)?;
        let place = places.remove(&number)?;
        self.count -= 1;
        if places.is_empty() {
            self.by_holder.remove(&holder);
        }
        Some(place)
    }
}

/// A place in a [`SharedRoom`], free again when it is dropped.
#[derive(Debug)]
pub struct AdmittedPlace<K: Copy + Ord> {
    room: Arc<SharedRoom<K>>,
    holder: K,
    number: u64,
    evicted: watch::Receiver<bool>,
}

impl<K: Copy + Ord> AdmittedPlace<K> {
    /// Waits until the place was given to somebody else; the holder ought to leave then.
    pub async fn evicted(&self) {
        // The sender ends without a word only when the place itself is dropped.
        let _ = self.evicted.clone().wait_for(|evicted| *evicted).await;
    }
}

impl<K: Copy + Ord> Drop for AdmittedPlace<K> {
    fn drop(&mut self) {
        let mut taken = self.room.taken();
        taken.remove(self.holder, self.number);
        self.room.count.send_replace(taken.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn is_evicted(place: &AdmittedPlace<u8>) -> bool {
        place.evicted().now_or_never().is_some()
    }

    #[test]
    fn a_full_room_takes_the_oldest_place_of_the_holder_with_most() {
        let room = SharedRoom::new(4);
        let one = room.enter(1);
        let many: Vec<_> = (0..3).map(|_| room.enter(2)).collect();
        let newcomer = room.enter(3);
        assert!(
            is_evicted(&many[0])
                && !is_evicted(&many[1])
                && !is_evicted(&one)
                && !is_evicted(&newcomer)
        );
        assert_eq!(room.count(), 4);
        drop(many);
        drop((one, newcomer));
        assert_eq!(room.count(), 0);
        assert!(room.empty().now_or_never().is_some());
    }

    #[test]
    fn a_crowd_of_one_address_never_costs_another_its_place() {
        let room = SharedRoom::new(8);
        let other = room.enter(1);
        let crowd: Vec<_> = (0..1000).map(|_| room.enter(2)).collect();
        assert!(!is_evicted(&other));
        assert_eq!(crowd.iter().filter(|place| !is_evicted(place)).count(), 7);
        assert!(!is_evicted(crowd.last().expect("a crowd")), "the newest stays");
    }

    #[test]
    fn an_ipv6_network_is_one_origin() {
        let origin =
            |text: &str| PeerNetwork::from(text.parse::<SocketAddr>().expect("an address"));
        assert_eq!(origin("[2001:db8::1]:1"), origin("[2001:db8::ffff:2]:9"));
        assert_ne!(origin("[2001:db8::1]:1"), origin("[2001:db8:0:1::1]:1"));
        assert_eq!(origin("[::ffff:10.0.0.1]:1"), origin("10.0.0.1:2"));
        assert_ne!(origin("10.0.0.1:1"), origin("10.0.0.2:1"));
    }
}
