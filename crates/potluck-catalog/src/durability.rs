//! How much a change of the catalog must have outlived before its caller hears of it. How safe files are is decided in
//! [`crate::versions::enough_copies`].

/// The meaning of a job's success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// The change survives the death of the manager, but perhaps no power cut: enough for what can be rebuilt.
    Process,
    /// The change survives a power cut.
    Disk,
}
