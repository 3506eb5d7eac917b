//! The operations that the rest of the manager asks of the catalog, on plain types of the domain.
//!
//! Each is one transaction, or one snapshot. Which engine runs it, which rows it touches and what its
//! statements look like is known in the modules beside this one alone.

mod commits;
mod donors;
mod files;
mod founding;
mod garbage;
mod log;
mod members;
mod names;
mod redundancy;
mod sessions;
mod spaces;
mod terms;
mod upkeep;

pub use commits::CommittedFiles;
pub use founding::Founding;
pub use log::{Ahead, LogCommitted};
pub use redundancy::Learnt;
pub use terms::TermStart;
