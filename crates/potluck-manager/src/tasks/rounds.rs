//! The background work that a manager does in rounds: it ends sessions, takes trash apart, collects garbage, saves the
//! pool's time.

use super::disk_recovery::DiskRecovery;
use super::gc::{self, Garbage};
use super::saved_time::SavedTime;
use super::session_ends::SessionEnds;
use super::trash::Trash;
use crate::handles::handles;
use crate::outcomes::Outcomes;
use crate::pool_time::{PoolTime, SAVE_EVERY};
use crate::wakeup::Wakeup;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// The time between two rounds when no task asks for one earlier.
const EVERY: Duration = Duration::from_millis(250);
/// The number of rounds from one step of garbage collection to the next: a step handles thousands of chunks.
const GC_ROUNDS: u64 = 2;
/// The time between two tries of a disk that did not take a write.
const PROBE_EVERY: Duration = Duration::from_secs(2);

handles! {
    /// The handles for the work in rounds.
    pub struct Rounds {
        background: Wakeup,
        time: PoolTime,
        sessions: SessionEnds,
        trash: Trash,
        garbage: Garbage,
        disk: DiskRecovery,
        saved_time: SavedTime,
    }
}

impl Rounds {
    /// Runs rounds until it is dropped.
    pub async fn run(self) {
        let (mut gc, mut outcomes) = (gc::GcRound::default(), Outcomes::default());
        let mut interval = tokio::time::interval(EVERY);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut saved = self.time.tick();
        let mut probed = saved;
        for round in 0_u64.. {
            tokio::select! {
                _ = interval.tick() => {}
                () = self.background.due() => {}
            }
            outcomes.note("ending sessions", self.sessions.end_expired().await);
            outcomes.note("giving interrupted uploads up", self.sessions.end_parked().await);
            outcomes.note("closing sessions", self.sessions.account_ended().await);
            outcomes.note("letting old versions go", self.trash.let_go().await);
            outcomes.note("emptying the trash", self.trash.empty().await);
            if round % GC_ROUNDS == 0 {
                outcomes.note("collecting garbage", self.garbage.step(&mut gc).await);
                outcomes.note("expiring checkpoints", self.trash.expire_checkpoints().await);
            }
            let now = self.time.tick();
            if self.disk.is_faulty() && now.saturating_sub(probed) >= PROBE_EVERY {
                probed = now;
                outcomes.note("trying the catalog's disk", self.disk.probe().await);
            }
            if now.saturating_sub(saved) >= SAVE_EVERY {
                saved = now;
                outcomes.note("saving the time", self.saved_time.save().await);
                let forgotten = self.garbage.forget_removed_donors().await;
                outcomes.note("forgetting what removed donors had", forgotten);
                outcomes.note("pruning chunks", self.garbage.prune().await);
                outcomes.note("pruning replies", self.trash.prune_replies().await);
            }
        }
    }
}
