//! The times at which leases end unless their holders are heard before.

use potluck_core::clock::Tick;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// Keys, each with the time at which it is over. Keys that are over are found without a look at the others.
#[derive(Debug)]
pub struct Deadlines<K> {
    by_key: HashMap<K, Tick>,
    in_order: BTreeSet<(Tick, K)>,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self { by_key: HashMap::new(), in_order: BTreeSet::new() }
    }
}

impl<K: Clone + Ord + Hash> Deadlines<K> {
    /// Has a key be over at the time `until`, whatever time was set before.
    pub fn set(&mut self, key: K, until: Tick) {
        if let Some(before) = self.by_key.insert(key.clone(), until) {
            self.in_order.remove(&(before, key.clone()));
        }
        self.in_order.insert((until, key));
    }

    /// Forgets a key.
    pub fn remove(&mut self, key: &K) {
        if let Some(before) = self.by_key.remove(key) {
            self.in_order.remove(&(before, key.clone()));
        }
    }

    /// Returns whether a key is there. A key stays until it is taken out, also if it is over.
    pub fn contains(&self, key: &K) -> bool {
        self.by_key.contains_key(key)
    }

    /// Takes out the key that was over first, if any is over at `now`.
    pub fn take_over(&mut self, now: Tick) -> Option<K> {
        let (until, _) = self.in_order.first()?;
        if *until > now {
            return None;
        }
        let (_, key) = self.in_order.pop_first()?;
        self.by_key.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn deadlines_expire_in_order_and_renewed_ones_do_not() {
        let at = |seconds| Tick::default() + Duration::from_secs(seconds);
        let mut deadlines = Deadlines::default();
        deadlines.set('a', at(5));
        deadlines.set('b', at(3));
        deadlines.set('c', at(4));
        deadlines.set('b', at(9));
        deadlines.set('d', at(5));
        deadlines.remove(&'d');
        assert_eq!(deadlines.take_over(at(3)), None);
        assert_eq!(deadlines.take_over(at(5)), Some('c'));
        assert_eq!(deadlines.take_over(at(5)), Some('a'));
        assert_eq!(deadlines.take_over(at(5)), None);
        assert!(deadlines.contains(&'b') && !deadlines.contains(&'d'));
    }
}
