//! Simulates whole pools in one thread from one seed, with the product's own code.
//!
//! [`run::run`] plays one scenario: a manager, donors, clients and an admin under turmoil, with time,
//! chance, disks and network ([`host`], [`disk`], [`net`]) decided by a seed. A seed expands to a [`plan`],
//! [`faults`] carries its faults out, [`history`] and [`checks`] check the result against the promises
//! (docs/promises.md), and [`trace`] records the events. [`year`] simulates a year of ordinary use.
//!
//! A run needs a process of its own to be the same every time, because libraries keep counters in
//! statics. tests/simulation.rs starts one for each run.

pub mod admin;
pub mod cases;
pub mod cast;
pub mod checks;
pub mod client;
pub mod content;
pub mod disk;
pub mod draw;
pub mod faults;
pub mod health;
pub mod history;
pub mod host;
pub mod net;
pub mod plan;
pub mod run;
pub mod safety;
pub mod stage;
pub mod trace;
pub mod world;
pub mod year;
