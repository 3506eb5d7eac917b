//! The metadata log: what its copies lack, and how far they have come.

use crate::changes::{self, ChangeNumber};
use crate::commit::{self, Batch, CommitOutcome, Refused};
use crate::export::{self, LogChanges};
use crate::log_position::{Advance, LogCopy, Position};
use crate::names::When;
use crate::{Catalog, Durability, Error, conversions, log_position, system, versions};
use potluck_core::ids::{SpaceId, VersionId};
use potluck_core::policy::{Policy, Redundancy};
use potluck_pool::{DonorSnapshot, InUseAgain};
use std::convert::Infallible;
use std::sync::Arc;

/// Rows of changes that are read at once.
const ROWS: usize = 1000;

/// The changes that a copy of the log lacks, at one moment.
#[derive(Debug)]
pub struct LogAhead {
    /// How far the copy has come; `None` before its first base.
    pub position: Option<Position>,
    /// The first changes after that; `None` if there are none, or if a base is due.
    pub changes: Option<LogChanges>,
    /// The last change that was made.
    pub last: ChangeNumber,
}

/// Blocks that became part of the pool.
#[derive(Debug)]
pub struct LogCommitted {
    /// Chunks that nobody used before.
    pub again: InUseAgain,
    /// Whether a block has fewer copies than it should.
    pub open: bool,
}

impl Catalog {
    /// Returns the changes that a copy of the log lacks.
    pub async fn log_ahead(&self, copy: LogCopy) -> Result<LogAhead, Error> {
        let look = move |db: &_| {
            let (position, last) = (Position::of(db, copy)?, ChangeNumber(changes::last(db)?));
            let changes = match &position {
                Some(at) if !at.is_worn() => export::changes(db, at.change.0, ROWS)?,
                _ => None,
            };
            Ok(LogAhead { position, changes, last })
        };
        self.read(look).await
    }

    /// How many changes a copy of the log lacks.
    pub async fn log_waiting(&self, copy: LogCopy) -> Result<u64, Error> {
        let count = move |db: &_| {
            let covered = Position::of(db, copy)?.map_or(0, |position| position.change.0);
            Ok((changes::last(db)? - covered).max(0) as u64)
        };
        self.read(count).await
    }

    /// Notes how far a copy of the log has come, and forgets the changes that every copy has now.
    pub async fn note_log(&self, advance: Advance) -> Result<(), Error> {
        self.write(Durability::Process, move |db| advance.note(db)).await
    }

    /// Forgets changes that no copy may wait for any longer, as when neither copy can be written.
    pub async fn limit_log(&self) -> Result<(), Error> {
        self.write(Durability::Process, log_position::forget_covered).await
    }

    /// Gives up the copy of the log on donors, where none is kept: no change waits for it. Where that was done
    /// before, a look takes no turn of the writer; done twice, it changes nothing more.
    pub async fn discard_log(&self) -> Result<(), Error> {
        if self.read(|db| Position::of(db, LogCopy::OnDonors)).await?.is_none_or(|at| at.lost) {
            return Ok(());
        }
        self.write(Durability::Process, system::lose).await
    }

    /// Makes blocks part of the pool, and notes in the same transaction how far the copy on donors has
    /// come; a new generation takes the place of the one before.
    pub async fn commit_log(
        &self,
        batch: Arc<Batch<Infallible>>,
        advance: Advance,
        donors: DonorSnapshot,
        when: When,
    ) -> Result<LogCommitted, Error> {
        let work = move |db: &_| {
            let view = donors.current();
            let none = |_: &[_]| Ok(String::new());
            let outcome =
                commit::commit(db, &batch, false, &view, when.pool_ms, when.wall_ms, none)?;
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

    /// The space of the pool's own metadata, made with `policy` at its first use.
    pub async fn system_space(&self, policy: Policy, wall_ms: i64) -> Result<SpaceId, Error> {
        self.write(Durability::Disk, move |db| system::space(db, &policy, wall_ms)).await
    }

    /// Has versions of the pool's own metadata be kept in so many copies from now on; with `lost`, a new
    /// generation of the log on donors takes the place of one that has gaps.
    pub async fn adapt_metadata(
        &self,
        copies: Vec<(VersionId, u32)>,
        lost: bool,
    ) -> Result<(), Error> {
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
