//! Tests that cannot be made by operations alone: of costs, of damage, and of the modules below the operations. The
//! suite for any engine is in `tests/conformance`.

mod bounds;
mod costs;
mod damage;
mod log;
mod operations;
mod writing;
