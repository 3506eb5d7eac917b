//! What a donor promises, kept or broken over real sockets with a manager that only pretends.

mod bulk;
mod disks;
mod manager;
mod orders;
mod pool;
mod start;
mod strangers;
mod tickets;
