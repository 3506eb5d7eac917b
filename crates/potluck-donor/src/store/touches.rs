//! Who was put when: what makes a tombstone stale (promise D5).
//!
//! Every put of this life counts one touch, also of a chunk that was there. A tombstone carries the
//! count at which the manager knew the chunk to be nobody's; a chunk touched later is somebody's.

use potluck_core::chunk::ChunkName;
use std::collections::BTreeMap;

/// Names remembered per generation. Two generations are kept, about 3 MiB when both are full.
const GENERATION: usize = 32_768;

/// The touches of one life, counted from 0.
///
/// Only the latest are remembered by name; of all others it is remembered that they are not later
/// than `floor`. Names are told apart by their first 8 bytes: two that share them count as touched
/// when the later of them was. Either shortcut can only keep a chunk that could have gone, and the
/// manager asks again with a newer count.
#[derive(Debug, Default)]
pub struct Touches {
    count: u64,
    young: BTreeMap<u64, u64>,
    old: BTreeMap<u64, u64>,
    /// The count when the youngest forgotten generation was closed.
    floor: u64,
    /// The count when `old` was closed.
    old_closed: u64,
}

fn key(name: &ChunkName) -> u64 {
    u64::from_le_bytes(name.0[..8].try_into().expect("8 bytes"))
}

impl Touches {
    /// Counts a put of `name`.
    pub fn touch(&mut self, name: &ChunkName) {
        if self.young.len() >= GENERATION {
            self.floor = self.old_closed;
            self.old_closed = self.count;
            self.old = std::mem::take(&mut self.young);
        }
        self.count += 1;
        self.young.insert(key(name), self.count);
    }

    /// All touches so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The latest that `name` can have been touched.
    pub fn latest(&self, name: &ChunkName) -> u64 {
        let key = key(name);
        *self.young.get(&key).or_else(|| self.old.get(&key)).unwrap_or(&self.floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u64) -> ChunkName {
        let mut name = ChunkName([0; 32]);
        name.0[..8].copy_from_slice(&number.to_le_bytes());
        name
    }

    #[test]
    fn what_is_forgotten_counts_as_touched_late_enough() {
        let mut touches = Touches::default();
        assert_eq!(touches.latest(&name(7)), 0, "before this life");
        let mut truth = BTreeMap::new();
        for round in 0..5 * GENERATION as u64 {
            // A few names come back again and again.
            let number = if round % 100 == 0 { round % 1000 } else { round };
            touches.touch(&name(number));
            truth.insert(number, touches.count());
        }
        for (number, touched) in truth {
            assert!(touches.latest(&name(number)) >= touched, "{number}");
        }
        assert!(touches.latest(&name(u64::MAX)) < touches.count(), "tombstones still work");
        assert!(touches.young.len() + touches.old.len() <= 2 * GENERATION);
    }
}
