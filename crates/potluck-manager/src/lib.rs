//! The manager: metadata, placement and housekeeping of a pool. Members' file bytes do not pass through it; it
//! fetches a copy of a chunk only to test a donor (`inquiries`).
//!
//! [`init()`] makes a pool in a directory; [`Manager`] serves it. There are three layers. [`potluck_wire::serve`]
//! waits for calls, and `tasks` does the background work. `calls` answers each call, with one file for each group.
//! Below them lie the pool's two kinds of state, soft in [`potluck_pool`] (a state machine without clock or waiting)
//! and hard in [`potluck_catalog`]. Each group of calls and each task is a struct of the `handles` that it works with.

mod access;
mod access_keys;
mod alarms;
mod applying_task_results;
mod audit_log;
mod call_turns;
mod callers;
mod calls;
mod config;
mod converting;
mod deadlines;
mod departure;
mod donor_claims;
mod failure;
mod file_goals;
mod followed_defaults;
mod gc_freeze;
mod give_back;
mod handles;
mod init;
mod inquiries;
mod inventory_turns;
mod known_spaces;
mod lock_table;
mod log_copies;
mod lost_rights;
mod manager;
mod metrics;
mod outcomes;
mod own_term;
mod pool_status;
mod pool_time;
mod recurring_notices;
mod room_advice;
mod scan;
mod scan_state;
mod series_uses;
mod session_rates;
mod sessions;
mod settings;
mod shared_files;
mod shared_pool;
mod stale_catalog;
mod stats_cache;
mod tasks;
mod ticket_issuer;
mod trim;
mod unproven_terms;
mod verdict;
mod waiting_for_donors;
mod wakeup;
mod watches;

pub use config::ManagerConfig;
pub use init::{Made, init};
pub use manager::{Manager, ManagerControls};
pub use potluck_recovery::StateError;
