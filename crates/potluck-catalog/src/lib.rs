//! The catalog: everything the pool must not forget.
//!
//! Its face is the operations of [`Catalog`] ([`operations`]), each of which changes all it changes in
//! one transaction and reads what it tells at one moment, on the plain types that are named here. Below them are functions over a [`Tx`](sql::Tx), a module for each thing that is kept,
//! whose statements are in the SQL that engines share ([`sql`]). The engine ([`engine`]) has one
//! writer that commits many jobs at once, and readers that see the last commit. Each write job is all or
//! nothing, and may run again from its start, so it takes nothing with it and locks nothing of others.

mod authority;
mod bygone;
mod bygone_name;
mod changes;
mod checkpoint_rows;
mod checkpoints;
mod chunks;
mod commit;
mod committed;
mod conversions;
mod copies;
mod counted_copies;
mod dir_id;
mod dir_policies;
mod dir_times;
mod donors;
mod durability;
mod engine;
mod enough_copies;
mod entries;
mod error;
mod excess;
mod export;
mod failure;
mod fault;
#[cfg(any(test, feature = "testing"))]
pub mod fixture;
mod followed;
mod grantees;
mod grants;
mod groups;
mod history;
mod kept;
mod kept_entry;
mod kept_rows;
mod leases;
mod links;
mod lists;
mod log_position;
mod members;
mod meta;
mod names;
mod notes;
mod open;
mod open_checkpoint;
mod open_error;
mod operations;
mod parts;
mod placements;
mod policy_changes;
mod publishing;
mod quotas;
mod reaping;
mod rebuild;
mod records;
mod referrers;
mod rejudging;
mod replay;
mod restored;
mod series;
mod sessions;
mod snapshot_rows;
mod snapshots;
mod spaces;
mod sql;
mod sqlite;
mod stats;
mod system;
mod taken_snapshot;
mod term_history;
mod tokens;
mod trash;
mod units;
mod unlisted;
mod unused_chunks;
mod versions;
mod visible;
mod walk;
mod when;
mod wholes;
mod writer_state;

pub use authority::Authority;
pub use bygone_name::BygoneName;
pub use changes::ChangeNumber;
pub use checkpoint_rows::{CommittedCheckpoint, KnownCheckpoints};
pub use checkpoints::{CheckpointOutcome, NewCheckpoint};
pub use chunks::{KnownChunk, UnusedChunk};
pub use commit::{
    Batch, CommitOutcome, CommitStep, PreparedChunk, PreparedFile, Refused, StoredFile,
};
pub use committed::{ChangeListener, CommittedChange};
pub use conversions::{Computed, Encoded};
pub use copies::{Copied, CopiedVersion, CopyOutcome, CopyRequest};
pub use counted_copies::CountedCopies;
pub use donors::{Goal, StoredDonor};
pub use durability::Durability;
pub use error::Error;
pub use export::CatalogSnapshot;
pub use followed::{Followed, ToFollow};
pub use grants::SeenSpaces;
pub use history::BroughtBack;
pub use kept_entry::KeptEntry;
pub use leases::{LEASE, MOST_LEASES};
pub use log_position::{Advance, Extent, LogCopy, LogPlace, Position};
pub use members::StoredMember;
pub use open::OpenedPage;
pub use open_checkpoint::OpenCheckpoint;
pub use open_error::OpenError;
pub use operations::{
    AdmittedWrite, CommittedFiles, DonorNote, Founding, GroupEdit, Learnt, LogAhead, LogCommitted,
    TIME_LEAP, TermStart, Upkeep, WrittenDown,
};
pub use placements::{Compared, ToldCopies};
pub use policy_changes::PolicyScope;
pub use quotas::{QuotaLimits, StoredQuota};
pub use rebuild::{Rebuild, Revival};
pub use records::Record;
pub use referrers::Referrers;
pub use rejudging::PartsAhead;
pub use restored::RestoredContent;
pub use series::{Series, SeriesStep};
pub use sessions::StoredSession;
pub use spaces::{NewSpace, Space, Sums};
pub use stats::Stats;
pub use system::block_path;
pub use taken_snapshot::TakenSnapshot;
pub use term_history::{LAST_EPOCH, Term};
pub use tokens::{Certified, Moment, NewToken, Token};
pub use units::{Met, PageLimit, Root, SomeUnits, judge as judge_files, kind_of};
pub use unlisted::{ListedNames, Unlisted, unlisted as unlisted_files};
pub use unused_chunks::{Condemned, UnusedSince};
pub use when::{WhatIsKept, When};
pub use writer_state::WriterTimes;

use engine::{CatalogWriter, Readers};
use potluck_core::clock::SharedClock;
use potluck_wire::env::Offload;
use sql::Tx;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::Semaphore;
use writer_state::WriterState;

/// A running catalog. Clones share it.
#[derive(Clone)]
pub struct Catalog {
    offload: Offload,
    writer: Arc<CatalogWriter>,
    state: WriterState,
    readers: Arc<Readers>,
    /// Turns of queries that take long.
    long_reads: Arc<Semaphore>,
    /// Whether it was checked before it was opened.
    is_checked: bool,
}

/// Queries that take long run at once: heartbeats and commits read between them.
const LONG_READS: usize = 2;
/// How long such a query waits for its turn. Its caller asks again.
const LONG_READ_WAIT: Duration = Duration::from_secs(10);

impl Catalog {
    /// Whether a catalog is at `path`, sound or not.
    pub fn is_at(path: &Path) -> bool {
        engine::exists(path)
    }

    /// The files that the catalog at `path` may be in, of which not all need be there.
    pub fn stored_in(path: &Path) -> impl Iterator<Item = PathBuf> {
        engine::files_of(path)
    }

    /// Opens the catalog at `path`, which must exist and be sound. How long that takes does not depend on how large
    /// it is; a large one is left for [`check`](Self::check).
    pub fn open(path: &Path, offload: Offload, clock: SharedClock) -> Result<Self, OpenError> {
        let is_checked = engine::is_checked_first(path);
        let db = engine::open_existing(path)?;
        let state = WriterState::new(clock);
        let writer = CatalogWriter::start(db, offload, state.clone());
        let readers = Arc::new(Readers::new(path));
        let (writer, long_reads) = (Arc::new(writer), Arc::new(Semaphore::new(LONG_READS)));
        Ok(Self { offload, writer, state, readers, long_reads, is_checked })
    }

    /// Checks a catalog that was too large to be checked when it was opened, which may take minutes.
    ///
    /// Errors: it is damaged, and must not be served any longer; or it cannot be read.
    pub async fn check(&self, path: PathBuf) -> Result<(), OpenError> {
        if self.is_checked {
            return Ok(());
        }
        let check = move || match engine::check_open(&path) {
            Ok(None) => Ok(()),
            Ok(Some(detail)) => Err(OpenError::Damaged { path, detail }),
            Err(why) => Err(OpenError::of(&path, why)),
        };
        self.offload.run(check).await
    }

    /// How many changes it has that no power cut undoes; it only grows. Donors are told, and know
    /// by it whether they meet an older copy (`term_history`).
    pub fn changes(&self) -> u64 {
        self.state.changes.load(Ordering::Acquire)
    }

    /// Has `listener` told of all that is committed from now on; the first that is given stays.
    pub fn announce_to(&self, listener: Arc<dyn ChangeListener>) {
        let _ = self.state.listener.set(listener);
    }

    /// How long the writer was held, since the catalog was opened.
    pub fn writer_times(&self) -> &WriterTimes {
        &self.state.times
    }

    /// Runs `job` in the writer. What it did is durable as asked when this returns `Ok`, and has
    /// not happened when it returns an error of the job.
    ///
    /// The job goes on when the future is dropped. It runs again from its start where the engine asks for that.
    async fn write<T: Send + 'static>(
        &self,
        durability: Durability,
        job: impl Fn(&Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.writer.run(durability, job).await
    }

    /// Runs `query` on a snapshot of all that was committed before the call.
    async fn read<T: Send + 'static>(
        &self,
        query: impl Fn(&Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let readers = Arc::clone(&self.readers);
        self.offload.run(move || readers.run(query)).await
    }

    /// Runs a query that may take some tenths of a second when it is its turn.
    async fn read_in_turn<T: Send + 'static>(
        &self,
        query: impl Fn(&Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let turn = tokio::time::timeout(LONG_READ_WAIT, self.long_reads.acquire()).await;
        let _turn = turn.map_err(|_| Error::Busy)?.map_err(|_| Error::Closed)?;
        self.read(query).await
    }

    /// Why the disk did not take a write, until [`Self::disk_recovered`].
    pub fn disk_fault(&self) -> Option<Error> {
        self.state.fault.get()
    }

    /// The disk was seen to take writes again.
    pub fn disk_recovered(&self) {
        self.state.fault.end();
    }

    /// Finishes what was queued and closes the writer; later writes fail. The catalog is one file then,
    /// which may be copied alone, unless somebody still reads it.
    pub async fn close(&self) {
        let (writer, readers) = (Arc::clone(&self.writer), Arc::clone(&self.readers));
        let close = move || {
            readers.close_idle();
            writer.close();
        };
        self.offload.run(close).await;
    }
}

#[cfg(test)]
mod tests;
