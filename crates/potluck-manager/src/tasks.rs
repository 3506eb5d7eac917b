//! The background work of a manager, with a file for each task. Each task runs until it is dropped with the manager.
//!
//! [`rounds`] has many small tasks take turns; the others have timers of their own. The tasks of the metadata log are
//! in `log`.

pub mod audit;
pub mod authority_change;
pub mod diagnosis;
pub mod disk_recovery;
pub mod event_log;
pub mod gc;
pub mod pool_defaults;
pub mod reach;
pub mod repair;
pub mod rounds;
pub mod saved_time;
pub mod series;
mod session_ends;
pub mod signpost;
mod trash;
