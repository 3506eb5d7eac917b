//! Tests the promises of a donor, kept or broken over real sockets with a manager that only pretends.

mod bulk;
mod chunk_orders;
mod copies;
mod disks;
mod forwards;
mod groups;
mod manager;
mod pool;
mod scrub;
mod start;
mod strangers;
mod throttle;
mod tickets;
mod vanished;
