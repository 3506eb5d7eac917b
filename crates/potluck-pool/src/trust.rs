//! Whom to trust. A donor that sends wrong bytes looks at its own copy first: disks rot, and an
//! honest donor quarantines the copy. One that calls a copy sound of which two others say otherwise
//! lies, or its memory does.

use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId};
use std::collections::{BTreeMap, BTreeSet};

/// Complaints about donors.
#[derive(Debug, Default)]
pub struct Complaints {
    /// Who complained, by donor and chunk, where the donor has not looked yet.
    pub(crate) open: BTreeMap<DonorId, BTreeMap<ChunkName, BTreeSet<MemberId>>>,
    /// Whose complaints a donor denied.
    pub(crate) denied: BTreeMap<DonorId, BTreeSet<MemberId>>,
    /// When each member would have made its reports, one every [`REPORT_EVERY`].
    pub(crate) reported: BTreeMap<MemberId, Tick>,
    /// When the reports of each member put the verdict in doubt last.
    pub(crate) doubted: BTreeMap<MemberId, Tick>,
}
