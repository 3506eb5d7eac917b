//! The pool's clock and figures, and the work in the background.

use crate::stats::{self, Stats};
use crate::{
    Catalog, Durability, Error, commit, donors, members, meta, reaping, sessions, trash,
    unused_chunks,
};
use potluck_core::ids::{DonorId, MemberId, SessionId};

/// Work that is done in the background, step by step.
#[derive(Debug, Clone, Copy)]
pub enum Upkeep {
    /// Takes apart what was removed: so many entries of trees, and chunks of their files, in one step.
    Trash {
        /// The most entries of one step.
        entries: usize,
        /// How long a file that is made of parts stays whole, for those who have it open.
        kept_ms: u64,
    },
    /// Accounts for what an ended session offered.
    EndedSession {
        /// The id of the session.
        id: SessionId,
        /// The pool's time since which its chunks count as unused.
        unused_since_ms: u64,
    },
    /// Forgets what donors had that were removed from the pool. No donor comes back under the number of a removed
    /// one, and one that takes its store over lists what is there.
    RemovedDonors {
        /// The most copies of one step.
        copies: usize,
    },
    /// Forgets chunks that have been gone from everywhere for long.
    ReclaimedChunks {
        /// The pool's time since which they have been gone.
        before_ms: u64,
        /// The most chunks of one step.
        chunks: usize,
    },
    /// Forgets what was replied to commits.
    Replies {
        /// The pool's time before which they were made.
        before_ms: u64,
        /// The most replies of one step.
        replies: usize,
    },
}

impl Catalog {
    /// Counts files, chunks and copies, to be shown to people.
    pub async fn stats(&self) -> Result<Stats, Error> {
        self.read(stats::count).await
    }

    /// Waits until all changes are made that were asked for before.
    pub async fn in_turn(&self) -> Result<(), Error> {
        self.write(Durability::Process, |_| Ok(())).await
    }

    /// Saves the pool's time, when members were seen, and when donors were heard: together, so that how
    /// long a donor was silent can be told after a crash.
    pub async fn save_time(
        &self,
        now_ms: u64,
        seen: Vec<(MemberId, i64)>,
        heard: Vec<(DonorId, u64)>,
    ) -> Result<(), Error> {
        let save = move |db: &_| {
            meta::save_pool_time(db, now_ms)?;
            members::seen(db, &seen)?;
            donors::heard(db, &heard)
        };
        self.write(Durability::Process, save).await
    }

    /// Takes a step of the work that nobody waits for, some ten milliseconds at most; whether there may be more to do.
    pub async fn upkeep(&self, step: Upkeep, now_ms: u64) -> Result<bool, Error> {
        // Mostly nothing was thrown away, and a look takes no turn of the writer.
        if matches!(step, Upkeep::Trash { .. }) && !self.read(trash::any).await? {
            return Ok(false);
        }
        let work = move |db: &_| match step {
            Upkeep::Trash { entries, kept_ms } => reaping::reap(db, entries, kept_ms, now_ms),
            Upkeep::EndedSession { id, unused_since_ms } => {
                sessions::account(db, &id, unused_since_ms).map(|done| !done)
            }
            Upkeep::RemovedDonors { copies } => {
                unused_chunks::forget_removed_donors(db, copies, now_ms)
            }
            Upkeep::ReclaimedChunks { before_ms, chunks } => {
                unused_chunks::prune_gone(db, before_ms, chunks)
            }
            Upkeep::Replies { before_ms, replies } => commit::prune_replies(db, before_ms, replies),
        };
        self.write(Durability::Process, work).await
    }
}
