//! A session whose client is away.

use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use std::collections::BTreeMap;

/// A session whose client is away.
#[derive(Debug)]
pub struct Parked {
    pub(crate) since: Tick,
    /// Bytes promised to the session and not used, by donor: promised again when it goes on.
    pub(crate) promised: BTreeMap<DonorId, u64>,
}
