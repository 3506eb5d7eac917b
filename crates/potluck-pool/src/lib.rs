//! The pool as it is at this moment: who is alive, what is promised to whom, what was ordered.
//!
//! A deterministic state machine without waiting and without a clock: every method takes the time
//! it happens at. All of it is rebuilt after a start, the donors' part from their registrations
//! and heartbeats, the sessions' part from the catalog.

mod chunk_orders;
mod donors;
mod expected;
mod given_up;
mod inventory;
mod offered;
mod parking;
mod probation;
mod reach;
pub mod redundancy;
mod sessions;
mod snapshot;
mod tasks;
mod trust;
mod uncommitted;
mod view;

pub use donors::{Contact, Enlisted};
pub use inventory::{OutOfOrder, PageDone, UnlistedCopies};
pub use probation::ProbationResult;
pub use sessions::{Ending, MANAGER, NewSession, NoSession, Ticketed};
pub use snapshot::Snapshot;
pub use view::{Changes, CircuitBreaker, DonorView, Giving, PoolView, Record, Rule};

use chunk_orders::PendingChunkOrders;
use donors::Donors;
use expected::Expected;
use given_up::GivenUp;
use offered::Offered;
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, Incarnation, SessionId};
use potluck_core::reservation::Ledger;
use potluck_wire::control::{ChunkOrders, Heartbeat, Task};
use probation::Probations;
use redundancy::Repairs;
use sessions::Session;
use snapshot::Losses;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use trust::Complaints;
use uncommitted::Uncommitted;

/// The limits by which the pool decides.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long a session lives without a call.
    pub lease: Duration,
    /// How long a donor is believed alive without a word.
    pub suspect_after: Duration,
    /// How long until it is silent and no longer a suspect only.
    pub silent_after: Duration,
    /// How long until it is given up and what it holds is made again elsewhere.
    pub grace: Duration,
    /// Bytes a second that repair makes in all, …
    pub repair_rate: u64,
    /// … and asks of one donor.
    pub repair_donor_rate: u64,
}

/// The soft state of a manager.
#[derive(Debug)]
pub struct Pool {
    limits: Limits,
    donors: Donors,
    expected: Expected,
    sessions: BTreeMap<SessionId, Session>,
    ledger: Ledger,
    offered: Offered,
    uncommitted: Uncommitted,
    chunk_orders: PendingChunkOrders,
    circuit_breaker: CircuitBreaker,
    complaints: Complaints,
    probation: Probations,
    given_up: GivenUp,
    losses: Losses,
    /// What is being made.
    pub repairs: Repairs,
}

/// The last that a donor counted, at a moment when the manager decided something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// The incarnation that counted.
    pub incarnation: Incarnation,
    /// Its write sequence.
    pub write_sequence: u64,
}

/// Condemned chunks and the counts of their donors, taken while no session had offered them.
#[derive(Debug, Default)]
pub struct Decided(BTreeMap<ChunkName, Vec<(DonorId, Count)>>);

impl Decided {
    /// The chunks decided on.
    pub fn names(&self) -> Vec<ChunkName> {
        self.0.keys().copied().collect()
    }

    /// Whether a donor's copy of the chunk was decided on.
    pub fn has(&self, chunk: &ChunkName, donor: DonorId) -> bool {
        self.0.get(chunk).is_some_and(|counts| counts.iter().any(|(other, _)| *other == donor))
    }
}

/// Chunks that a commit brought back into use, and what must be done about them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InUseAgain {
    /// Condemned before: orders to delete them are void.
    pub condemned: Vec<ChunkName>,
    /// Perhaps on a donor, from a session that ended: only garbage collection would have asked, so
    /// somebody must ask now, or the copy would lie there uncounted.
    pub assumed: Vec<(DonorId, ChunkName)>,
}

impl Pool {
    /// A pool nobody was heard of.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            donors: Donors::default(),
            expected: Expected::default(),
            sessions: BTreeMap::new(),
            ledger: Ledger::default(),
            offered: Offered::default(),
            uncommitted: Uncommitted::default(),
            chunk_orders: PendingChunkOrders::default(),
            circuit_breaker: CircuitBreaker::default(),
            complaints: Complaints::default(),
            probation: Probations::default(),
            given_up: GivenUp::default(),
            losses: Losses::default(),
            repairs: Repairs::new(limits.repair_rate, limits.repair_donor_rate, Tick::ZERO),
        }
    }

    /// Decides by other limits from now on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.repairs.set_rates(limits.repair_rate, limits.repair_donor_rate);
    }

    /// A donor's second. `false`: this incarnation did not register, and nothing was believed.
    pub fn heartbeat(&mut self, donor: DonorId, heartbeat: &Heartbeat, now: Tick) -> bool {
        if !self.donors.heartbeat(donor, heartbeat, now, &self.limits) {
            return false;
        }
        // What is stored is in the donor's own figures now, and promised no more.
        for holding in &heartbeat.added.0 {
            if let Some(session) = self.offered.one_of(&holding.name) {
                self.ledger.used(session, donor, u64::from(holding.len));
            }
        }
        for name in heartbeat.removed.0.iter().chain(&heartbeat.spoiled.0) {
            self.uncommitted.lost(name, donor);
        }
        self.admitted(donor, &heartbeat.spoiled.0);
        for name in heartbeat.removed.0.iter().chain(&heartbeat.spoiled.0).chain(&heartbeat.sound.0)
        {
            self.chunk_orders.answered(donor, name);
        }
        true
    }

    /// The work that `donor` has not answered.
    pub fn tasks_for(&self, donor: DonorId) -> Vec<Task> {
        self.repairs.tasks.for_donor(donor)
    }

    /// What `donor` is to do with chunks that it holds.
    pub fn chunk_orders_for(&mut self, donor: DonorId, now: Tick) -> ChunkOrders {
        self.chunk_orders.for_donor(donor, now)
    }

    /// Has a donor look at its copy of a chunk, because a reader complained.
    pub fn order_verify(&mut self, donor: DonorId, chunk: ChunkName, now: Tick) {
        if self.donors.is_registered(donor) {
            self.chunk_orders.verify(donor, chunk, now);
        }
    }

    /// Whether the donor is to look at it anyway.
    pub fn is_asked_about(&self, donor: DonorId, chunk: &ChunkName) -> bool {
        self.chunk_orders.has_verify(donor, chunk)
    }

    /// The copies that donors are to look at, and have not yet.
    pub fn asked_about(&self, now: Tick) -> BTreeSet<(DonorId, ChunkName)> {
        self.chunk_orders.verifies(now).collect()
    }

    /// Those of `names` that no session may be writing.
    pub fn unoffered(&self, names: &[ChunkName]) -> Vec<ChunkName> {
        names.iter().filter(|name| !self.offered.is_offered(name)).copied().collect()
    }

    /// First half of ordering deletions: drops chunks that a session offered, and takes down what
    /// each donor has counted so far.
    ///
    /// Whoever needs one of these chunks from now on must offer it, is told that it is not held,
    /// and puts it again, which its donor counts higher: the tombstone is void there. Whoever
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

    /// Second half: orders the deletion of those decided on that are `still` condemned.
    pub fn order_deletions(&mut self, decided: &Decided, still: &[ChunkName], now: Tick) {
        for name in still {
            for (donor, count) in decided.0.get(name).into_iter().flatten() {
                self.chunk_orders.delete(*donor, *name, *count, now);
            }
        }
    }

    /// Whether a donor is being told to delete a chunk.
    pub fn has_deletion(&self, donor: DonorId, chunk: &ChunkName) -> bool {
        self.chunk_orders.has_deletion(donor, chunk)
    }

    /// Whether a session offered a chunk.
    pub fn is_offered(&self, chunk: &ChunkName) -> bool {
        self.offered.is_offered(chunk)
    }

    /// A copy that was to be deleted stays after all, if it is still there: its donor looks.
    pub fn stay(&mut self, donor: DonorId, chunk: ChunkName, now: Tick) {
        self.chunk_orders.cancel(&chunk);
        self.order_verify(donor, chunk, now);
    }

    /// Takes all tombstones back.
    pub fn cancel_deletions(&mut self) {
        self.chunk_orders.cancel_deletions();
    }

    /// Takes orders back for chunks that are in use again; a copy that went in the meantime is
    /// reported as removed. Donors that perhaps have one look; those that are not registered list
    /// what they have when they come.
    pub fn in_use_again(&mut self, again: &InUseAgain, now: Tick) {
        again.condemned.iter().for_each(|name| self.chunk_orders.cancel(name));
        again.assumed.iter().for_each(|(donor, name)| self.order_verify(*donor, *name, now));
    }
}

/// A donor by its name and its number, as people are told.
pub fn called(name: &str, number: DonorId) -> String {
    format!("donor {name} ({number})")
}

#[cfg(test)]
mod tests;
