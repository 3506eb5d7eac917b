//! The first seconds of a manager's life: calls that need donors are held up until the donors that
//! an earlier life heard have reported, so that a restart is noticed by nobody.

use crate::pool::Pool;
use crate::service::Service;
use std::time::Duration;

/// After this much of the manager's life nobody is held up any more: a donor that still has not
/// reported died with the earlier life. Longer than a donor pauses between two tries, and shorter
/// than a caller waits for an answer.
const SETTLING: Duration = Duration::from_secs(6);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// Holds a call up while `expects` says that donors are still to report.
pub async fn settled(service: &Service, expects: impl Fn(&Pool) -> bool) {
    while service.time.uptime() < SETTLING && expects(&service.pool()) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
