//! How far the copies of the log have come, noted in the catalog.

use potluck_catalog::{Error, changes, notes};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::Epoch;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

/// How far a copy of the log has come; noted in the transaction that forgets what it covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The sequence of the generation's first segment.
    pub generation: u64,
    /// The last segment.
    pub sequence: u64,
    /// Its name.
    pub last: ChunkName,
    /// The manager's epoch when it was written.
    pub epoch: Epoch,
    /// The attempt that wrote it.
    pub attempt: u64,
    /// The last row of changes that it covers.
    #[serde(default)]
    pub row: i64,
    /// Whether some of the generation is nowhere any more: nothing can be read after it, and a new one
    /// takes its place.
    #[serde(default)]
    pub lost: bool,
    /// Which file it is in, where it is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Place>,
    /// Segments and records of the base.
    pub base: Extent,
    /// Segments and records since.
    pub log: Extent,
}

/// The file of a copy, and its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its number in the directory of backups.
    pub number: u64,
    /// How long it is.
    pub bytes: u64,
}

/// How much there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Segments.
    pub segments: u64,
    /// Lines.
    pub lines: u64,
}

/// Lines of changes below which no new generation is worth it.
const MIN_LINES: u64 = 20_000;
/// Segments of changes below which no new generation is worth it: half an hour of changes.
const MIN_SEGMENTS: u64 = 1024;

/// Where a copy of the log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copy {
    /// On donors of the pool.
    OnDonors,
    /// In a file of the manager's machine.
    InFile,
}

impl Copy {
    fn note(self) -> &'static str {
        match self {
            Self::OnDonors => notes::LOG_ON_DONORS,
            Self::InFile => notes::LOG_IN_FILE,
        }
    }
}

impl Position {
    /// After a generation's first segment.
    pub fn first(sequence: u64, last: ChunkName, epoch: Epoch, attempt: u64) -> Self {
        let (base, log) = (Extent::default(), Extent::default());
        let generation = sequence;
        let (row, lost, file) = (0, false, None);
        Self { generation, sequence, last, epoch, attempt, row, lost, file, base, log }
    }

    /// What the catalog says.
    pub fn of(db: &Connection, copy: Copy) -> Result<Option<Self>, Error> {
        let Some(text) = notes::get(db, copy.note())? else { return Ok(None) };
        let read = serde_json::from_str(&text);
        read.map(Some).map_err(|why| Error::Damaged(format!("the note of the log: {why}")))
    }

    /// Writes it down, and forgets the changes that every copy has now.
    pub fn note(&self, db: &Connection, copy: Copy) -> Result<(), Error> {
        let text = serde_json::to_string(self).map_err(|why| Error::Bug(why.to_string()))?;
        notes::set(db, copy.note(), &text)?;
        forget_covered(db)
    }

    /// Has a copy begin anew with a base.
    pub fn clear(db: &Connection, copy: Copy) -> Result<(), Error> {
        notes::clear(db, copy.note())?;
        forget_covered(db)
    }

    /// Whether a new generation is due: some of this one is lost, or its changes outweigh the base, so
    /// that a new base is cheaper than reading them.
    pub fn is_worn(&self) -> bool {
        self.lost
            || self.log.lines > MIN_LINES.max(self.base.lines)
            || self.log.segments > MIN_SEGMENTS.max(4 * self.base.segments)
    }
}

/// Forgets the changes that every copy has. One that will begin anew needs none: its base has them.
fn forget_covered(db: &Connection) -> Result<(), Error> {
    let mut rows = [None, None];
    for (row, copy) in rows.iter_mut().zip([Copy::OnDonors, Copy::InFile]) {
        *row = Position::of(db, copy)?.filter(|at| !at.lost).map(|at| at.row);
    }
    let covered = match rows.into_iter().flatten().min() {
        Some(row) => row,
        None => changes::last(db)?,
    };
    changes::forget(db, covered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_worn_when_changes_outweigh_its_base() {
        let at = |base, log| {
            let position = Position::first(9, ChunkName::of(b"last"), Epoch(1), 1);
            Position { base, log, ..position }
        };
        let extent = |segments, lines| Extent { segments, lines };
        assert!(!at(extent(1, 10), extent(900, 20_000)).is_worn(), "little");
        assert!(at(extent(1, 10), extent(900, 20_001)).is_worn());
        assert!(!at(extent(9, 500_000), extent(900, 500_000)).is_worn());
        assert!(at(extent(1, 10), extent(1025, 1025)).is_worn(), "many small ones");
        let lost = Position { lost: true, ..at(extent(1, 10), extent(0, 0)) };
        assert!(lost.is_worn(), "not all of it is there");
    }
}
