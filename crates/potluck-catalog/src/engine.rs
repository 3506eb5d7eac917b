//! The engine of the catalog: the one line that says which it is.
//!
//! An engine is a folder like `sqlite/` that provides these names. A catalog is at a path: the file that the engine
//! keeps it in, or a file that says where it is kept.
//!
//! - [`create`] makes an empty catalog, unless one is there, with the rows that the caller writes; [`exists`] returns
//!   whether one is there, and [`files_of`] the files that it may be in.
//! - [`open_existing`] opens a catalog for writing, for the one process that has it. It checks first that the catalog
//!   is sound if that is small or was found damaged before, as [`is_checked_first`] says; [`check_open`] checks another
//!   catalog while it is in use. [`open_whole`] opens a catalog after a longer check. [`open_reader`] opens it for
//!   reading, and [`open_snapshot`] for reading it as it is at one moment.
//! - [`Database`] is an open catalog: `begin` returns a transaction, which is rolled back unless `commit` is called;
//!   `never_sync` leaves the time of writes to the system; `bytes` is the size of the catalog; `close` leaves it as one
//!   file.
//! - [`Tx`] runs statements in a transaction: `prepare`, `execute`, `query_row`, `execute_batch`, `savepoint`; it knows
//!   the numbers that tables give to rows (`last_number`, `skip_numbers`); and it keeps the changes of which somebody
//!   is told after the commit (`note`). A statement returns each [`Row`] as values of four sorts ([`crate::sql`]).
//! - [`CatalogWriter`] runs jobs one after the other, commits many at once, and may run a job again from its start.
//!   [`Readers`] run queries, each on what was committed before.
//! - The engine turns its own errors into [`Error`](crate::Error). For tests it has `limit_pages`, `copy_to` and what
//!   its own tests of damage need.

pub(crate) use crate::sqlite::{
    CatalogWriter, Database, Readers, Row, Tx, check_open, create, exists, files_of,
    is_checked_first, open_existing, open_reader, open_snapshot, open_whole,
};
