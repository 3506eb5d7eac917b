//! Checkpoints for programs that wait: they stay open while the program lives, whatever it does meanwhile.

use super::{BlockingPool, parsed};
use crate::checkpoint::Checkpoint;
use crate::pool_error::PoolError;
use potluck_core::checkpoint::CommitStyle;
use potluck_wire::control::{CheckpointCommit, Condition};
use tokio::task::JoinHandle;

/// A checkpoint of one directory. What is written at its [staged](BlockingCheckpoint::staged) paths becomes visible at one
/// moment, in place of the directory. One that is dropped without a commit stays open until it expires.
pub struct BlockingCheckpoint {
    pool: BlockingPool,
    checkpoint: Checkpoint,
    /// The task that keeps the checkpoint open.
    renewing: JoinHandle<()>,
}

impl BlockingPool {
    /// Begins a checkpoint for the directory `target`, which need not be there.
    pub fn begin_checkpoint(&self, target: &str) -> Result<BlockingCheckpoint, PoolError> {
        let target = parsed(target)?;
        let checkpoint = self.wait(self.pool.begin_checkpoint(&target, CommitStyle::Replace))?;
        let (pool, kept) = (self.pool.clone(), checkpoint.clone());
        let renewing = self.runtime.spawn(async move { pool.keep_open(&kept).await });
        Ok(BlockingCheckpoint { pool: self.clone(), checkpoint, renewing })
    }
}

impl BlockingCheckpoint {
    /// Returns the path at which a file is written whose place will be `path`, which is the target or below it.
    pub fn staged(&self, path: &str) -> Result<String, PoolError> {
        let path = parsed(path)?;
        Ok(self.checkpoint.staged(&path).map(|staged| staged.to_string())?)
    }

    /// Makes all files of the checkpoint visible at one moment.
    pub fn commit(&self) -> Result<(), PoolError> {
        let commit = CheckpointCommit {
            space: self.checkpoint.target().space().to_owned(),
            id: self.checkpoint.id(),
            condition: Condition::Always,
            spare_content: false,
            even_if_open: false,
        };
        let named = |failure| self.checkpoint.in_terms_of_target(failure);
        self.pool.wait(async { self.pool.pool.commit_checkpoint(&commit).await.map_err(named) })?;
        self.renewing.abort();
        Ok(())
    }

    /// Removes what was written; nothing of it becomes visible.
    pub fn abort(&self) -> Result<(), PoolError> {
        self.renewing.abort();
        let space = self.checkpoint.target().space();
        self.pool.wait(self.pool.pool.abort_checkpoint(space, self.checkpoint.id()))
    }
}

impl Drop for BlockingCheckpoint {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}
