//! The work that a manager does unasked, a file for each task. Each runs until it is dropped, with the
//! manager.
//!
//! [`rounds`] has many small ones take turns; the others go by clocks of their own. The metadata log's are
//! in `log`.

pub mod audit;
pub mod disk_recovery;
pub mod event_log;
pub mod gc;
pub mod reach;
pub mod repair;
pub mod rounds;
pub mod saved_time;
pub mod series;
mod session_ends;
pub mod signpost;
mod trash;
