//! The manager: metadata, placement and housekeeping of a pool. It never touches file bytes.
//!
//! [`init()`] makes a pool in a directory; [`Manager`] serves it. Inside, three layers: `serve`
//! waits and `background` works unasked; `calls` translates each call; below them lie the pool's
//! two kinds of state, soft in [`potluck_pool`] (a state machine without clock or waiting) and hard in
//! [`potluck_catalog`].

mod access;
mod alarms;
mod audit;
mod background;
mod ca;
mod callers;
mod calls;
mod config;
mod converting;
mod departure;
mod error;
mod event_log;
mod failure;
mod gc;
mod gc_freeze;
mod give_back;
mod held_up;
mod init;
mod kit;
mod log;
mod manager;
mod metrics;
mod outcomes;
mod pool_status;
mod pool_time;
mod probation;
mod reach;
mod repair;
mod restore;
mod scan;
mod scan_state;
mod serve;
mod service;
mod signpost;
mod state_dir;
mod stats_cache;
mod task_results;
mod ticketing;
mod trim;
mod verdict;
mod whereabouts;

pub use config::ManagerConfig;
pub use error::ManagerError;
pub use init::{Made, init};
pub use log::backup::backup;
pub use log::chain::Gaps;
pub use manager::{Controls, Manager};
pub use restore::{
    Patience, Replayed, Restore, Restored, Unlisted, Verdict, restore_file, restore_pool,
};
pub use state_dir::KIT;
