//! The pool's name, clock and figures, and what sessions leave behind.

use crate::stats::{self, Stats};
use crate::{Catalog, Durability, Error, commit, donors, members, meta, sessions};
use potluck_core::ids::{DonorId, MemberId, SessionId};

impl Catalog {
    /// Returns the name of the pool.
    pub async fn pool_name(&self) -> Result<String, Error> {
        self.read(meta::pool_name).await
    }

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

    /// Accounts for some of what an ended session offered, which is unused since then; whether all is
    /// accounted for.
    pub async fn account_session(
        &self,
        id: SessionId,
        unused_since_ms: u64,
    ) -> Result<bool, Error> {
        let account = move |db: &_| sessions::account(db, &id, unused_since_ms);
        self.write(Durability::Process, account).await
    }

    /// Forgets what was replied to commits before `before_ms`.
    pub async fn prune_replies(&self, before_ms: u64) -> Result<(), Error> {
        self.write(Durability::Process, move |db| commit::prune_replies(db, before_ms)).await
    }
}
