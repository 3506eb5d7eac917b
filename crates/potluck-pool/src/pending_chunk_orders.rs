//! Chunks that donors were asked to delete or to verify, until they say what became of them.

use super::Count;
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_wire::control::{ChunkOrders, Tombstone};
use potluck_wire::packed::Packed;
use std::collections::BTreeMap;
use std::time::Duration;

/// The most deletions in one heartbeat reply; a donor does them within a second or so.
const PER_REPLY: usize = 2048;
/// The most deletions that wait at one donor; the others wait in the catalog.
const MAX_WAITING: usize = 4 * PER_REPLY;
/// The most verifications that wait at one donor.
const MAX_VERIFIES: usize = 1024;
/// The time after which an unconfirmed order counts as refused or forgotten: a tombstone is then decided anew,
/// with what the donor has counted by then.
const EXPIRES: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub struct PendingChunkOrders(BTreeMap<DonorId, OrdersOfDonor>);

#[derive(Debug, Default)]
struct OrdersOfDonor {
    deletions: BTreeMap<ChunkName, Deletion>,
    verifies: BTreeMap<ChunkName, Tick>,
}

#[derive(Debug)]
struct Deletion {
    count: Count,
    since: Tick,
}

impl PendingChunkOrders {
    pub fn delete(&mut self, donor: DonorId, chunk: ChunkName, count: Count, now: Tick) {
        let deletions = &mut self.0.entry(donor).or_default().deletions;
        if deletions.len() < MAX_WAITING {
            deletions.insert(chunk, Deletion { count, since: now });
        }
    }

    pub fn verify(&mut self, donor: DonorId, chunk: ChunkName, now: Tick) {
        let verifies = &mut self.0.entry(donor).or_default().verifies;
        if verifies.len() < MAX_VERIFIES {
            verifies.entry(chunk).or_insert(now);
        }
    }

    pub fn has_verify(&self, donor: DonorId, chunk: &ChunkName) -> bool {
        self.0.get(&donor).is_some_and(|waiting| waiting.verifies.contains_key(chunk))
    }

    /// Returns the copies that donors were asked to look at and have not looked at yet.
    pub fn verifies(&self, now: Tick) -> impl Iterator<Item = (DonorId, ChunkName)> {
        let young = move |since: &Tick| now.saturating_sub(*since) < EXPIRES;
        self.0.iter().flat_map(move |(donor, waiting)| {
            let open = waiting.verifies.iter().filter(move |(_, since)| young(since));
            open.map(|(chunk, _)| (*donor, *chunk))
        })
    }

    pub fn has_deletion(&self, donor: DonorId, chunk: &ChunkName) -> bool {
        self.0.get(&donor).is_some_and(|waiting| waiting.deletions.contains_key(chunk))
    }

    /// Notes that a donor has said what became of a chunk.
    pub fn answered(&mut self, donor: DonorId, chunk: &ChunkName) {
        if let Some(waiting) = self.0.get_mut(&donor) {
            waiting.deletions.remove(chunk);
            waiting.verifies.remove(chunk);
        }
    }

    /// Cancels the deletion of a chunk at all donors.
    pub fn cancel(&mut self, chunk: &ChunkName) {
        for waiting in self.0.values_mut() {
            waiting.deletions.remove(chunk);
        }
    }

    /// Cancels all deletions.
    pub fn cancel_deletions(&mut self) {
        self.0.values_mut().for_each(|waiting| waiting.deletions.clear());
    }

    /// Forgets the orders of a donor that has a new incarnation, for which no earlier order holds, or that was removed.
    pub fn forget(&mut self, donor: DonorId) {
        self.0.remove(&donor);
    }

    pub fn for_donor(&mut self, donor: DonorId, now: Tick) -> ChunkOrders {
        let Some(waiting) = self.0.get_mut(&donor) else { return ChunkOrders::default() };
        let young = |since: &Tick| now.saturating_sub(*since) < EXPIRES;
        waiting.deletions.retain(|_, deletion| young(&deletion.since));
        waiting.verifies.retain(|_, since| young(since));
        let delete = waiting.deletions.iter().take(PER_REPLY).map(|(chunk, deletion)| Tombstone {
            chunk: *chunk,
            incarnation: deletion.count.incarnation,
            write_sequence: deletion.count.write_sequence,
        });
        let verify = waiting.verifies.keys().copied();
        ChunkOrders { delete: delete.collect(), verify: Packed(verify.collect()) }
    }
}
