//! Room that a member reserved, for a limited time, for files that are going to be written below a path.

use crate::path::PoolPath;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The longest time for which room can be reserved.
pub const LONGEST_RESERVATION: Duration = Duration::from_secs(30 * 24 * 3600);
/// The time for which room is reserved where none is asked for: as long as people are away from a job over night.
pub const USUAL_RESERVATION: Duration = Duration::from_secs(24 * 3600);

/// Room that is kept free for files below a path, whichever members write them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedRoom {
    /// The path of the reservation: files written here, or below, take of its room.
    pub path: PoolPath,
    /// The bytes of files that were asked for.
    pub bytes: u64,
    /// The time at which the reservation ends, in milliseconds of the pool's time without its leaps.
    pub until_ms: u64,
}
