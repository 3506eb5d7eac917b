//! The changes that are not yet in every copy of the metadata log: one row for each, written in the
//! transaction that makes the change.
//!
//! Most rows are records as the log tells them. A row about something that may be large, or that changes often, says
//! only *that* it changed: the export of the rows reads the state as it is then. A thing that was replaced or removed
//! meanwhile is left out, because a later row tells of that. The log is kept on donors and in a file. The last change
//! that each copy has is noted, and a row is forgotten when both have it, or when there are so many rows that a new
//! base costs less.

use crate::error::Error;
use crate::log::records::Record;
use crate::sql::{Tx, params};
use potluck_core::ids::VersionId;
use potluck_core::path::{PoolPath, SYSTEM_SPACE};
use serde::{Deserialize, Serialize};

/// The number of a change in the log: greater numbers were given later. Only the catalog uses the number itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChangeNumber(pub(crate) i64);

/// A change of the catalog, as its row keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeOp {
    /// A change that is written down as the log tells it, whatever the state is when the log is written.
    Told(Record),
    /// Versions became visible at paths.
    Files(Vec<(PoolPath, VersionId)>),
    /// A part of a version was committed, under this number.
    Part(VersionId, u32),
    /// The redundancy of a version, or the goal of that, was changed.
    Version(VersionId),
    /// The content of a version was sealed with another key.
    SealedAgain(VersionId),
}

impl ChangeOp {
    /// Returns the space that the change is about, or whose entries or grants it changed; `None` for a change that
    /// names no space.
    pub fn space(&self) -> Option<&str> {
        match self {
            Self::Told(record) => record.space(),
            Self::Files(files) => files.first().map(|(path, _)| path.space()),
            Self::Part(..) | Self::Version(_) | Self::SealedAgain(_) => None,
        }
    }
}

/// Returns the number of the last change that was ever written down.
pub(crate) fn last(db: &Tx) -> Result<i64, Error> {
    db.last_number("changes")
}

/// Writes a change down, unless it is one of the pool's own metadata, in which the log is kept.
pub(crate) fn append(db: &Tx, op: &ChangeOp) -> Result<(), Error> {
    if op.space() == Some(SYSTEM_SPACE) {
        return Ok(());
    }
    let text = serde_json::to_string(op).map_err(|why| Error::Bug(why.to_string()))?;
    let number = db.prepare("INSERT INTO changes (op) VALUES (?1)")?.insert(params![text])?;
    db.note(number, text);
    Ok(())
}

/// Writes a change down as the log is to tell it.
pub(crate) fn tell(db: &Tx, record: Record) -> Result<(), Error> {
    append(db, &ChangeOp::Told(record))
}

/// Returns the first rows after number `after`, at most `limit`, with their numbers.
pub(crate) fn rows(db: &Tx, after: i64, limit: usize) -> Result<Vec<(i64, ChangeOp)>, Error> {
    let mut select =
        db.prepare("SELECT seq, op FROM changes WHERE seq > ?1 ORDER BY seq LIMIT ?2")?;
    let mut rows = select.query(params![after, limit as i64])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (seq, text): (i64, String) = (row.get(0)?, row.get(1)?);
        let op = parsed(&text).map_err(|why| Error::Damaged(format!("the change {seq}: {why}")))?;
        found.push((seq, op));
    }
    Ok(found)
}

/// Returns the change that a row has as text.
pub(crate) fn parsed(text: &str) -> Result<ChangeOp, serde_json::Error> {
    serde_json::from_str(text)
}

/// Returns the number up to which all rows were forgotten: that before the first row that is left, or if none is left
/// the last number that was ever given.
pub(crate) fn forgotten(db: &Tx) -> Result<i64, Error> {
    let mut select = db.prepare("SELECT min(seq) FROM changes")?;
    let first: Option<i64> = select.query_one(params![], |row| row.get(0))?.flatten();
    first.map_or_else(|| last(db), |first| Ok(first - 1))
}

/// Forgets the rows up to number `last`, for which no copy of the log waits any more.
pub(crate) fn forget(db: &Tx, last: i64) -> Result<(), Error> {
    db.prepare("DELETE FROM changes WHERE seq <= ?1")?.execute(params![last])?;
    Ok(())
}
