//! The engine of the catalog: the one line that says which it is.
//!
//! An engine is a folder like `sqlite/`, and gives these names. A catalog is at a path: the file that the
//! engine keeps it in, or one that says where it is kept.
//!
//! - [`create`] makes an empty catalog, unless one is there; [`exists`] says whether one is, and [`files_of`]
//!   which files it may be in. [`open_existing`] opens one for who has it alone, after a check that it is
//!   sound unless it is large, which [`check_open`] does then; [`open_whole`] does so with a longer check, [`open_reader`] to read it, [`open_snapshot`] to read
//!   it as it is at one moment.
//! - [`Database`] is an open catalog: `begin` gives a transaction, which is taken back unless it has its
//!   `commit`; `never_sync` leaves the time of writes to the system; `bytes` is its size; `close` leaves it
//!   as one piece.
//! - [`Tx`] runs statements in a transaction: `prepare`, `execute`, `query_row`, `execute_batch`,
//!   `savepoint`; and it knows the numbers that tables give to rows (`last_number`, `skip_numbers`). A
//!   statement gives each [`Row`] as values of four sorts ([`crate::sql`]).
//! - [`CatalogWriter`] runs jobs one after the other, commits many at once, and runs a job again from its start
//!   where transactions met. [`Readers`] run queries, each on what was committed before.
//! - It turns its own errors into [`Error`](crate::Error), and for tests it has `limit_pages`, `copy_to` and
//!   what its own tests of damage need.

pub(crate) use crate::sqlite::{
    CatalogWriter, Database, Readers, Row, Tx, check_open, create, exists, files_of,
    is_checked_first, open_existing, open_reader, open_snapshot, open_whole,
};
