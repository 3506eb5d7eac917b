//! The client library, on which every front of Potluck (command line, mount, gateways, Python) is built.
//!
//! A [`Pool`] is a handle on one pool: cheap to clone, for any number of threads, on any Tokio runtime. It opens
//! [`File`]s, which are read anywhere or in order, and [`Session`]s, whose [`Writer`]s take bytes as they
//! come. Memory for what is read and for what is written is bounded for all handles of a pool together.
//! Names, directories, trees and spaces are listed, made, moved, copied and removed by methods of the pool.
//! Local files and trees are copied in by [`put`] and out by [`get_file`] and [`get_tree`]; everything else,
//! such as what operators ask, is one call to the manager ([`Pool::call`]).
//!
//! ```no_run
//! use potluck_client::{Attributes, Pool, PutOptions};
//! use potluck_wire::error::Failure;
//!
//! async fn keep(pool: Pool) -> Result<(), Failure> {
//!     let path = "pot://data/run-7/log".parse().expect("a path");
//!     let mut writer = pool.create(&path, &PutOptions::default(), Attributes::default()).await?;
//!     writer.write(b"step 1\n").await?;
//!     writer.flush().await?; // donors have it
//!     writer.write(b"step 2\n").await?;
//!     writer.finish().await?; // everybody sees it
//!     let file = pool.open(&path).await?;
//!     assert_eq!(file.read_at(7, 4).await?, b"step");
//!     pool.settle().await;
//!     Ok(())
//! }
//! ```

mod attributes;
pub mod blocking;
mod body;
mod buffer;
mod checkpoint;
mod chunk_cache;
mod chunk_source;
mod connecting;
mod content_reader;
mod contribution;
mod copy;
mod donors;
mod facade;
mod fetch;
mod file;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod get;
mod history;
mod leases;
mod link;
mod manager_calls;
mod measured_traffic;
mod parts;
mod pending_links;
mod pool;
mod pool_error;
mod progress;
mod recipe;
mod retry_limits;
mod sealing_again;
mod shared_version;
mod shared_writer;
mod source;
mod stored_rows;
mod suspended;
mod version_composer;
mod write {
    //! The way of written bytes to donors: the sliding window (docs/papers.md, checkpoint store).
    pub mod groups;
    pub mod need;
    pub mod options;
    pub mod pushes;
    pub mod report;
    pub mod reservation;
    pub mod session;
    pub mod sliding_window;
    pub mod targets;
}
mod writer;

pub use attributes::Attributes;
pub use checkpoint::{Checkpoint, CheckpointedWork};
pub use chunk_cache::ChunkCache;
pub use chunk_source::{ChunkSource, OriginSource};
pub use connecting::POOL_VARIABLE;
pub use copy::CopyReport;
pub use file::{File, Part, Reader};
pub use get::{
    ByteRange, CheckedFile, GetOptions, GetReport, cat, check_file, check_tree, get_file, get_link,
    get_tree, get_tree_but,
};
pub use measured_traffic::SeenDonor;
pub use pending_links::PendingLinks;
pub use pool::Pool;
pub use pool_error::{PoolError, PoolErrorReason};
pub use progress::{Progress, Quiet};
pub use retry_limits::{RetryLimits, Wait};
pub use sealing_again::SealedAgain;
pub use shared_version::{SharedWriterState, WriterStatus};
pub use shared_writer::{SharedOutcome, SharedWriter};
pub use source::{Input, Item, Items};
pub use suspended::{Suspended, SuspendedSession};
pub use write::options::PutOptions;
pub use write::pushes::VisibleFile;
pub use write::report::PutReport;
pub use write::session::{PendingReport, Session, put};
pub use writer::{EndedFile, Writer};
