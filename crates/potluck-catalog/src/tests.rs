//! What no operation shows: costs, damage, and what the modules below the operations agree on. What any
//! engine must do is in `tests/conformance`.

mod costs;
mod damage;
mod deleting;
mod garbage;
mod log;
mod policies;
mod redundancy;
mod writing;
