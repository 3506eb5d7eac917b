//! Room that somebody reserved for what is going to be written below a path, for some hours.

use crate::path::PoolPath;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The longest time for which room can be reserved.
pub const LONGEST_RESERVATION: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long room is reserved for whoever does not say: as long as people are away from a job over night.
pub const USUAL_RESERVATION: Duration = Duration::from_secs(24 * 3600);

/// Room that is kept free for files below a path, whoever writes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedRoom {
    /// The path of the reservation: files written here, or below, take of its room.
    pub path: PoolPath,
    /// Bytes of files that were asked for.
    pub bytes: u64,
    /// When it ends, in milliseconds of the pool's time without its leaps.
    pub until_ms: u64,
}
