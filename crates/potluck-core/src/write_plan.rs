//! Writing: which of its planned donors takes a chunk first, and when another takes it in the stead of a planned one
//! (docs/papers.md, CEFT).

use crate::hedging::Rates;
use crate::ids::DonorId;
use std::time::Duration;

/// Sorts the donors of the copies of a chunk by the time at which they are expected to have it, as far as their queues,
/// rates and loads are known; the plan's order decides between equals. The first one takes the chunk first, and a write
/// that waits for one copy only, or has one donor forward the chunk to the others, waits for the donor that is expected
/// first.
pub fn sort_copies(planned: &mut [DonorId], rates: &Rates, bytes: u32) {
    planned.sort_by_cached_key(|donor| {
        rates.get(donor).map_or(Duration::MAX, |estimate| estimate.expected_finish(bytes))
    });
}

/// Returns the donor that takes a chunk, of its first planned donor that has room now and the best of the others of the
/// stripe, if there is one with room.
///
/// The planned donor is skipped where it gives less than half of what it could and the other does not. CEFT skips at
/// most one server of a stripe, for files up to 64 MB. Neither limit is needed here: when the windows of the others
/// are full, the slow donor has its turn, so it gets what the others do not take, and no more.
pub fn taker(planned: Option<DonorId>, other: Option<DonorId>, rates: &Rates) -> Option<DonorId> {
    let estimate = |donor: DonorId| rates.get(&donor);
    let is_slowed = |donor| estimate(donor).is_some_and(|it| it.is_slowed());
    let is_skipped = |planned: &DonorId| {
        let time = |donor| estimate(donor).map(|it| it.time_for(1 << 20));
        is_slowed(*planned)
            && other.is_some_and(|other| !is_slowed(other) && time(other) < time(*planned))
    };
    planned.filter(|planned| !is_skipped(planned)).or(other)
}
