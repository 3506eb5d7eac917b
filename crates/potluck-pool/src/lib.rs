//! The pool as it is at this moment: who is alive, what is promised to whom, what was ordered.
//!
//! A deterministic state machine without waiting and without a clock: every method takes the time
//! it happens at. All of it is rebuilt after a start, the donors' part from their registrations
//! and heartbeats, the sessions' part from the catalog.

mod chunk_orders;
mod circuit_breaker;
mod decided;
mod donors;
mod expected;
mod given_up;
mod inventory;
mod limits;
mod liveness;
mod offered;
mod parking;
mod pool;
mod probation;
mod reach;
mod record;
pub mod redundancy;
mod sessions;
mod snapshot;
mod tasks;
mod trust;
mod uncommitted;
mod view;

pub use circuit_breaker::{Changes, CircuitBreaker};
pub use decided::{Count, Decided, InUseAgain};
pub use donors::{Contact, Enlisted, called};
pub use inventory::{OutOfOrder, PageDone, UnlistedCopies};
pub use limits::Limits;
pub use pool::Pool;
pub use probation::ProbationResult;
pub use record::{Giving, Record};
pub use sessions::{Ending, MANAGER, NewSession, NoSession, Ticketed, TooManyOffered};
pub use snapshot::Snapshot;
pub use trust::Inquiring;
pub use view::{DonorView, PoolView, Rule};

#[cfg(test)]
mod tests;
