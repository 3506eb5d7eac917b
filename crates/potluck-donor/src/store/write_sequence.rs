//! The order of puts, by which a tombstone is found to be stale (promise D5).
//!
//! Every put since the process began has a number, also one of a chunk that was held already, and so has every look
//! after which the manager relies on a chunk. A tombstone carries the number up to which the manager knew that the
//! chunk was not needed: a chunk with a later number is needed.

use potluck_core::chunk::ChunkName;
use std::collections::BTreeMap;

/// The most names in one generation. Two generations are kept, which take about 3 MiB when both are full.
const GENERATION: usize = 32_768;

/// The numbers of the puts since the process began, from 1.
///
/// Only the latest puts are remembered by name; all others count as put at `floor`. Names are told apart by their first
/// 8 bytes: two names that share them count as put when the later one was. Both shortcuts can only keep a chunk that
/// could have been deleted, and the manager asks again with a newer number.
#[derive(Debug, Default)]
pub struct WriteSequence {
    last: u64,
    young: BTreeMap<u64, u64>,
    old: BTreeMap<u64, u64>,
    /// The last number when the youngest forgotten generation was closed.
    floor: u64,
    /// The last number when `old` was closed.
    old_closed: u64,
}

fn key(name: &ChunkName) -> u64 {
    u64::from_le_bytes(name.0[..8].try_into().expect("8 bytes"))
}

impl WriteSequence {
    /// Gives a put of `name` the next number.
    pub fn wrote(&mut self, name: &ChunkName) {
        if self.young.len() >= GENERATION {
            self.floor = self.old_closed;
            self.old_closed = self.last;
            self.old = std::mem::take(&mut self.young);
        }
        self.last += 1;
        self.young.insert(key(name), self.last);
    }

    /// Returns the number of the last put; 0 before the first.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Returns the highest number that a put of `name` can have.
    pub fn latest_of(&self, name: &ChunkName) -> u64 {
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
    fn forgotten_write_sequence_counts_as_recent() {
        let mut write_sequence = WriteSequence::default();
        assert_eq!(write_sequence.latest_of(&name(7)), 0, "before this incarnation");
        let mut truth = BTreeMap::new();
        for round in 0..5 * GENERATION as u64 {
            // A few names come back again and again.
            let number = if round % 100 == 0 { round % 1000 } else { round };
            write_sequence.wrote(&name(number));
            truth.insert(number, write_sequence.last());
        }
        for (number, written) in truth {
            assert!(write_sequence.latest_of(&name(number)) >= written, "{number}");
        }
        assert!(
            write_sequence.latest_of(&name(u64::MAX)) < write_sequence.last(),
            "tombstones still work"
        );
        assert!(write_sequence.young.len() + write_sequence.old.len() <= 2 * GENERATION);
    }
}
