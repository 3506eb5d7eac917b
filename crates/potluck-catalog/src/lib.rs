//! The catalog: all that the pool must not forget.
//!
//! Its interface is the operations of [`Catalog`] ([`operations`]), on the plain types that are named here. They decide
//! what becomes of a request, and have records of the metadata [`log`] applied; a [`rebuild`] applies those of a log. Below
//! are functions over a [`Tx`](sql::Tx), in a folder for each subject, which know neither: [`names`] and the files that
//! they lead to ([`versions`], [`chunks`]), what they led to in the past ([`history`]), files that are to be published
//! ([`checkpoints`]), [`members`] and their rights, [`policies`] that change, and the pool's facts about itself
//! ([`pool_records`]). Their statements are in the SQL that engines share ([`sql`]). The engine
//! ([`engine`]) has one writer that commits many jobs at once, and readers that see the last commit. Each write job is
//! all or nothing and may run again from its start, so it must have no effect outside the catalog and take no lock.

mod attribute_columns;
mod checkpoints;
mod chunks;
mod durability;
mod engine;
mod error;
mod failure;
mod fault;
#[cfg(any(test, feature = "testing"))]
pub mod fixture;
mod history;
mod kept_replies;
mod leases;
mod log;
mod members;
mod names;
mod open_error;
mod operations;
mod policies;
mod pool_records;
mod read_turns;
mod rebuild;
mod sql;
mod sqlite;
mod versions;
mod when;
mod writer_state;

pub use checkpoints::checkpoint_rows::{CommittedCheckpoint, KnownCheckpoints};
pub use checkpoints::open_checkpoint::OpenCheckpoint;
pub use chunks::counted_copies::CountedCopies;
pub use chunks::followed::{Followed, ToFollow};
pub use chunks::placements::{Compared, HeldAt, ToldCopies};
pub use chunks::referrers::Referrers;
pub use chunks::seen_chunks::{ChunkAsker, KnownChunk};
pub use chunks::stats::Stats;
pub use chunks::units::{Met, PageLimit, SomeUnits, judge as judge_files};
pub use chunks::unlisted::{ListedNames, Unlisted, unlisted as unlisted_files};
pub use chunks::unused_chunks::{Condemned, UnusedSince};
pub use chunks::{CatalogChunk, UnusedChunk};
pub use durability::Durability;
pub use error::Error;
pub use history::bygone_name::{BygoneLink, BygoneName};
pub use history::kept_entry::KeptEntry;
pub use history::taken_snapshot::TakenSnapshot;
pub use kept_replies::{CommitStep, RepeatableCall, RepliesTo};
pub use leases::{LEASE, MOST_LEASES};
pub use log::changes::ChangeNumber;
pub use log::committed::{ChangeListener, CommittedChange};
pub use log::export::CatalogSnapshot;
pub use log::log_position::{Advance, Extent, LogCopy, LogPlace, Position};
pub use log::records::Record;
pub use log::restored::RestoredContent;
pub use members::access_keys::{AccessKey, KeyEnd, MOST_KEYS};
pub use members::authority::Authority;
pub use members::grants::SeenSpaces;
pub use members::quotas::{QuotaLimits, StoredQuota};
pub use members::stored_member::StoredMember;
pub use members::tokens::{Certified, Moment, NewToken, Token};
pub use open_error::OpenError;
pub use operations::checkpoints::{CheckpointOutcome, NewCheckpoint};
pub use operations::commits::commit::{
    Batch, CommitOutcome, PreparedChunk, PreparedFile, Refused, StoredFile,
};
pub use operations::commits::rejudging::PartsAhead;
pub use operations::history::BroughtBack;
pub use operations::log::system::block_path;
pub use operations::names::copies::{Copied, CopiedVersion, CopyOutcome, CopyRequest};
pub use operations::series::steps::{Series, SeriesStep};
pub use operations::spaces::{policy_changes::PolicyScope, rekeying::Rekey};
pub use operations::{
    AdmittedWrite, CommittedFiles, DonorNote, EvictedPage, Founding, GroupEdit, Learnt, LogAhead,
    LogCommitted, TIME_LEAP, TermStart, Upkeep, WrittenDown,
};
pub use policies::conversions::{Computed, Encoded};
pub use pool_records::old_keys::ContentUnderOldKeys;
pub use pool_records::sessions::StoredSession;
pub use pool_records::space_keys::KeyRing;
pub use pool_records::spaces::{NewSpace, Space, Sums};
pub use pool_records::stored_donor::{Goal, StoredDonor};
pub use pool_records::term_history::{LAST_EPOCH, Term};
pub use read_turns::ReadFor;
pub use rebuild::{Rebuild, Revival};
pub use versions::open::{OldPage, OpenedPage};
pub use when::{WhatIsKept, When};
pub use writer_state::WriterTimes;

use engine::{CatalogWriter, Readers};
use log::{changes, committed};
use potluck_core::clock::SharedClock;
use potluck_wire::env::Offload;
use potluck_wire::net::BoxFuture;
use read_turns::ReadTurns;
use sql::Tx;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Semaphore;
use writer_state::WriterState;

/// A running catalog, which is read on somebody's behalf. Clones share it.
#[derive(Clone)]
pub struct Catalog {
    reader: ReadFor,
    turns: Arc<ReadTurns>,
    offload: Offload,
    writer: Arc<CatalogWriter>,
    state: WriterState,
    readers: Arc<Readers>,
    /// The threads that read.
    reads: Arc<Semaphore>,
    /// True if the catalog was checked before it was opened.
    is_checked: bool,
}

/// The most queries that run at once, whoever asks. Each holds a thread and a connection with a cache of some MiB.
const READS: usize = 64;

/// A query whose caller waits for it until this is dropped.
#[derive(Default)]
struct WaitedFor {
    is_over: Arc<AtomicBool>,
}

impl Drop for WaitedFor {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Catalog {
    /// Returns whether a catalog is at `path`, sound or not.
    pub fn is_at(path: &Path) -> bool {
        engine::exists(path)
    }

    /// Returns the files that the catalog at `path` may be in, of which not all need be there.
    pub fn stored_in(path: &Path) -> impl Iterator<Item = PathBuf> {
        engine::files_of(path)
    }

    /// Opens the catalog at `path`, which must exist. A small one is checked first, and so is one that was found
    /// damaged before; any other large one is opened unchecked and left for [`check`](Self::check), so that its size
    /// does not delay the start.
    pub fn open(path: &Path, offload: Offload, clock: SharedClock) -> Result<Self, OpenError> {
        let is_checked = engine::is_checked_first(path);
        let db = engine::open_existing(path)?;
        let last = changes::last(&db).map_err(|why| OpenError::of(path, why))?;
        let state = WriterState::new(clock);
        let writer = CatalogWriter::start(path, (db, last), offload, state.clone());
        let readers = Arc::new(Readers::new(path));
        let (writer, turns, reads) =
            (Arc::new(writer), Arc::default(), Arc::new(Semaphore::new(READS)));
        let reader = ReadFor::Manager;
        Ok(Self { reader, turns, offload, writer, state, readers, reads, is_checked })
    }

    /// Returns this catalog, to be read on behalf of `reader`. One that was just opened is read for the manager.
    pub fn read_by(&self, reader: ReadFor) -> Self {
        Self { reader, ..self.clone() }
    }

    /// Checks a catalog that was too large to be checked when it was opened, which may take minutes.
    ///
    /// Errors: the catalog is damaged, and must not be served any longer; or it cannot be read.
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

    /// Returns the number of changes of the catalog that no power cut undoes; it only grows. Donors are told the
    /// number, and by what they tell of it a manager recognizes an older copy of the catalog (`term_history`).
    pub fn changes(&self) -> u64 {
        self.state.changes.load(Ordering::Acquire)
    }

    /// Tells `listener` of all that is committed from now on. A second listener is ignored.
    pub fn announce_to(&self, listener: Arc<dyn ChangeListener>) {
        let told = move |db: &Tx, changes| {
            if listener.listens() {
                listener.committed(committed::told_of(db, changes));
            }
        };
        let _ = self.state.told.set(Box::new(told));
    }

    /// Returns the times for which the writer was held since the catalog was opened.
    pub fn writer_times(&self) -> &WriterTimes {
        &self.state.times
    }

    /// Runs `job` in the writer. The changes of the job are durable as asked when this returns `Ok`, and none of them
    /// happened when this returns an error of the job.
    ///
    /// The job goes on when the future is dropped. It runs again from its start when the engine needs that.
    async fn write<T: Send + 'static>(
        &self,
        durability: Durability,
        job: impl Fn(&Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.writer.run(durability, job).await
    }

    /// Runs `query` on a snapshot of all that was committed before the call, when its reader has a turn and there is a
    /// thread for it. The query ends when the future is dropped: nobody waits for its answer then.
    ///
    /// Errors: [`Error::Busy`] if the reader gets no turn in time.
    async fn read<T: Send + 'static>(
        &self,
        query: impl Fn(&Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let held = self.place_for_read().await?;
        let (readers, waited_for) = (Arc::clone(&self.readers), WaitedFor::default());
        let gone = Arc::clone(&waited_for.is_over);
        let run = move || {
            let _held = held;
            readers.run(query, &gone)
        };
        self.offload.run(run).await
    }

    fn place_for_read(&self) -> BoxFuture<'_, Result<impl Send + use<>, Error>> {
        Box::pin(async {
            let turn = self.turns.turn(self.reader).await?;
            let thread = Arc::clone(&self.reads).acquire_owned().await;
            Ok((thread.map_err(|_| Error::Closed)?, turn))
        })
    }

    /// Runs a query as [`Self::read`] does that may take some tenths of a second, behind others that do.
    async fn read_long<T: Send + 'static>(
        &self,
        query: impl Fn(&Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let _turn = self.turns.long_turn(self.reader).await?;
        self.read(query).await
    }

    /// Returns the error of the last write that the disk did not take, until [`Self::disk_recovered`] is called.
    pub fn disk_fault(&self) -> Option<Error> {
        self.state.fault.get()
    }

    /// Notes that the disk was seen to take writes again.
    pub fn disk_recovered(&self) {
        self.state.fault.end();
    }

    /// Finishes the queued jobs and closes the writer; later writes fail. The catalog is then one file, which may be
    /// copied alone, unless it is still being read.
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
