//! Complaints of members about the copies of donors, and the donors that the manager fetches copies from because of
//! them. What follows from them, and how they are forgotten, is in `pool/trust`.

use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId};
use potluck_wire::control::Holding;
use std::collections::BTreeMap;

/// Complaints about donors, and what is found out about them.
#[derive(Debug, Default)]
pub struct Complaints {
    /// The copy of each donor that the manager fetches, because somebody complained about it.
    pub(crate) suspected: BTreeMap<DonorId, SuspectedCopy>,
    /// The time at which a complaint of a member about a donor counted last.
    pub(crate) counted: BTreeMap<(MemberId, DonorId), Tick>,
    /// The time until which the reports of each member reach, at one every `REPORT_EVERY`: a rate limit.
    pub(crate) reported: BTreeMap<MemberId, Tick>,
    /// The last report of each member that put the verdict in doubt.
    pub(crate) doubts: BTreeMap<MemberId, Doubt>,
    /// The time at which old complaints were forgotten last.
    pub(crate) aged: Tick,
    /// The quarantined donors that are tested before they are trusted again. Until then their copies serve as sources
    /// only.
    pub(crate) probations: BTreeMap<DonorId, OnProbation>,
}

/// A note that the verdict on the pool is not known because of a copy that a member complained about.
#[derive(Debug)]
pub(crate) struct Doubt {
    pub(crate) since: Tick,
    pub(crate) donor: DonorId,
    pub(crate) chunk: ChunkName,
}

/// A copy that somebody complained about.
#[derive(Debug)]
pub(crate) struct SuspectedCopy {
    pub(crate) copy: Holding,
    /// The number of times that the manager fetched the copy and got other bytes or none.
    pub(crate) wrong: u32,
    /// The number of heartbeats that came from the donor since the manager last got the copy wrong.
    pub(crate) heartbeats: u32,
    /// True once the donor has looked at the copy and called it sound.
    pub(crate) denied: bool,
}

/// A quarantined donor that is tested before it is trusted again.
#[derive(Debug)]
pub(crate) struct OnProbation {
    /// The reason why the donor was quarantined.
    pub(crate) why: String,
    /// The number of chunks that are tested in all.
    pub(crate) of: usize,
    /// The chunks that have not proved right yet.
    pub(crate) left: Vec<Holding>,
    /// The time of the next test.
    pub(crate) next: Tick,
    /// The first chunk of which the donor sent other bytes or none.
    pub(crate) wrong: Option<ChunkName>,
}

/// The steps to take now about donors in doubt.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Inquiring {
    /// The copies that the manager is to fetch, each with its donor.
    pub looks: Vec<(DonorId, Holding)>,
    /// The donors that are not to be trusted any more, each with the reason.
    pub lies: Vec<(DonorId, String)>,
    /// The donors that are to be trusted again.
    pub right: Vec<DonorId>,
}
