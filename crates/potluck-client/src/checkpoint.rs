//! Checkpoints: files that are written out of sight, and become visible at one moment.

use crate::pool::Pool;
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::path::PoolPath;
use potluck_wire::control::{
    CheckpointAbort, CheckpointBegin, CheckpointBegun, CheckpointCommit, CheckpointCommitted,
    CheckpointList, Checkpoints, Condition,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::time::Duration;

/// The number of times that a checkpoint is renewed within the time for which it stays open unused.
const RENEWALS: u32 = 4;

/// A checkpoint that is open. The files that are written below [`Checkpoint::staging`] become visible with its commit.
/// If this is dropped, the checkpoint stays open until it expires.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    id: CheckpointId,
    target: PoolPath,
    staging: PoolPath,
    style: CommitStyle,
    idle: Duration,
}

impl Checkpoint {
    /// Returns the identifier of the checkpoint, by which other clients can write to it, too.
    pub fn id(&self) -> CheckpointId {
        self.id
    }

    /// Returns the directory that the files become, or are merged into.
    pub fn target(&self) -> &PoolPath {
        &self.target
    }

    /// Returns the directory in which the files are staged.
    pub fn staging(&self) -> &PoolPath {
        &self.staging
    }

    /// Returns how long the checkpoint stays open while nothing is written to it.
    pub(crate) fn idle(&self) -> Duration {
        self.idle
    }

    /// Returns the path at which a file is staged whose final place is `path`, which is the target or below it.
    pub fn staged(&self, path: &PoolPath) -> Result<PoolPath, Failure> {
        rebased(path, &self.target, &self.staging)
    }

    /// Rewrites a failure so that it names files by their final paths, and not by those at which they are staged.
    pub fn in_terms_of_target(&self, mut failure: Failure) -> Failure {
        failure.message =
            failure.message.replace(&self.staging.to_string(), &self.target.to_string());
        failure
    }
}

/// Turns a path below `from` into the path at the same place below `to`.
fn rebased(path: &PoolPath, from: &PoolPath, to: &PoolPath) -> Result<PoolPath, Failure> {
    let bad = |why: String| {
        Failure::new(ErrorKind::Usage, code::BAD_PATH, why).hint("choose a shorter path")
    };
    if !path.is_inside(from) {
        return Err(bad(format!("{path} is not in {from}")));
    }
    let below = &path.names()[from.names().len()..];
    let rebased = to.join_all(below.iter().map(String::as_str));
    rebased.map_err(|why| bad(format!("{path} as it is staged: {why}")))
}

impl Pool {
    /// Begins a checkpoint for the directory `target`, which need not be there.
    ///
    /// Errors: [`code::NO_SPACE_NAMED`], [`code::WRONG_KIND`] where a file is in the way, [`code::BAD_PATH`] for a
    /// space that is to be replaced, [`code::TOO_MANY_CHECKPOINTS`].
    pub async fn begin_checkpoint(
        &self,
        target: &PoolPath,
        style: CommitStyle,
    ) -> Result<Checkpoint, Failure> {
        let id = CheckpointId(self.env.entropy.bytes());
        self.join_checkpoint(id, target, style).await
    }

    /// Begins a checkpoint under this identifier, or joins the one that is open under it, which then stays open for
    /// longer.
    ///
    /// Errors: those of [`Pool::begin_checkpoint`]; [`code::NO_CHECKPOINT`] where it has ended, or is for another
    /// target.
    pub async fn join_checkpoint(
        &self,
        id: CheckpointId,
        target: &PoolPath,
        style: CommitStyle,
    ) -> Result<Checkpoint, Failure> {
        let begin = CheckpointBegin { id, target: target.clone(), style };
        let CheckpointBegun { staging, idle_ms } = self.call_retrying(&begin).await?;
        let (target, idle) = (target.clone(), Duration::from_millis(idle_ms));
        Ok(Checkpoint { id, target, staging, style, idle })
    }

    /// Makes all files of a checkpoint visible at one moment. A checkpoint that was committed before stays as it is.
    ///
    /// Errors: [`code::NO_CHECKPOINT`] where it was aborted, has expired or never was; [`code::CLAIMED`] while mounts
    /// have files of it open for writing, unless [`CheckpointCommit::even_if_open`]; where files are merged,
    /// [`code::EXISTS`] and [`code::WRONG_VERSION`] by the condition, [`code::WRONG_KIND`], [`code::EMPTY_INPUT`],
    /// and [`code::BAD_REQUEST`] for too many of them.
    pub async fn commit_checkpoint(
        &self,
        commit: &CheckpointCommit,
    ) -> Result<CheckpointCommitted, Failure> {
        self.call_retrying(commit).await
    }

    /// Removes the files of the checkpoint `id` in a space. A checkpoint that was aborted before, or has expired,
    /// stays so.
    ///
    /// Errors: [`code::CHECKPOINT_COMMITTED`], [`code::NO_CHECKPOINT`] where it is not known any more.
    pub async fn abort_checkpoint(&self, space: &str, id: CheckpointId) -> Result<(), Failure> {
        self.call_retrying(&CheckpointAbort { space: space.to_owned(), id, if_empty: false })
            .await
            .map(drop)
    }

    /// Keeps a checkpoint open until this is dropped.
    pub(crate) async fn keep_open(&self, checkpoint: &Checkpoint) {
        let Checkpoint { id, target, style, idle, .. } = checkpoint;
        loop {
            tokio::time::sleep(*idle / RENEWALS).await;
            if let Err(failure) = self.join_checkpoint(*id, target, *style).await {
                tracing::warn!(%failure, "a checkpoint could not be kept open");
            }
        }
    }

    /// Lists the open checkpoints of the spaces that this member may list, and the checkpoints of this member that were
    /// committed in the last day.
    pub async fn checkpoints(&self) -> Result<Checkpoints, Failure> {
        self.call(&CheckpointList {}).await
    }
}

/// A checkpoint of one piece of work, which is aborted if the work ends without its commit.
pub struct CheckpointedWork {
    client: Pool,
    checkpoint: Checkpoint,
    /// True if the checkpoint was committed, or may have been, so that it must not be aborted.
    has_ended: bool,
}

impl CheckpointedWork {
    /// Begins a checkpoint, whose files are merged into what is in `target`.
    ///
    /// Errors: those of [`Pool::begin_checkpoint`].
    pub async fn begin(client: &Pool, target: &PoolPath) -> Result<Self, Failure> {
        let checkpoint = client.begin_checkpoint(target, CommitStyle::Merge).await?;
        Ok(Self { client: client.clone(), checkpoint, has_ended: false })
    }

    /// Returns the checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Runs `work`, and keeps the checkpoint open meanwhile.
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            done = work => done,
            () = self.client.keep_open(&self.checkpoint) => unreachable!("it never ends"),
        }
    }

    /// Makes the files of the checkpoint visible. If that is refused the checkpoint is aborted; if the manager does not
    /// answer it is left as it is.
    ///
    /// Errors: those of [`Pool::commit_checkpoint`].
    pub async fn commit(
        mut self,
        condition: Condition,
        spare_content: bool,
    ) -> Result<(), Failure> {
        let (space, id) = (self.checkpoint.target.space().to_owned(), self.checkpoint.id);
        let commit = CheckpointCommit { space, id, condition, spare_content, even_if_open: false };
        let committed = self.client.commit_checkpoint(&commit).await;
        // A client that got no answer does not know whether it was committed, and must not abort what may be visible.
        self.has_ended = match &committed {
            Ok(_) => true,
            Err(failure) => failure.code == code::NO_MANAGER,
        };
        committed.map(drop).map_err(|failure| self.checkpoint.in_terms_of_target(failure))
    }
}

impl Drop for CheckpointedWork {
    fn drop(&mut self) {
        if !self.has_ended {
            let (client, id) = (self.client.clone(), self.checkpoint.id);
            let space = self.checkpoint.target.space().to_owned();
            self.client.in_background(async move {
                if let Err(failure) = client.abort_checkpoint(&space, id).await {
                    tracing::debug!(%failure, "a checkpoint stays until it expires");
                }
            });
        }
    }
}
