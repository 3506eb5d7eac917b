//! Has removed trees and versions taken apart, step by step (`reaping` in the catalog), and lets kept versions, old
//! checkpoints and old replies go.

use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::settings::Settings;
use potluck_catalog::{Catalog, Error, Upkeep};
use std::sync::Arc;
use std::time::Duration;

/// The most steps of one kind in a round, so that other work has its turn.
const STEPS: usize = 128;
/// The most entries of removed trees and chunks of their files in one step, which ends sooner when that takes long.
const ENTRIES: usize = 2000;
/// The most replies forgotten in one step: some are of a thousand files.
const REPLIES: usize = 64;
/// The most checkpoints that are aborted or forgotten in one step.
const CHECKPOINTS: usize = 16;
/// The most kept versions that are let go in one step.
const KEPT: usize = 64;
/// The time for which the reply of a commit can be asked for again.
const REPLIES_KEPT: Duration = Duration::from_secs(3600);

handles! {
    /// The handles for emptying the trash.
    pub struct Trash {
        settings: Arc<Settings>,
        time: PoolTime,
        catalog: Catalog,
    }
}

impl Trash {
    /// Takes a part of the removed trees apart.
    pub async fn empty(&self) -> Result<(), Error> {
        let kept_ms = self.settings.get().gc_delay.as_millis() as u64;
        self.steps(Upkeep::Trash { entries: ENTRIES, kept_ms }).await
    }

    /// Aborts checkpoints that nothing was written to for long.
    pub async fn expire_checkpoints(&self) -> Result<(), Error> {
        self.steps(Upkeep::Checkpoints { most: CHECKPOINTS }).await
    }

    /// Lets the old versions and removed files go that were kept as long as their policy says.
    pub async fn let_go(&self) -> Result<(), Error> {
        self.steps(Upkeep::Kept { most: KEPT }).await
    }

    /// Forgets the replies that were kept for [`REPLIES_KEPT`].
    pub async fn prune_replies(&self) -> Result<(), Error> {
        let before_ms = self.time.now_ms().saturating_sub(REPLIES_KEPT.as_millis() as u64);
        self.steps(Upkeep::Replies { before_ms, replies: REPLIES }).await
    }

    /// Repeats a step while it leaves something to do, [`STEPS`] times at most.
    async fn steps(&self, step: Upkeep) -> Result<(), Error> {
        for _ in 0..STEPS {
            if !self.catalog.upkeep(step, self.time.now_ms()).await? {
                break;
            }
        }
        Ok(())
    }
}
