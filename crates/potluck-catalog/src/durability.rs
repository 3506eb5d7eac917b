//! How much a change of the catalog must have outlived before its caller hears of it. How safe files are is decided in
//! [`crate::enough_copies`].

/// The meaning of a job's success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// It survives the death of the manager. For what is rebuilt after a power cut.
    Process,
    /// It survives a power cut.
    Disk,
}
