//! `cp --atomic`: what is copied into the pool is staged as a checkpoint, and becomes visible by its commit.

use potluck_client::{CheckpointedWork, Pool};
use potluck_core::path::PoolPath;
use potluck_wire::control::{Condition, EntryKind};
use potluck_wire::error::Failure;

/// When a copy may take the place of a file that is there.
#[derive(Debug, Clone, Copy)]
pub struct Replacing {
    /// What must be so of the file.
    pub condition: Condition,
    /// Whether a file without a byte takes the place of none that has some.
    pub spare_content: bool,
}

/// Where a copy writes: to its target, or out of sight until all of it is there.
pub struct Destination {
    staged: Option<CheckpointedWork>,
    replacing: Replacing,
}

impl Destination {
    /// Begins to copy to `to`, out of sight if `is_atomic`.
    pub async fn begin(
        client: &Pool,
        to: &PoolPath,
        is_atomic: bool,
        replacing: Replacing,
    ) -> Result<Self, Failure> {
        if !is_atomic {
            return Ok(Self { staged: None, replacing });
        }
        // A new name is one entry of the directory above, however much is below it.
        let target = match client.kind(to).await? {
            Some(EntryKind::Dir) => to.clone(),
            _ => to.parent().unwrap_or_else(|| to.clone()),
        };
        let staged = Some(CheckpointedWork::begin(client, &target).await?);
        Ok(Self { staged, replacing })
    }

    /// Whether nothing is visible before [`Destination::finish`].
    pub fn is_staged(&self) -> bool {
        self.staged.is_some()
    }

    /// The path at which what is to be at `path` is written.
    pub fn place(&self, path: &PoolPath) -> Result<PoolPath, Failure> {
        match &self.staged {
            Some(work) => work.checkpoint().staged(path),
            None => Ok(path.clone()),
        }
    }

    /// When a file may be replaced by what is written now. What is staged replaces none; that is asked at the end.
    pub fn replacing(&self) -> Replacing {
        match self.is_staged() {
            true => Replacing { condition: Condition::Always, spare_content: false },
            false => self.replacing,
        }
    }

    /// A text that names files where they will be, and not where they are staged.
    pub fn told(&self, text: &str) -> String {
        match &self.staged {
            Some(work) => {
                let (staging, target) = (work.checkpoint().staging(), work.checkpoint().target());
                text.replace(&staging.to_string(), &target.to_string())
            }
            None => text.to_owned(),
        }
    }

    /// Copies, and keeps what is staged meanwhile.
    pub async fn during<T>(&self, copying: impl Future<Output = T>) -> T {
        match &self.staged {
            Some(work) => work.during(copying).await,
            None => copying.await,
        }
    }

    /// Has all that was copied become visible.
    pub async fn finish(self) -> Result<(), Failure> {
        let Replacing { condition, spare_content } = self.replacing;
        match self.staged {
            Some(work) => work.commit(condition, spare_content).await,
            None => Ok(()),
        }
    }
}
