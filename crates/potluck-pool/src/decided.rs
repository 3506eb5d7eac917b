//! Decisions to delete chunks, and the writes that donors had counted when the decisions were made.

use potluck_core::chunk::ChunkName;
use potluck_core::ids::{DonorId, Incarnation};
use std::collections::BTreeMap;

/// The count of a donor's writes at the moment when the manager made a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// The incarnation that counted.
    pub incarnation: Incarnation,
    /// The donor's write sequence at that moment.
    pub write_sequence: u64,
}

/// Condemned chunks and the counts of their donors, taken while no session had offered them.
#[derive(Debug, Default)]
pub struct Decided(pub(crate) BTreeMap<ChunkName, Vec<(DonorId, Count)>>);

impl Decided {
    /// Returns the names of the chunks that are to be deleted.
    pub fn names(&self) -> Vec<ChunkName> {
        self.0.keys().copied().collect()
    }

    /// Returns whether a donor's copy of the chunk is to be deleted.
    pub fn has(&self, chunk: &ChunkName, donor: DonorId) -> bool {
        self.0.get(chunk).is_some_and(|counts| counts.iter().any(|(other, _)| *other == donor))
    }
}

/// Chunks that a commit brought back into use, and the copies of them that must be looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InUseAgain {
    /// The chunks that were condemned before: orders to delete them are void.
    pub condemned: Vec<ChunkName>,
    /// The copies of these chunks that their donors have not acknowledged since. The donors may have been told to
    /// delete them, so they count for nothing until each was looked at.
    pub doubtful: Vec<(ChunkName, DonorId)>,
}
