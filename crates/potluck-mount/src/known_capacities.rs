//! The capacities of directories that the manager was asked for a moment ago.

use potluck_core::clock::Tick;
use potluck_core::path::PoolPath;
use std::collections::BTreeMap;
use std::time::Duration;

/// The time for which a capacity is not asked for again, unless this mount changes what it holds.
const KNOWN_FOR: Duration = Duration::from_secs(1);
/// The most directories whose capacities are kept.
const MOST_KNOWN: usize = 64;

/// The bytes of files that the pool can hold by its policy, in all and beside what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// The bytes that could be stored in an empty pool.
    pub total: u64,
    /// The bytes that can still be stored.
    pub free: u64,
}

/// The capacities that were asked for last, by directory.
#[derive(Debug, Default)]
pub struct KnownCapacities {
    of_dirs: BTreeMap<PoolPath, (Capacity, Tick)>,
    /// The number of times that this mount changed what the pool holds.
    changes: u64,
}

impl KnownCapacities {
    /// Returns the number of times that this mount changed what the pool holds.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the capacity of a directory, if it was asked for less than [`KNOWN_FOR`] ago.
    pub fn get(&mut self, dir: &PoolPath, now: Tick) -> Option<Capacity> {
        self.of_dirs.retain(|_, (_, asked)| now.saturating_sub(*asked) < KNOWN_FOR);
        self.of_dirs.get(dir).map(|(capacity, _)| *capacity)
    }

    /// Keeps a capacity that was asked for at this moment, unless there were changes since there were so many.
    pub fn put(&mut self, dir: PoolPath, capacity: Capacity, asked: Tick, changes: u64) {
        if self.changes == changes && self.of_dirs.len() < MOST_KNOWN {
            self.of_dirs.insert(dir, (capacity, asked));
        }
    }

    /// Forgets all, because this mount changed what the pool holds.
    pub fn changed(&mut self) {
        self.changes += 1;
        self.of_dirs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statfs_is_cached_for_a_second() {
        let capacity = Capacity { total: 100, free: 50 };
        let dir =
            |number: usize| -> PoolPath { format!("pot://lab/{number}").parse().expect("a path") };
        let (then, later) = (Tick::from_secs(1), Tick::from_secs(2));
        let mut known = KnownCapacities::default();
        known.put(dir(1), capacity, then, 0);
        assert_eq!((known.get(&dir(1), then), known.get(&dir(2), then)), (Some(capacity), None));
        assert_eq!(known.get(&dir(1), later), None);
        known.put(dir(1), capacity, later, 0);
        known.changed();
        known.put(dir(2), capacity, later, 0);
        assert_eq!((known.get(&dir(1), later), known.get(&dir(2), later)), (None, None));
        (0..2 * MOST_KNOWN).for_each(|number| known.put(dir(number), capacity, later, 1));
        assert_eq!(known.of_dirs.len(), MOST_KNOWN);
    }
}
