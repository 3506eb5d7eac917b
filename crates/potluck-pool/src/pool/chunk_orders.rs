//! The orders to donors about chunks: delete, verify, or leave alone after all.

use super::Pool;
use crate::decided::{Decided, InUseAgain};
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_wire::control::{ChunkOrders, Task};
use std::collections::BTreeSet;

impl Pool {
    /// Returns the tasks that `donor` has not answered.
    pub fn tasks_for(&self, donor: DonorId) -> Vec<Task> {
        self.repairs.tasks.for_donor(donor)
    }

    /// Returns the orders for `donor` about chunks that it holds.
    pub fn chunk_orders_for(&mut self, donor: DonorId, now: Tick) -> ChunkOrders {
        self.chunk_orders.for_donor(donor, now)
    }

    /// Has a registered donor look at its copy of a chunk.
    pub fn order_verify(&mut self, donor: DonorId, chunk: ChunkName, now: Tick) {
        if self.donors.is_registered(donor) {
            self.chunk_orders.verify(donor, chunk, now);
        }
    }

    /// Returns whether the donor was already asked to look at its copy of the chunk.
    pub fn is_asked_about(&self, donor: DonorId, chunk: &ChunkName) -> bool {
        self.chunk_orders.has_verify(donor, chunk)
    }

    /// Returns the copies that donors were asked to look at and have not looked at yet.
    pub fn asked_about(&self, now: Tick) -> BTreeSet<(DonorId, ChunkName)> {
        self.chunk_orders.verifies(now).collect()
    }

    /// Returns those of `names` that no session may be writing.
    pub fn unoffered(&self, names: &[ChunkName]) -> Vec<ChunkName> {
        names.iter().filter(|name| !self.offered.is_offered(name)).copied().collect()
    }

    /// Takes the first step of ordering deletions: drops chunks that a session offered, and notes what each live donor
    /// that has no such order yet has counted so far.
    ///
    /// A session that needs one of these chunks from now on must offer it, is told that it is not held,
    /// and puts it again, which its donor counts higher: the tombstone is void there. A session that
    /// needed one before has ended; if it committed, the catalog no longer calls the chunk
    /// condemned, which is asked before [`Pool::order_deletions`].
    pub fn decide<'a>(
        &self,
        condemned: impl Iterator<Item = (&'a ChunkName, &'a [DonorId])>,
        now: Tick,
    ) -> Decided {
        let mut decided = Decided::default();
        for (name, donors) in condemned {
            if self.offered.is_offered(name) {
                continue;
            }
            let live = donors.iter().filter(|donor| {
                self.donors.is_live(**donor, now, &self.limits)
                    && !self.chunk_orders.has_deletion(**donor, name)
            });
            let counts: Vec<_> =
                live.filter_map(|donor| Some((*donor, self.donors.count(*donor)?))).collect();
            if !counts.is_empty() {
                decided.0.insert(*name, counts);
            }
        }
        decided
    }

    /// Takes the second step of ordering deletions, after [`Pool::decide`]: orders the deletion of the decided chunks
    /// that are `still` condemned.
    pub fn order_deletions(&mut self, decided: &Decided, still: &[ChunkName], now: Tick) {
        for name in still {
            for (donor, count) in decided.0.get(name).into_iter().flatten() {
                self.chunk_orders.delete(*donor, *name, *count, now);
            }
        }
    }

    /// Returns whether a donor is being told to delete a chunk.
    pub fn has_deletion(&self, donor: DonorId, chunk: &ChunkName) -> bool {
        self.chunk_orders.has_deletion(donor, chunk)
    }

    /// Returns whether a session offered a chunk.
    pub fn is_offered(&self, chunk: &ChunkName) -> bool {
        self.offered.is_offered(chunk)
    }

    /// Keeps a donor's copy of a chunk that was to be deleted: no donor deletes the chunk, and this donor looks whether
    /// it still has the copy.
    pub fn stay(&mut self, donor: DonorId, chunk: ChunkName, now: Tick) {
        self.chunk_orders.cancel(&chunk);
        self.order_verify(donor, chunk, now);
    }

    /// Takes back all orders to delete chunks.
    pub fn cancel_deletions(&mut self) {
        self.chunk_orders.cancel_deletions();
    }

    /// Takes orders back for chunks that are in use again, and has donors look whether they still have the copies
    /// that they may have been told to delete.
    pub fn in_use_again(&mut self, again: &InUseAgain, now: Tick) {
        again.condemned.iter().for_each(|name| self.chunk_orders.cancel(name));
        again.doubtful.iter().for_each(|(name, donor)| self.order_verify(*donor, *name, now));
    }
}
