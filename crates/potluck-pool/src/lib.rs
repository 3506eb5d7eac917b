//! The pool as it is at this moment: which donors are alive, what is promised to which session, what was ordered.
//!
//! It is a deterministic state machine that never waits and has no clock: methods are given the time at which they are
//! called. All of it is rebuilt after a start: the donors' part from the catalog's records and from their registrations
//! and heartbeats, the sessions' part from the catalog.

mod complaints;
mod decided;
mod donor_snapshot;
mod donor_table;
mod ended_sessions;
mod expected_donors;
mod false_receipts;
mod inventory_progress;
mod known_traffic;
mod left_names;
mod limits;
mod liveness;
mod offered;
mod pending_chunk_orders;
mod pool;
mod pool_view;
mod reach_record;
mod receipts;
mod record;
pub mod redundancy;
mod tasks;
mod twins;
mod uncommitted;
mod write_session;

pub use complaints::Inquiring;
pub use decided::{Count, Decided, InUseAgain};
pub use donor_snapshot::DonorSnapshot;
pub use donor_table::{DonorContact, Enlisted, called};
pub use inventory_progress::{OutOfOrder, PageDone, UnlistedCopies};
pub use known_traffic::SavedTraffic;
pub use limits::PoolLimits;
pub use pool::{
    CircuitBreaker, DonorChanges, OpenReservation, Pool, ReservesTooMuch, Shrinking,
    UnknownArrivals,
};
pub use pool_view::{DonorView, LeavingRule, PoolView};
pub use receipts::{ReceiptJudgement, ReceiptSigner};
pub use record::{DonorRecord, Giving};
pub use write_session::{
    MANAGER, NewSession, NoSession, QuotaRoom, ResumedSession, SessionAtDonor, Ticketed,
    TooManyOffered,
};

#[cfg(test)]
mod tests;
