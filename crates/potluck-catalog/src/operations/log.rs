//! Operations on the metadata log: the changes that its copies lack, and the positions that they have.

pub(crate) mod system;

use crate::log::{
    changes::{self, ChangeNumber},
    export::{self, LogChanges},
    log_position,
    log_position::{Advance, LogCopy, Position},
    restored,
};
use crate::operations::commits::commit::{self, Batch, CommitOutcome, Refused};
use crate::policies::conversions;
use crate::versions;
use crate::when::When;
use crate::{Catalog, Durability, Error};
use potluck_core::ids::{SpaceId, VersionId};
use potluck_core::policy::{Policy, Redundancy};
use potluck_pool::{DonorSnapshot, InUseAgain};
use std::convert::Infallible;
use std::sync::Arc;

/// The changes that a copy of the log lacks, at one moment.
#[derive(Debug)]
pub struct LogAhead {
    /// The position of the copy; `None` before its first base.
    pub position: Option<Position>,
    /// The first changes after that position; `None` if there are none, none were asked for, or the copy begins anew,
    /// because it has no position or its generation is lost.
    pub changes: Option<LogChanges>,
    /// The last change that was made.
    pub last: ChangeNumber,
    /// The number of files in all spaces but that of the pool's own metadata.
    pub files: u64,
}

impl LogAhead {
    /// Counts the changes that the copy lacks.
    pub fn waiting(&self) -> u64 {
        let covered = self.position.as_ref().map_or(0, |position| position.change.0);
        (self.last.0 - covered).max(0) as u64
    }
}

/// The outcome of a commit of log blocks.
#[derive(Debug)]
pub struct LogCommitted {
    /// The chunks of the blocks that were condemned or gone and are in use again.
    pub again: InUseAgain,
    /// True if a block has fewer copies than it should.
    pub open: bool,
}

impl Catalog {
    /// Returns the changes that a copy of the log lacks, of the first `rows` rows.
    pub async fn log_ahead(&self, copy: LogCopy, rows: usize) -> Result<LogAhead, Error> {
        let look = move |db: &_| {
            let (position, last) = (Position::of(db, copy)?, ChangeNumber(changes::last(db)?));
            let changes = match &position {
                Some(at) if rows > 0 && !at.lost => export::changes(db, at.change.0, rows)?,
                _ => None,
            };
            let files = restored::content(db)?.files;
            Ok(LogAhead { position, changes, last, files })
        };
        let ahead = self.read(look).await?;
        // A power cut must not undo what a copy of the log has.
        if rows > 0 && ahead.last.0 > self.changes() as i64 {
            self.sync().await?;
        }
        Ok(ahead)
    }

    /// Notes the advance of a copy of the log, if there is one, and forgets the changes that every copy has, or that
    /// are too many to be kept for a copy that cannot be written.
    pub async fn note_log(&self, advance: Option<Advance>) -> Result<(), Error> {
        let note = move |db: &_| match &advance {
            Some(advance) => advance.note(db),
            None => log_position::forget_covered(db),
        };
        self.write(Durability::Process, note).await
    }

    /// Makes blocks part of the pool, and notes the position of the copy on donors in the same transaction. A new
    /// generation takes the place of the one before.
    ///
    /// Errors: a block was refused, or [`Error::NoSession`] if the log has begun anew meanwhile.
    pub async fn commit_log(
        &self,
        batch: Arc<Batch<Infallible>>,
        advance: Advance,
        donors: DonorSnapshot,
        when: When,
    ) -> Result<LogCommitted, Error> {
        let work = move |db: &_| {
            let none = |_: &[_]| Ok(String::new());
            let outcome = commit::commit(db, &batch, false, &donors, when, none)?;
            if advance.begins_generation() {
                system::remove_older(db, advance.after.generation, when)?;
            }
            advance.note(db)?;
            let CommitOutcome::Fresh { files, again } = outcome else {
                return Err(Error::Bug("a batch of the manager's own was repeated".into()));
            };
            let stored: Result<Vec<_>, _> = files.into_iter().collect();
            match stored {
                Ok(stored) => {
                    let versions = stored.iter().map(|file| file.version);
                    let open = conversions::any_open(db, versions)?;
                    Ok(LogCommitted { again, open })
                }
                Err(Refused::Here(why)) => Err(why),
                Err(Refused::Before(never)) => match never {},
            }
        };
        self.write(Durability::Disk, work).await
    }

    /// Returns the space of the pool's own metadata, which is made with `policy` at its first use.
    pub async fn system_space(&self, policy: Policy, wall_ms: i64) -> Result<SpaceId, Error> {
        self.write(Durability::Disk, move |db| system::space(db, &policy, wall_ms)).await
    }

    /// Sets the number of copies of versions of the pool's own metadata. With `lost`, the generation of the log on
    /// donors is given up, because it has gaps or is not kept any more, and a new one takes its place; no change waits
    /// for that. If nothing is to be done, this takes no turn of the writer.
    pub async fn adapt_metadata(
        &self,
        copies: Vec<(VersionId, u32)>,
        lost: bool,
    ) -> Result<(), Error> {
        let is_kept = |at: Option<Position>| at.is_some_and(|at| !at.lost);
        let lost = lost && is_kept(self.read(|db| Position::of(db, LogCopy::OnDonors)).await?);
        if copies.is_empty() && !lost {
            return Ok(());
        }
        let adapt = move |db: &_| {
            for (version, copies) in &copies {
                versions::set_redundancy(db, *version, Redundancy::Copies(*copies), &[])?;
            }
            if lost { system::lose(db) } else { Ok(()) }
        };
        self.write(Durability::Process, adapt).await
    }

    /// Gives up all that donors have of the pool's own metadata.
    pub async fn give_up_metadata(&self, when: When) -> Result<(), Error> {
        self.write(Durability::Process, move |db| system::remove_all(db, when)).await
    }
}
