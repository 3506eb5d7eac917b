//! Checkpoints: files that are staged out of sight, and become visible at one moment.

use crate::checkpoints::{
    checkpoint_rows::{self, KnownCheckpoints},
    open_checkpoint::OpenCheckpoint,
    publishing::Conditions,
    {self, CheckpointOutcome, NewCheckpoint},
};
use crate::when::When;
use crate::{Catalog, Durability, Error};
use potluck_core::checkpoint::CheckpointId;
use potluck_core::path::PoolPath;
use potluck_wire::control::Condition;

impl Catalog {
    /// Begins a checkpoint. One that is open already under its identifier, for the same target and in the same style,
    /// counts as used and stays open for longer.
    pub async fn begin_checkpoint(
        &self,
        new: NewCheckpoint,
        when: When,
    ) -> Result<OpenCheckpoint, Error> {
        self.write(Durability::Disk, move |db| checkpoints::begin(db, &new, when)).await
    }

    /// Makes the files of a checkpoint in a space visible, all at one moment.
    ///
    /// They take the place of the target directory, which costs the same however many files there are, or are merged
    /// into it. In a merge, `condition` holds for each file that is to be replaced, and with `spare_content` no empty
    /// file replaces one that has content. Nothing is visible of a commit that is refused, and the checkpoint stays
    /// open.
    pub async fn commit_checkpoint(
        &self,
        (space, id): (String, CheckpointId),
        (condition, spare_content): (Condition, bool),
        when: When,
    ) -> Result<CheckpointOutcome, Error> {
        let checked = space.clone();
        self.read(move |db| checkpoints::check_lengths(db, (&checked, &id))).await?;
        let how = Conditions { condition, spare_content };
        let commit = move |db: &_| checkpoints::commit(db, (&space, &id), how, when);
        self.write(Durability::Disk, commit).await
    }

    /// Removes the files of a checkpoint in a space, unless that was done before. This is refused after a commit, and
    /// with `if_empty` if the checkpoint has files.
    pub async fn abort_checkpoint(
        &self,
        (space, id): (String, CheckpointId),
        if_empty: bool,
        now_ms: u64,
    ) -> Result<(), Error> {
        let abort = move |db: &_| checkpoints::abort(db, (&space, &id), if_empty, now_ms);
        self.write(Durability::Disk, abort).await
    }

    /// Returns a checkpoint of a space, if it is open.
    pub async fn open_checkpoint(
        &self,
        (space, id): (String, CheckpointId),
    ) -> Result<Option<OpenCheckpoint>, Error> {
        self.read(move |db| checkpoints::find_open(db, (&space, &id))).await
    }

    /// Returns the checkpoint in which writers contribute to the file at a path, if they share it.
    pub async fn shared_file(&self, path: PoolPath) -> Result<Option<OpenCheckpoint>, Error> {
        self.read(move |db| checkpoints::shared_file(db, &path)).await
    }

    /// Returns a file at a path, or below it, that writers share, and for whose next version something is staged.
    pub async fn written_shared_file(&self, path: PoolPath) -> Result<Option<PoolPath>, Error> {
        self.read(move |db| checkpoints::written_shared_file(db, &path)).await
    }

    /// Returns the checkpoints that are open, and the committed ones that are still known.
    pub async fn checkpoints(&self) -> Result<KnownCheckpoints, Error> {
        self.read(checkpoint_rows::all).await
    }
}
