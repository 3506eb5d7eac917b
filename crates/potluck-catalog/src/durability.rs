//! The failures that a change of the catalog must survive before its caller hears of success. The safety of files is
//! decided in [`crate::operations::commits::enough_copies`].

/// The failure that a change survives once its job has succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Durability {
    /// The change survives the death of the manager, but perhaps no power cut: enough for what can be rebuilt.
    Process,
    /// The change survives the death of the manager, and a power cut a tenth of a second later. All changes before it
    /// survive that, too: a power cut leaves the first of them. This is for changes of names that nobody syncs, where
    /// the ack level is `memory`.
    Soon,
    /// The change survives a power cut.
    #[default]
    Disk,
}
