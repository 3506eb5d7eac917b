//! Holds calls up for a moment: in the first seconds of a manager's term the calls that need donors, until the donors
//! that an earlier term heard have reported, so that callers do not notice a restart; and calls for a verdict, and
//! commits, while a donor may just have died.

use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::scan_state::ScanState;
use crate::shared_pool::SharedPool;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_pool::Pool;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

handles! {
    /// The handles for holding calls up until donors have reported.
    pub struct WaitingForDonors {
        time: PoolTime,
        pool: SharedPool,
        scan_state: Arc<ScanState>,
    }
}

/// The age of the manager's term from which no call waits for donors to report: a donor that still has not reported
/// died with the earlier term. It is longer than a donor pauses between two tries, and shorter than a caller waits for
/// an answer.
const ASSEMBLING: Duration = Duration::from_secs(6);
/// The longest time for which a call for a verdict, or a commit, is held up; it then goes by what is known.
const VERDICT_LIMIT: Duration = Duration::from_secs(10);
/// The time after which a donor's next heartbeat is overdue: donors send one each second.
const OVERDUE: Duration = Duration::from_secs(2);
/// The time between two looks whether donors have reported.
const LOOK_EVERY: Duration = Duration::from_millis(25);

impl WaitingForDonors {
    /// Holds a call up while `expects` says that donors are still to report.
    pub async fn donors_reported(&self, expects: impl Fn(&Pool) -> bool) {
        while self.time.uptime() < ASSEMBLING && expects(&self.pool.lock()) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Holds a judgement of files up while a donor's next heartbeat is overdue, until the donor is heard or known to be
    /// silent: otherwise a pulled cable would not be seen for some seconds.
    pub async fn none_overdue(&self) {
        let began = self.time.tick();
        let overdue = |now: Tick| self.pool.lock().awaits_word(now.saturating_sub(OVERDUE), now);
        self.hold(began, overdue).await;
    }

    /// Holds a commit up while the next heartbeat of a donor that took a part of it is overdue: a donor that has died
    /// since would count.
    pub async fn none_overdue_of(&self, donors: &BTreeSet<DonorId>) {
        let began = self.time.tick();
        let overdue = |now: Tick| {
            let (pool, since) = (self.pool.lock(), now.saturating_sub(OVERDUE));
            donors.iter().any(|donor| pool.awaits_word_of(*donor, since, now))
        };
        self.hold(began, overdue).await;
    }

    /// Holds a verdict up until it is one of this moment: every donor was heard since the verdict was asked for, or is
    /// known to be silent, and the last scan has seen all changes. Every command then tells the same.
    pub async fn all_seen(&self) {
        let began = self.time.tick();
        self.donors_reported(Pool::expects_listings).await;
        let asked = self.time.tick();
        self.hold(began, |now| {
            let behind = {
                let pool = self.pool.lock();
                if pool.awaits_word(asked, now) {
                    return true;
                }
                self.scan_state.is_behind(&pool.view(now).unheard())
                    || pool.repairs.is_unseen()
                    || pool.is_in_doubt(now)
            };
            if behind {
                self.scan_state.look_again(now);
            }
            behind
        })
        .await;
    }

    /// Holds a call that came at `began` up while `waits` says so, and no longer than [`VERDICT_LIMIT`].
    async fn hold(&self, began: Tick, waits: impl Fn(Tick) -> bool) {
        loop {
            let now = self.time.tick();
            if now.saturating_sub(began) > VERDICT_LIMIT || !waits(now) {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
