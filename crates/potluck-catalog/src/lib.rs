//! The catalog: everything the pool must not forget, in one SQLite file.
//!
//! Domain operations are plain functions over a connection, in the modules below; [`Catalog`]
//! runs them. Writes go to one writer that commits many at once ([`writer`]); reads see the last
//! commit from connections of their own. Each write job is all or nothing.

mod acknowledged;
pub mod authority;
pub mod changes;
pub mod chunks;
pub mod commit;
pub mod conversions;
pub mod copies;
pub mod dir_policies;
pub mod donors;
pub mod entries;
pub mod error;
mod excess;
pub mod export;
mod failure;
mod fault;
#[cfg(any(test, feature = "testing"))]
pub mod fixture;
pub mod gc;
pub mod goals;
pub mod lists;
pub mod log_position;
pub mod members;
pub mod names;
pub mod notes;
pub mod open;
mod open_error;
mod operations;
pub mod placements;
mod readers;
pub mod rebuild;
pub mod records;
pub mod replay;
pub mod restored;
pub mod schema;
pub mod sessions;
pub mod spaces;
pub mod stats;
pub mod system;
pub mod term_history;
pub mod tokens;
pub mod trash;
pub mod units;
pub mod unlisted;
pub mod versions;
mod visible;
pub mod walk;
mod writer;

pub use error::Error;
pub use open_error::OpenError;
pub use operations::{
    Ahead, CommittedFiles, Founding, Learnt, LogCommit, LogCommitted, PageLimit, TermStart,
};
pub use writer::Durability;

use fault::DiskFault;
use potluck_wire::env::Offload;
use readers::Readers;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use writer::Writer;

/// A running catalog. Clones share it.
#[derive(Clone)]
pub struct Catalog {
    offload: Offload,
    writer: Arc<Writer>,
    readers: Arc<Readers>,
    changes: Arc<AtomicU64>,
    fault: Arc<DiskFault>,
}

impl Catalog {
    /// Opens the catalog at `path`, which must exist and be sound.
    pub fn open(path: &Path, offload: Offload) -> Result<Self, OpenError> {
        let connection = schema::open_existing(path)?;
        let (changes, fault) = (Arc::default(), Arc::default());
        let writer = Writer::start(connection, offload, Arc::clone(&changes), Arc::clone(&fault));
        let readers = Arc::new(Readers::new(path));
        Ok(Self { offload, writer: Arc::new(writer), readers, changes, fault })
    }

    /// How many changes it has that no power cut undoes; it only grows. Donors are told, and know
    /// by it whether they meet an older copy ([`term_history`]).
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Runs `job` in the writer. What it did is durable as asked when this returns `Ok`, and has
    /// not happened when it returns an error of the job.
    ///
    /// The job goes on when the future is dropped.
    pub async fn write<T: Send + 'static>(
        &self,
        durability: Durability,
        job: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.writer.run(durability, job).await
    }

    /// Runs `query` on a snapshot of all that was committed before the call.
    pub async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let readers = Arc::clone(&self.readers);
        self.offload.run(move || readers.run(query)).await
    }

    /// Why the disk did not take a write, until [`Self::disk_recovered`].
    pub fn disk_fault(&self) -> Option<Error> {
        self.fault.get()
    }

    /// The disk was seen to take writes again.
    pub fn disk_recovered(&self) {
        self.fault.end();
    }

    /// Finishes what was queued and closes the writer; later writes fail.
    pub async fn close(&self) {
        let writer = Arc::clone(&self.writer);
        self.offload.run(move || writer.close()).await;
    }
}

#[cfg(test)]
mod tests;
