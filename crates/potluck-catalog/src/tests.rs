//! The catalog's conformance suite: whatever engine holds it must pass this.

mod committing;
mod copying;
mod costs;
mod damage;
mod deleting;
mod garbage;
mod log;
mod membership;
mod naming;
mod policies;
mod redundancy;
mod writing;
