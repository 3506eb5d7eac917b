//! `cp --atomic`: stages the copy as a checkpoint, so that all of it becomes visible with the commit.

use potluck_client::{CheckpointedWork, Pool};
use potluck_core::path::PoolPath;
use potluck_wire::control::{Condition, EntryKind};
use potluck_wire::error::Failure;

/// The conditions under which a copy may replace an existing file.
#[derive(Debug, Clone, Copy)]
pub struct Replacing {
    /// The condition on the existing file.
    pub condition: Condition,
    /// Whether an empty file must not replace one that has content.
    pub spare_content: bool,
}

/// The destination of a copy: its target, or a checkpoint in which it is staged until all of it is stored.
pub struct Destination {
    staged: Option<CheckpointedWork>,
    replacing: Replacing,
}

impl Destination {
    /// Begins a copy to `to`, which is staged if `is_atomic`.
    pub async fn begin(
        client: &Pool,
        to: &PoolPath,
        is_atomic: bool,
        replacing: Replacing,
    ) -> Result<Self, Failure> {
        if !is_atomic {
            return Ok(Self { staged: None, replacing });
        }
        // If the target does not exist as a directory, the checkpoint is for the directory above it.
        let target = match client.kind(to).await? {
            Some(EntryKind::Dir) => to.clone(),
            _ => to.parent().unwrap_or_else(|| to.clone()),
        };
        let staged = Some(CheckpointedWork::begin(client, &target).await?);
        Ok(Self { staged, replacing })
    }

    /// Returns whether nothing is visible before [`Destination::finish`].
    pub fn is_staged(&self) -> bool {
        self.staged.is_some()
    }

    /// Returns the path to write to for what is to be at `path`.
    pub fn place(&self, path: &PoolPath) -> Result<PoolPath, Failure> {
        match &self.staged {
            Some(work) => work.checkpoint().staged(path),
            None => Ok(path.clone()),
        }
    }

    /// Returns the conditions for writes now. Staged files replace none, and the conditions are checked at the commit.
    pub fn replacing(&self) -> Replacing {
        match self.is_staged() {
            true => Replacing { condition: Condition::Always, spare_content: false },
            false => self.replacing,
        }
    }

    /// Returns `text` with the paths at which files will be instead of those where they are staged.
    pub fn told(&self, text: &str) -> String {
        match &self.staged {
            Some(work) => {
                let (staging, target) = (work.checkpoint().staging(), work.checkpoint().target());
                text.replace(&staging.to_string(), &target.to_string())
            }
            None => text.to_owned(),
        }
    }

    /// Awaits `copying`, and keeps the checkpoint from expiring meanwhile.
    pub async fn during<T>(&self, copying: impl Future<Output = T>) -> T {
        match &self.staged {
            Some(work) => work.during(copying).await,
            None => copying.await,
        }
    }

    /// Commits a staged copy, so that all of it becomes visible.
    pub async fn finish(self) -> Result<(), Failure> {
        let Replacing { condition, spare_content } = self.replacing;
        match self.staged {
            Some(work) => work.commit(condition, spare_content).await,
            None => Ok(()),
        }
    }
}
