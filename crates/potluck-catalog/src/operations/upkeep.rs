//! Operations on the pool's clock and figures, and the work in the background.

pub(crate) mod reaping;

use crate::checkpoints::checkpoint_rows;
use crate::chunks::{
    stats::{self, Stats},
    unused_chunks,
};
use crate::history::{snapshot_rows, trash};
use crate::kept_replies;
use crate::operations::{checkpoints, history};
use crate::pool_records::{donor_traffic, donors, meta, sessions};
use crate::sql::Tx;
use crate::when::When;
use crate::{Catalog, Durability, Error, members};
use potluck_core::ids::{DonorId, MemberId, SessionId};
use potluck_pool::SavedTraffic;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The time for which a step of the work in the background holds the writer, however slow the disk is. The step ends
/// with the piece that is under way then.
const STEP: Duration = Duration::from_millis(20);
/// The most entries, copies or chunks of one piece: some milliseconds where a row has to be read from the disk.
const PIECE: usize = 32;

/// Work that is done in the background, step by step. A step ends at its limit, or sooner when it has held the writer
/// for long enough.
#[derive(Debug, Clone, Copy)]
pub enum Upkeep {
    /// Takes removed trees and versions apart.
    Trash {
        /// The most entries of trees, and chunks of their files, of one step.
        entries: usize,
        /// The time in milliseconds for which a removed version that readers have, or may have, open stays whole.
        kept_ms: u64,
    },
    /// Accounts for what an ended session offered.
    EndedSession {
        /// The identifier of the session.
        id: SessionId,
        /// The pool's time, in milliseconds, since which the chunks of the session count as unused.
        unused_since_ms: u64,
    },
    /// Forgets the copies at donors that were removed from the pool. No donor comes back under the number of a removed
    /// one, and a donor that takes its store over lists what is there.
    RemovedDonors {
        /// The most copies of one step.
        copies: usize,
    },
    /// Forgets chunks that have been gone from everywhere for long.
    ReclaimedChunks {
        /// The pool's time, in milliseconds, at which the chunks were gone at the latest.
        before_ms: u64,
        /// The most chunks of one step.
        chunks: usize,
    },
    /// Aborts checkpoints that are idle for too long or whose directory was removed, and forgets those that ended long
    /// ago.
    Checkpoints {
        /// The most checkpoints of one step.
        most: usize,
    },
    /// Lets go what was replaced or removed, when its time or the snapshot that it was kept for has ended.
    Kept {
        /// The most kept things of one step.
        most: usize,
    },
    /// Forgets the replies that were given to commits.
    Replies {
        /// The pool's time, in milliseconds, before which the forgotten replies were made.
        before_ms: u64,
        /// The most replies of one step.
        replies: usize,
    },
}

impl Catalog {
    /// Counts files, chunks and copies, to be shown to people, while these donors are dead.
    pub async fn stats(&self, dead: BTreeSet<DonorId>) -> Result<Stats, Error> {
        self.read(move |db| stats::count(db, &dead)).await
    }

    /// Waits until all changes that were asked for before are made.
    pub async fn in_turn(&self) -> Result<(), Error> {
        self.write(Durability::Process, |_| Ok(())).await
    }

    /// Returns when no power cut undoes what was changed before.
    pub async fn sync(&self) -> Result<(), Error> {
        self.write(Durability::Disk, |_| Ok(())).await
    }

    /// Saves the pool's time, the times at which members were seen, and those at which donors were heard. They are
    /// saved together, so that the silence of a donor is known after a crash. What is known of some donors' `traffic`
    /// is saved by the same write.
    pub async fn save_time(
        &self,
        now_ms: u64,
        seen: Vec<(MemberId, i64)>,
        heard: Vec<(DonorId, u64)>,
        traffic: Vec<(DonorId, SavedTraffic)>,
    ) -> Result<(), Error> {
        let save = move |db: &_| {
            meta::save_pool_time(db, now_ms)?;
            members::seen(db, &seen)?;
            donors::heard(db, &heard)?;
            donor_traffic::save(db, &traffic)
        };
        self.write(Durability::Process, save).await
    }

    /// Takes a step of work in the background, and returns whether there may be more to do.
    pub async fn upkeep(&self, step: Upkeep, now_ms: u64) -> Result<bool, Error> {
        // Mostly there is nothing to do, which a read finds out without a turn of the writer.
        let is_due = match step {
            Upkeep::Trash { .. } => self.read(trash::any).await?,
            Upkeep::Checkpoints { .. } => {
                self.read(move |db| checkpoint_rows::any_due(db, now_ms)).await?
            }
            Upkeep::Kept { .. } => {
                let is_due = move |db: &_| {
                    Ok(history::any_due(db, now_ms)? || snapshot_rows::any_ended(db)?.is_some())
                };
                self.read(is_due).await?
            }
            _ => true,
        };
        if !is_due {
            return Ok(false);
        }
        let clock = Arc::clone(&self.state.clock);
        let work = move |db: &_| {
            let (mut left, piece) = step.most_and_piece();
            let began = clock.now();
            while left > 0 {
                let now = piece.min(left);
                if !step.of(now).work(db, now_ms)? {
                    return Ok(false);
                }
                left -= now;
                if clock.now().saturating_sub(began) >= STEP {
                    break;
                }
            }
            Ok(true)
        };
        self.write(Durability::Process, work).await
    }
}

impl Upkeep {
    /// Returns the most items of a step of the work, and the items of one piece of it.
    fn most_and_piece(self) -> (usize, usize) {
        match self {
            Self::Trash { entries: most, .. }
            | Self::RemovedDonors { copies: most }
            | Self::ReclaimedChunks { chunks: most, .. } => (most, PIECE),
            // A reply may be about hundreds of files, and a checkpoint or a kept thing may have many rows of its own,
            // so each is a piece by itself.
            Self::Replies { replies: most, .. }
            | Self::Checkpoints { most }
            | Self::Kept { most } => (most, 1),
            Self::EndedSession { .. } => (1, 1),
        }
    }

    /// Returns the same work limited to `count` items; the work of [`Self::EndedSession`] has no limit.
    fn of(mut self, count: usize) -> Self {
        match &mut self {
            Self::Trash { entries: most, .. }
            | Self::RemovedDonors { copies: most }
            | Self::ReclaimedChunks { chunks: most, .. }
            | Self::Checkpoints { most }
            | Self::Kept { most }
            | Self::Replies { replies: most, .. } => *most = count,
            Self::EndedSession { .. } => {}
        }
        self
    }

    /// Does the whole step, and returns whether there may be more to do.
    fn work(self, db: &Tx, now_ms: u64) -> Result<bool, Error> {
        match self {
            Self::Trash { entries, kept_ms } => reaping::reap(db, entries, kept_ms, now_ms),
            Self::EndedSession { id, unused_since_ms } => {
                sessions::account(db, &id, unused_since_ms).map(|done| !done)
            }
            Self::RemovedDonors { copies } => {
                unused_chunks::forget_removed_donors(db, copies, now_ms)
            }
            Self::ReclaimedChunks { before_ms, chunks } => {
                unused_chunks::prune_gone(db, before_ms, chunks)
            }
            Self::Checkpoints { most } => checkpoints::expire(db, most, now_ms),
            Self::Kept { most } => {
                let when = When { pool_ms: now_ms, ..When::default() };
                Ok(history::release(db, most, when)? || history::expire(db, most, now_ms)?)
            }
            Self::Replies { before_ms, replies } => kept_replies::prune(db, before_ms, replies),
        }
    }
}
