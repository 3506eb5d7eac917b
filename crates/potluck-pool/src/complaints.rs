//! Complaints of members about the copies of donors, and the inquiries into them. What follows from them, and how they
//! are forgotten, is in `pool/trust`.

use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId};
use potluck_wire::control::Holding;
use std::collections::{BTreeMap, BTreeSet};

/// Complaints about donors, and what is found out about them.
#[derive(Debug, Default)]
pub struct Complaints {
    /// The complaints about copies that the donor has not looked at yet, or called sound while others fetched another.
    pub(crate) open: BTreeMap<DonorId, BTreeMap<ChunkName, Complaint>>,
    /// The inquiry into one copy of each donor: others fetch a copy that the donor calls sound, or did not look at.
    pub(crate) inquiries: BTreeMap<DonorId, Inquiry>,
    /// The time at which a complaint of a member about a donor counted last.
    pub(crate) counted: BTreeMap<(MemberId, DonorId), Tick>,
    /// The donors about which each member complained though others found the copy right, each with when that was found.
    pub(crate) refuted: BTreeMap<MemberId, BTreeMap<DonorId, Tick>>,
    /// The time until which the reports of each member reach, at one every `REPORT_EVERY`: a rate limit.
    pub(crate) reported: BTreeMap<MemberId, Tick>,
    /// The last report of each member that put the verdict in doubt.
    pub(crate) doubts: BTreeMap<MemberId, Doubt>,
    /// The time at which old complaints were forgotten last.
    pub(crate) aged: Tick,
}

/// A complaint: members got wrong bytes of a copy, or none.
#[derive(Debug)]
pub(crate) struct Complaint {
    pub(crate) len: u32,
    pub(crate) witnesses: BTreeSet<MemberId>,
    pub(crate) since: Tick,
    /// The time since which the donor has been heard and has not looked at the copy.
    pub(crate) waits_since: Tick,
}

/// A note that the verdict on the pool is not known because of a copy that a member complained about.
#[derive(Debug)]
pub(crate) struct Doubt {
    pub(crate) since: Tick,
    pub(crate) donor: DonorId,
    pub(crate) chunk: ChunkName,
}

/// An inquiry, in which others fetch a copy that members complained about and that the donor calls sound or did not
/// look at.
#[derive(Debug)]
pub(crate) struct Inquiry {
    pub(crate) copy: Holding,
    pub(crate) witnesses: BTreeSet<MemberId>,
    /// The donors that were asked to fetch the copy, each with when it was asked; `None` once it has answered, and for
    /// one that complained itself.
    pub(crate) asked: BTreeMap<DonorId, Option<Tick>>,
    /// The donors that answered, each with whether it got the right bytes.
    pub(crate) found: BTreeMap<DonorId, bool>,
    /// True once the manager fetches the copy itself.
    pub(crate) manager_looks: bool,
    /// True if the manager got the right bytes, false if it got others or none; `None` until it has fetched the copy,
    /// and if it could not.
    pub(crate) manager_found: Option<bool>,
    /// The number of heartbeats that came from the donor since enough donors, or the manager, had fetched the copy;
    /// `None` before that.
    pub(crate) heartbeats_since: Option<u32>,
}

impl Inquiry {
    /// Returns how many of those that fetched the copy got the right bytes, and how many did not.
    pub(crate) fn tally(&self) -> (usize, usize) {
        let found = || self.found.values().copied().chain(self.manager_found);
        let right = found().filter(|right| *right).count();
        (right, found().count() - right)
    }
}

/// The steps to take now in inquiries.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Inquiring {
    /// The donors that were drawn to fetch a copy, each with the donor to fetch it from and the chunk.
    pub by_donors: Vec<(DonorId, DonorId, Holding)>,
    /// The copies that the manager fetches itself, each with its donor, because too few other donors can.
    pub by_manager: Vec<(DonorId, Holding)>,
    /// The donors that are not to be trusted any more, each with the reason.
    pub lies: Vec<(DonorId, String)>,
}
