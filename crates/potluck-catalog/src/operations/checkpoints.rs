//! Checkpoints: files that are staged out of sight, and become visible at one moment.

use crate::checkpoints::{
    self, CheckpointOutcome, CountedCheckpoint, NewCheckpoint, OpenCheckpoint,
};
use crate::grants::SeenSpaces;
use crate::names::When;
use crate::{Catalog, Durability, Error};
use potluck_core::checkpoint::CheckpointId;
use potluck_wire::control::Condition;

impl Catalog {
    /// Begins a checkpoint. To begin one that is open, for the same target, has it stay open for longer.
    pub async fn begin_checkpoint(
        &self,
        new: NewCheckpoint,
        when: When,
    ) -> Result<OpenCheckpoint, Error> {
        self.write(Durability::Disk, move |db| checkpoints::begin(db, &new, when)).await
    }

    /// Has the files of a checkpoint become visible, all at one moment: in the place of the directory that is its target,
    /// which costs the same however many they are, or among what is there, under the `condition` on each file that one of
    /// them is to replace; with `spare_content` none without a byte replaces one that has some. Nothing is visible of a
    /// commit that is refused, and the checkpoint stays open.
    pub async fn commit_checkpoint(
        &self,
        id: CheckpointId,
        condition: Condition,
        spare_content: bool,
        when: When,
    ) -> Result<CheckpointOutcome, Error> {
        self.read(move |db| checkpoints::check_lengths(db, &id)).await?;
        let commit =
            move |db: &_| checkpoints::commit(db, &id, condition, spare_content, when);
        self.write(Durability::Disk, commit).await
    }

    /// Removes the files of a checkpoint, unless that was done before.
    pub async fn abort_checkpoint(&self, id: CheckpointId, now_ms: u64) -> Result<(), Error> {
        self.write(Durability::Disk, move |db| checkpoints::abort(db, &id, now_ms)).await
    }

    /// The checkpoints that are open in the spaces that are `seen`, those that began first before others; each with what
    /// is staged for it as it is when that is looked at.
    pub async fn open_checkpoints(
        &self,
        seen: SeenSpaces,
    ) -> Result<Vec<CountedCheckpoint>, Error> {
        let mut found = Vec::new();
        for open in self.read(move |db| checkpoints::all(db, &seen)).await? {
            found.push(self.read(move |db| checkpoints::counted(db, open.clone())).await?);
        }
        Ok(found)
    }
}
