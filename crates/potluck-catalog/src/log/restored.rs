//! Makes a catalog that was replayed from records ready to be served.

use crate::error::Error;
use crate::members;
use crate::pool_records::{meta::Counter, notes};
use crate::sql::{Tx, params};

/// The count of numbers, after the last known one, that the lost term may have given to versions.
const SPARE_VERSIONS: u64 = 1 << 20;
/// The count of numbers, after the last known one, that the lost term may have given to members: a certificate must not
/// become another member's.
const SPARE_MEMBERS: u32 = 1000;

/// Freezes garbage collection for the reason `why`, and skips the numbers that the lost term may have given.
///
/// Chunks that no file uses any more are forgotten: a newer catalog may have used them since. On their donors they are
/// unclaimed from now on, and kept. The changes that the replay wrote down are forgotten, too.
pub(crate) fn settle(db: &Tx, why: &str) -> Result<(), Error> {
    db.execute_batch(
        "DELETE FROM placements WHERE chunk IN (SELECT id FROM chunks WHERE refs = 0);
         DELETE FROM chunks WHERE refs = 0;
         DELETE FROM changes;",
    )?;
    Counter::Version.take(db, SPARE_VERSIONS)?;
    members::skip(db, SPARE_MEMBERS)?;
    notes::set(db, notes::GC_FROZEN, why)
}

/// The content of a catalog in numbers, for a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoredContent {
    /// The number of spaces but that of the pool's own metadata.
    pub spaces: u64,
    /// The number of files in those spaces, links included.
    pub files: u64,
    /// The size of all files together, in bytes of plaintext.
    pub bytes: u64,
    /// The number of donors that were not removed.
    pub donors: u64,
}

/// Counts what a catalog holds.
pub(crate) fn content(db: &Tx) -> Result<RestoredContent, Error> {
    let of = potluck_core::path::SYSTEM_SPACE;
    let (spaces, files, bytes): (i64, i64, i64) = db.query_row(
        "SELECT count(*), coalesce(sum(files), 0), coalesce(sum(bytes), 0) FROM spaces
         WHERE name <> ?1",
        params![of],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let donors: i64 = db.query_row(
        "SELECT count(*) FROM members WHERE role = 'donor' AND revoked = 0",
        params![],
        |row| row.get(0),
    )?;
    Ok(RestoredContent {
        spaces: spaces as u64,
        files: files.max(0) as u64,
        bytes: bytes.max(0) as u64,
        donors: donors as u64,
    })
}
