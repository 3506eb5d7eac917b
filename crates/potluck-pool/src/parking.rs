//! A session whose client is away.

use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use std::collections::BTreeMap;

/// A session whose client is away.
#[derive(Debug)]
pub struct Parked {
    pub(crate) since: Tick,
    /// What was promised to it and not used: promised again when it goes on.
    pub(crate) promised: BTreeMap<DonorId, u64>,
}
