//! The operations that the rest of the manager asks of the catalog, on plain types of the domain.
//!
//! Each makes its change in one transaction, and each query sees one moment, so that nobody sees half of a
//! change. Some read before they write, as to refuse a name early or to take no turn of the writer for
//! nothing: what they then change holds by itself, whatever happened in between. Who adds up pages, each of
//! its own moment, says so. A closure that one is given may run again.
//!
//! Which engine runs it, which rows it touches and what its
//! statements look like is known in the modules beside this one alone.

mod commits;
mod donors;
mod files;
mod founding;
mod garbage;
mod grants;
mod log;
mod members;
mod names;
mod quotas;
mod redundancy;
mod sessions;
mod spaces;
mod terms;
mod upkeep;

pub use commits::CommittedFiles;
pub use founding::Founding;
pub use log::{LogAhead, LogCommitted};
pub use redundancy::Learnt;
pub use terms::TermStart;
