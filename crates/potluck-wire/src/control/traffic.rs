//! What members and donors tell of their traffic, and what the pool makes of it.

use super::{Call, Callers, Done, call};
use potluck_core::ids::DonorId;
use potluck_core::traffic::{BothWays, Traffic};
use serde::{Deserialize, Serialize};

/// The most donors of whose traffic one call tells: a client has no more under way at once.
pub const MOST_TOLD: usize = 256;

/// The traffic of a member with one donor since the member last told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DonorTraffic {
    /// The donor that was read or written.
    pub donor: DonorId,
    /// The traffic of each direction.
    pub traffic: BothWays<Traffic>,
}

/// Tells of a member's traffic with donors (users), where no commit or renewal of a lease follows that could: as at the
/// end of a command that only read. The pool takes the median of what its members tell.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TellTraffic {
    /// The traffic, donor by donor; what comes after the first [`MOST_TOLD`] is not looked at.
    pub traffic: Vec<DonorTraffic>,
}
call!(TellTraffic => Done, "tell-traffic", Users, "reading files");

/// The rates of a donor as the pool knows them, and its history.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DonorRates {
    /// The bytes a second that the pool expects of each direction; `None` where nobody measured enough.
    pub rates: BothWays<Option<u64>>,
    /// The number of members by whose measurements that is.
    pub members: BothWays<u32>,
    /// The traffic with clients in the last day, by the donor's own word.
    pub last_day: BothWays<Traffic>,
    /// The traffic with clients in the last thirty days, by the donor's own word.
    pub last_month: BothWays<Traffic>,
    /// The share of the last thirty days for which the donor was heard, 0 to 1.
    pub heard: f64,
}
