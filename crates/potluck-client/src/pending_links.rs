//! Symbolic links that wait to be made in the pool, several by one call.

use crate::pool::Pool;
use potluck_core::path::PoolPath;
use potluck_wire::control::{Condition, MAX_LINKS, MakeLinks, NewLink};
use potluck_wire::error::Failure;

/// Symbolic links that wait to be made, and the outcome for those before.
pub struct PendingLinks {
    client: Pool,
    condition: Condition,
    pending: Vec<NewLink>,
    /// The number of links that were made.
    pub made: u64,
    /// The links that could not be made, with the reasons.
    pub failed: Vec<(PoolPath, Failure)>,
}

impl PendingLinks {
    /// Makes an empty list of links; `condition` says when a link may replace another.
    pub fn new(client: &Pool, condition: Condition) -> Self {
        let (pending, made, failed) = Default::default();
        Self { client: client.clone(), condition, pending, made, failed }
    }

    /// Adds a link, and makes those that wait when they fill a call.
    ///
    /// Errors: those of [`PendingLinks::make`].
    pub async fn add(&mut self, link: NewLink) -> Result<(), Failure> {
        self.pending.push(link);
        if self.pending.len() == MAX_LINKS { self.make().await } else { Ok(()) }
    }

    /// Makes the links that wait, with the directories above them that are missing.
    ///
    /// Errors: those of the call as a whole, after which its links are forgotten; they are in neither count.
    pub async fn make(&mut self) -> Result<(), Failure> {
        let links = std::mem::take(&mut self.pending);
        if links.is_empty() {
            return Ok(());
        }
        let asked = links.len() as u64;
        let call = MakeLinks { links, parents: true, condition: self.condition };
        let answer = self.client.call_retrying(&call).await?;
        self.made += asked - (answer.failed.len() as u64).min(asked);
        self.failed.extend(answer.failed.into_iter().map(|link| (link.path, link.failure)));
        Ok(())
    }
}
