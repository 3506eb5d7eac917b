//! Probations: a donor that was not trusted is tested by others before it is trusted again. Until then its copies
//! serve as sources only.

use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use std::collections::BTreeMap;

/// The donors being tested.
#[derive(Debug, Default)]
pub struct RunningProbations(pub(crate) BTreeMap<DonorId, RunningProbation>);

#[derive(Debug)]
pub(crate) struct RunningProbation {
    /// The reason why the donor was quarantined.
    pub(crate) why: String,
    /// The number of chunks that are tested in all.
    pub(crate) of: usize,
    /// The chunks not proved right yet, each with its stored bytes and when a donor was last asked to test it.
    pub(crate) left: BTreeMap<ChunkName, (u32, Option<Tick>)>,
}

/// The result of a probation.
#[derive(Debug, PartialEq, Eq)]
pub enum ProbationResult {
    /// The tested chunks were all right.
    Right,
    /// A chunk was wrong, with the reason why the donor is not trusted now.
    Wrong(String),
}
