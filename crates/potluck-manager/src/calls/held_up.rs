//! Calls that are held up for a moment: in the first seconds of a manager's life those that need donors,
//! until the donors that an earlier life heard have reported, so that a restart is noticed by nobody;
//! and those that ask for a verdict, while a donor may just have died.

use crate::pool::Pool;
use crate::service::Service;
use std::time::Duration;

/// After this much of the manager's life nobody is held up any more: a donor that still has not
/// reported died with the earlier life. Longer than a donor pauses between two tries, and shorter
/// than a caller waits for an answer.
const ASSEMBLING: Duration = Duration::from_secs(6);
/// Who asks for a verdict waits no longer than this for a word that is overdue.
const OVERDUE_PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// Holds a call up while `expects` says that donors are still to report.
pub async fn donors_reported(service: &Service, expects: impl Fn(&Pool) -> bool) {
    while service.time.uptime() < ASSEMBLING && expects(&service.pool()) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Holds a verdict up while a donor's next word is overdue, until it is heard or known to be silent:
/// else a pulled cable was not seen for some seconds.
pub async fn up_to_date(service: &Service) {
    let began = service.time.tick();
    let patience = service.config().suspect_after;
    loop {
        let now = service.time.tick();
        let waited = now.saturating_sub(began) > patience || patience > OVERDUE_PATIENCE;
        if waited || !service.pool().is_overdue(now) {
            return;
        }
        tokio::time::sleep(4 * LOOK_EVERY).await;
    }
}
