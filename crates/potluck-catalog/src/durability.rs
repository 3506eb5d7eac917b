//! How much a change must have outlived before its caller hears of it.

/// The meaning of a job's success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// It survives the death of the manager. For what is rebuilt after a power cut.
    Process,
    /// It survives a power cut.
    Disk,
}
