//! Whole pools in one thread from one seed, with the product's own code.
//!
//! [`run::run`] plays one scenario: a manager, four donors and three clients under turmoil, with
//! what they take from outside (time, chance, disks, network: [`host`], [`disk`], [`net`]) decided by
//! a seed. [`plan`] is what the seed expands to, [`faults`] does it, [`history`] and [`checks`] know
//! what the promises (docs/promises.md) ask of the result, and [`trace`] writes down what happened.
//!
//! A run needs a process of its own to be the same every time: libraries keep counters in statics.
//! tests/simulation.rs sees to that.

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
