//! Complaints of members about the copies of donors, and the inquiries into them.

use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId};
use potluck_wire::control::Holding;
use std::collections::{BTreeMap, BTreeSet};

/// Complaints about donors, and what is found out about them.
#[derive(Debug, Default)]
pub struct Complaints {
    /// The complaints about copies that the donor has not looked at yet.
    pub(crate) open: BTreeMap<DonorId, BTreeMap<ChunkName, Complaint>>,
    /// The copy of each donor that others are looking at, which it calls sound.
    pub(crate) inquiries: BTreeMap<DonorId, Inquiry>,
    /// When a complaint of a member about a donor counted last.
    pub(crate) counted: BTreeMap<(MemberId, DonorId), Tick>,
    /// The donors about which a member complained and others found their copies right, and when.
    pub(crate) refuted: BTreeMap<MemberId, BTreeMap<DonorId, Tick>>,
    /// When each member would have made its reports, one every [`REPORT_EVERY`].
    pub(crate) reported: BTreeMap<MemberId, Tick>,
    /// The last report of each member that put the verdict in doubt.
    pub(crate) doubts: BTreeMap<MemberId, Doubt>,
    /// When what is too old was forgotten last.
    pub(crate) aged: Tick,
}

/// A complaint: members got wrong bytes of a copy, or none.
#[derive(Debug)]
pub(crate) struct Complaint {
    pub(crate) len: u32,
    pub(crate) witnesses: BTreeSet<MemberId>,
    pub(crate) since: Tick,
    /// The time since which the donor has been there and not looked.
    pub(crate) waits_since: Tick,
}

/// A note that the verdict on the pool is not known because of a copy that a member complained about.
#[derive(Debug)]
pub(crate) struct Doubt {
    pub(crate) since: Tick,
    pub(crate) donor: DonorId,
    pub(crate) chunk: ChunkName,
}

/// An inquiry: others fetch a copy about which the donor and those who complained say different things.
#[derive(Debug)]
pub(crate) struct Inquiry {
    pub(crate) copy: Holding,
    pub(crate) witnesses: BTreeSet<MemberId>,
    /// The donors that were asked to fetch the copy, each with when it was asked, until it answers.
    pub(crate) asked: BTreeMap<DonorId, Option<Tick>>,
    /// Whether each donor that answered got the right bytes.
    pub(crate) found: BTreeMap<DonorId, bool>,
    /// Whether the manager fetches the copy itself.
    pub(crate) manager_looks: bool,
    /// Whether the manager got the right bytes; `None` until it has fetched the copy.
    pub(crate) manager_found: Option<bool>,
    /// Nobody else is asked; so many heartbeats of the donor have come since.
    pub(crate) heartbeats_since: Option<u32>,
}

impl Inquiry {
    /// Returns how many got the right bytes, and how many did not.
    pub(crate) fn tally(&self) -> (usize, usize) {
        let found = || self.found.values().copied().chain(self.manager_found);
        let right = found().filter(|right| *right).count();
        (right, found().count() - right)
    }
}

/// The steps to take now in inquiries into copies that their donors call sound.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Inquiring {
    /// The donors that were drawn to fetch a copy, each with the donor to fetch it from and the chunk.
    pub by_donors: Vec<(DonorId, DonorId, Holding)>,
    /// The copies that the manager fetches itself, each with its donor, because too few other donors can.
    pub by_manager: Vec<(DonorId, Holding)>,
    /// Donors that are not to be trusted any more, and why.
    pub lies: Vec<(DonorId, String)>,
}
