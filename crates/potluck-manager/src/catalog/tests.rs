//! The catalog's conformance suite: whatever engine holds it must pass this.

mod committing;
mod costs;
mod damage;
mod files;
mod garbage;
mod membership;
mod naming;
mod writing;
