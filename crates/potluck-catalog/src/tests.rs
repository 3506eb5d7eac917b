//! Tests of what no operation shows: costs, damage, and the facts that the modules below the operations
//! agree on. The suite for any engine is in `tests/conformance`.

mod bounds;
mod costs;
mod damage;
mod log;
mod operations;
mod writing;
