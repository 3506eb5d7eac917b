//! What the rest of the manager asks of the catalog: operations of the domain on plain types.
//!
//! Each is one transaction, or one snapshot. Which engine runs it, which rows it touches and what its
//! statements look like is known in the modules beside this one alone.

mod donors;
mod files;
mod garbage;
mod life;
mod log;
mod members;
mod names;
mod redundancy;
mod spaces;

pub use files::PageLimit;
pub use log::{Ahead, LogCommit, LogCommitted};
pub use redundancy::Learnt;
