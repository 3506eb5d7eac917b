//! A catalog that was replayed from records, made ready to serve.

use super::error::Error;
use super::meta::Counter;
use super::{members, notes};
use crate::sql::{Tx, params};

/// Numbers that the lost term may have given to versions after what is known of it.
const SPARE_VERSIONS: u64 = 1 << 20;
/// Numbers that the lost term may have given to members after what is known of it: a certificate
/// must not become another member's.
const SPARE_MEMBERS: u32 = 1000;

/// Holds garbage collection, and leaves room for the numbers that the lost term may have given.
///
/// Chunks that no file uses any more are forgotten: a newer catalog may have used them since. On their
/// donors they are unclaimed from now on, and kept.
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
    /// Spaces that users made.
    pub spaces: u64,
    /// Files in those spaces.
    pub files: u64,
    /// Size of all files together, in bytes of plaintext.
    pub bytes: u64,
    /// Donors that were not removed.
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
