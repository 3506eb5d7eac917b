//! The engine SQLite: files that are opened and checked, the one writer, readers, and the statements of a transaction.

mod file;
mod log_syncer;
mod readers;
#[cfg(any(test, feature = "testing"))]
mod testing;
mod tx;
mod write_ahead_log;
mod writer;

pub use file::{
    Database, check_open, create, exists, files_of, is_checked_first, open_existing, open_reader,
    open_snapshot, open_whole,
};
pub use readers::Readers;
pub use tx::{Row, Tx};
pub use writer::CatalogWriter;
