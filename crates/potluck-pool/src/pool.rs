//! All soft state of a manager together. The parts of it are in files beside this one; the operations on several parts
//! are in the modules below, by subject.

mod chunk_orders;
mod circuit_breaker;
mod donors;
mod failure_domains;
mod given_up_chunks;
mod inventory;
mod judging_donors;
mod manager_restart;
mod parking;
mod passing_time;
mod planning;
mod probation;
mod reach;
mod reservations;
mod sessions;
mod shares;
mod traffic;
mod trust;

pub use circuit_breaker::CircuitBreaker;
pub use donors::UnknownArrivals;
pub use judging_donors::Shrinking;
pub use passing_time::DonorChanges;
pub use reservations::{OpenReservation, ReservesTooMuch};

use crate::complaints::Complaints;
use crate::donor_snapshot::Losses;
use crate::donor_table::DonorTable;
use crate::ended_sessions::EndedSessions;
use crate::expected_donors::ExpectedDonors;
use crate::false_receipts::FalseReceipts;
use crate::left_names::LeftNames;
use crate::limits::PoolLimits;
use crate::offered::OfferedChunks;
use crate::pending_chunk_orders::PendingChunkOrders;
use crate::redundancy::Repairs;
use crate::uncommitted::Uncommitted;
use crate::write_session::OpenSession;
use potluck_core::clock::Tick;
use potluck_core::ids::MemberId;
use potluck_core::ids::{DonorId, SessionId};
use potluck_core::reservation::Ledger;
use potluck_wire::control::Heartbeat;
use std::collections::{BTreeMap, BTreeSet};

/// The soft state of a manager.
#[derive(Debug)]
pub struct Pool {
    pub(crate) limits: PoolLimits,
    pub(crate) donors: DonorTable,
    pub(crate) expected: ExpectedDonors,
    pub(crate) sessions: BTreeMap<SessionId, OpenSession>,
    /// The sessions of each member.
    pub(crate) sessions_of: BTreeMap<MemberId, BTreeSet<SessionId>>,
    /// The sessions that are reservations.
    pub(crate) rooms: BTreeSet<SessionId>,
    /// The number of chunks that the sessions of each member have offered and not yet committed in files.
    pub(crate) open_names: BTreeMap<MemberId, usize>,
    /// The number of chunks that the ended sessions of each member offered and made no files of, while any of them
    /// count. A member that was removed is forgotten like the others: its last sessions end after it, and leave more.
    pub(crate) left_names: BTreeMap<MemberId, LeftNames>,
    /// The bytes of its slack that the sessions of each member have taken together.
    pub(crate) slack_taken: BTreeMap<MemberId, u64>,
    pub(crate) ended_sessions: EndedSessions,
    pub(crate) ledger: Ledger,
    pub(crate) offered: OfferedChunks,
    pub(crate) uncommitted: Uncommitted,
    pub(crate) chunk_orders: PendingChunkOrders,
    pub(crate) circuit_breaker: CircuitBreaker,
    pub(crate) complaints: Complaints,
    pub(crate) false_receipts: FalseReceipts,
    /// The donors whose unknown chunks an admin gave up, until they listed all they hold; each with whether it has begun
    /// to list since.
    pub(crate) given_up: BTreeMap<DonorId, bool>,
    pub(crate) losses: Losses,
    /// The donor up to which the traffic was saved last.
    pub(crate) traffic_saved_to: DonorId,
    /// The time at which the rights of some member were last ended, by the clock that tickets are issued by, in
    /// milliseconds.
    pub(crate) rights_ended_ms: Option<u64>,
    /// The repairs that wait or are under way.
    pub repairs: Repairs,
}

impl Pool {
    /// Returns a pool in which no donor has been heard.
    pub fn new(limits: PoolLimits) -> Self {
        Self {
            limits,
            donors: DonorTable::default(),
            traffic_saved_to: DonorId(0),
            expected: ExpectedDonors::default(),
            sessions: BTreeMap::new(),
            sessions_of: BTreeMap::new(),
            rooms: BTreeSet::new(),
            open_names: BTreeMap::new(),
            left_names: BTreeMap::new(),
            slack_taken: BTreeMap::new(),
            ended_sessions: EndedSessions::default(),
            ledger: Ledger::default(),
            offered: OfferedChunks::default(),
            uncommitted: Uncommitted::default(),
            chunk_orders: PendingChunkOrders::default(),
            circuit_breaker: CircuitBreaker::default(),
            complaints: Complaints::default(),
            false_receipts: FalseReceipts::default(),
            given_up: BTreeMap::new(),
            losses: Losses::default(),
            rights_ended_ms: None,
            repairs: Repairs::new(limits.repair_rate, limits.repair_donor_rate, Tick::ZERO),
        }
    }

    /// Replaces the limits by which the pool decides.
    pub fn set_limits(&mut self, limits: PoolLimits) {
        self.limits = limits;
        self.repairs.set_rates(limits.repair_rate, limits.repair_donor_rate);
    }

    /// Takes a donor's heartbeat, sent each second. Returns `false` if this incarnation did not register; then
    /// nothing in the heartbeat was believed.
    pub fn heartbeat(&mut self, donor: DonorId, heartbeat: &Heartbeat, now: Tick) -> bool {
        if !self.donors.heartbeat(donor, heartbeat, now, &self.limits) {
            return false;
        }
        let quarantined = || heartbeat.spoiled.0.iter().chain(&heartbeat.unreadable.0);
        for name in heartbeat.removed.0.iter().chain(quarantined()) {
            self.uncommitted.forget_copy(name, donor);
        }
        self.admitted(donor, heartbeat.removed.0.iter().chain(quarantined()));
        for name in heartbeat.removed.0.iter().chain(quarantined()).chain(&heartbeat.sound.0) {
            self.chunk_orders.answered(donor, name);
        }
        self.told_more(donor);
        true
    }
}
