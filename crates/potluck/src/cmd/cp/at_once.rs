//! `cp --atomic`: what is copied into the pool is staged as a checkpoint, and becomes visible by its commit.

use super::{CpReport, condition};
use crate::args::CpArgs;
use potluck_client::{Pool, Staging};
use potluck_core::path::PoolPath;
use potluck_wire::control::{Condition, EntryKind};
use potluck_wire::error::Failure;

/// Where a copy writes: to its target, or out of sight until all of it is there.
pub struct Destination {
    staging: Option<Staging>,
    condition: Condition,
    spare_content: bool,
}

impl Destination {
    /// Begins to copy to `to`.
    pub async fn begin(args: &CpArgs, client: &Pool, to: &PoolPath) -> Result<Self, Failure> {
        let (condition, spare_content) = (condition(args), !args.allow_empty);
        if !args.atomic {
            return Ok(Self { staging: None, condition, spare_content });
        }
        // A new name is one entry of the directory above, however much is below it.
        let target = match client.kind(to).await? {
            Some(EntryKind::Dir) => to.clone(),
            _ => to.parent().unwrap_or_else(|| to.clone()),
        };
        let staging = Some(Staging::begin(client, &target).await?);
        Ok(Self { staging, condition, spare_content })
    }

    /// The path at which what is to be at `path` is written.
    pub fn place(&self, path: &PoolPath) -> Result<PoolPath, Failure> {
        match &self.staging {
            Some(staging) => staging.checkpoint().staged(path),
            None => Ok(path.clone()),
        }
    }

    /// The condition under which a file is written. That of what is staged is looked at by the commit.
    pub fn condition(&self) -> Condition {
        if self.staging.is_some() { Condition::Always } else { self.condition }
    }

    /// Whether a file without content is refused where one that has some is. Of what is staged the commit says so.
    pub fn spare_content(&self) -> bool {
        self.staging.is_none() && self.spare_content
    }

    /// Copies, and has all that was copied become visible, or none if anything failed.
    pub async fn finish(
        self,
        copying: impl AsyncFnOnce(&Self) -> Result<CpReport, Failure>,
    ) -> Result<CpReport, Failure> {
        let Some(staging) = &self.staging else { return copying(&self).await };
        let copied = staging.during(copying(&self)).await;
        let checkpoint = staging.checkpoint();
        let mut report = copied.map_err(|failure| checkpoint.in_terms_of_target(failure))?;
        if let Some(failed) = report.failed.drain(..).next() {
            let mut failure = checkpoint.in_terms_of_target(failed.error);
            failure.message.push_str("; so nothing became visible");
            return Err(failure);
        }
        let (staged, target) = (checkpoint.staging().to_string(), checkpoint.target().to_string());
        for stored in &mut report.versions {
            if let Some(below) = stored.path.strip_prefix(&staged) {
                stored.path = format!("{target}{below}");
            }
        }
        let (condition, spare_content) = (self.condition, self.spare_content);
        if let Some(staging) = self.staging {
            staging.commit(condition, spare_content).await?;
        }
        Ok(report)
    }
}
