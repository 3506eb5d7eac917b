//! How far the copies of the log have come, noted in the catalog.

use crate::changes::{self, ChangeNumber};
use crate::sql::Tx;
use crate::{Error, meta, notes};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::Epoch;
use serde::{Deserialize, Serialize};

/// How far a copy of the log has come; noted in the transaction that forgets what it covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The sequence of the generation's first block.
    pub generation: u64,
    /// The sequence number of the last block.
    pub sequence: u64,
    /// The name of the last block.
    pub last: ChunkName,
    /// The manager's epoch when it was written.
    pub epoch: Epoch,
    /// The attempt that wrote it.
    pub attempt: u64,
    /// The last change that it covers.
    #[serde(default)]
    pub change: ChangeNumber,
    /// Whether some of the generation is nowhere any more: nothing can be read after it, and a new one
    /// takes its place.
    #[serde(default)]
    pub lost: bool,
    /// Which file it is in, where it is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<LogPlace>,
    /// Blocks and records of the base.
    pub base: Extent,
    /// Blocks and records since.
    pub log: Extent,
}

/// The file of a copy, and its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPlace {
    /// The number of the file in the directory of backups.
    pub number: u64,
    /// How long it is.
    pub bytes: u64,
}

/// How much there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// The number of blocks.
    pub blocks: u64,
    /// The number of lines.
    pub lines: u64,
}

/// Lines of changes below which no new generation is worth it.
const MIN_LINES: u64 = 20_000;
/// Blocks of changes below which no new generation is worth it: half an hour of changes.
const MIN_SEGMENTS: u64 = 1024;

/// Where a copy of the log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogCopy {
    /// The copy on donors of the pool.
    OnDonors,
    /// The copy in a file of the manager's machine.
    InFile,
}

impl LogCopy {
    fn note(self) -> &'static str {
        match self {
            Self::OnDonors => notes::LOG_ON_DONORS,
            Self::InFile => notes::LOG_IN_FILE,
        }
    }
}

impl Position {
    /// The position after the first block of a generation.
    pub fn first(sequence: u64, last: ChunkName, epoch: Epoch, attempt: u64) -> Self {
        let (base, log) = (Extent::default(), Extent::default());
        let generation = sequence;
        let (change, lost, file) = (ChangeNumber::default(), false, None);
        Self { generation, sequence, last, epoch, attempt, change, lost, file, base, log }
    }

    /// Reads the position of a copy, as the catalog notes it.
    pub(crate) fn of(db: &Tx, copy: LogCopy) -> Result<Option<Self>, Error> {
        let Some(text) = notes::get(db, copy.note())? else { return Ok(None) };
        let read = serde_json::from_str(&text);
        read.map(Some).map_err(|why| Error::Damaged(format!("the note of the log: {why}")))
    }

    /// Writes it down, and forgets the changes that every copy has now.
    pub(crate) fn note(&self, db: &Tx, copy: LogCopy) -> Result<(), Error> {
        self.write(db, copy)?;
        forget_covered(db)
    }

    fn write(&self, db: &Tx, copy: LogCopy) -> Result<(), Error> {
        let text = serde_json::to_string(self).map_err(|why| Error::Bug(why.to_string()))?;
        notes::set(db, copy.note(), &text)
    }

    /// Has a new generation take the place of this one.
    pub(crate) fn lose(self, db: &Tx, copy: LogCopy) -> Result<(), Error> {
        Self { lost: true, ..self }.note(db, copy)
    }

    /// Has a copy begin anew with a base.
    pub(crate) fn clear(db: &Tx, copy: LogCopy) -> Result<(), Error> {
        notes::clear(db, copy.note())?;
        forget_covered(db)
    }

    /// Whether a new generation is due: some of this one is lost, or its changes outweigh the base, so
    /// that a new base is cheaper than reading them.
    pub fn is_worn(&self) -> bool {
        self.lost
            || self.log.lines > MIN_LINES.max(self.base.lines)
            || self.log.blocks > MIN_SEGMENTS.max(4 * self.base.blocks)
    }
}

/// Forgets the changes that every copy has. A copy that cannot be written, as on a disk that is full or was
/// taken away, is waited for only as long as its changes are fewer than those of a new base: the catalog does
/// not grow without end for it. As many changes are kept for a copy that begins anew: its base may be under
/// way, and the changes that were made since that began are not in it.
pub(crate) fn forget_covered(db: &Tx) -> Result<(), Error> {
    let last = changes::last(db)?;
    let mut covered = last;
    for copy in [LogCopy::OnDonors, LogCopy::InFile] {
        let at = Position::of(db, copy)?;
        let (change, base) = at.as_ref().map_or((0, 0), |at| (at.change.0, at.base.lines));
        let oldest = last - MIN_LINES.max(base) as i64;
        covered = covered.min(change.max(oldest));
        if let Some(at) = at.filter(|at| !at.lost && change < oldest) {
            // Whoever is writing after it is refused by that, and begins anew.
            Position { lost: true, ..at }.write(db, copy)?;
        }
    }
    changes::forget(db, covered)
}

/// How a copy of the log goes on.
#[derive(Debug, Clone)]
pub struct Advance {
    /// The copy of the log that advances.
    pub copy: LogCopy,
    /// The position from which this advance began.
    pub before: Option<Position>,
    /// The position that the copy has now.
    pub after: Position,
    /// The manager's epoch when this was begun.
    pub epoch: Epoch,
}

impl Advance {
    /// Writes it down. Refused if the log has begun anew meanwhile: a freeze does so, because of another
    /// manager whose blocks have the same numbers. Refused, too, if changes that follow were forgotten while
    /// a base was written: the copy would lack them unseen.
    pub(crate) fn note(&self, db: &Tx) -> Result<(), Error> {
        let is_alone = Position::of(db, self.copy)? == self.before;
        let goes_on = changes::forgotten(db)? <= self.after.change.0;
        if is_alone && goes_on && meta::epoch(db)? == self.epoch {
            self.after.note(db, self.copy)
        } else {
            Err(Error::NoSession)
        }
    }

    /// Whether a generation begins with it.
    pub fn begins_generation(&self) -> bool {
        self.before.as_ref().is_none_or(|before| before.generation != self.after.generation)
    }
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
        let extent = |blocks, lines| Extent { blocks, lines };
        assert!(!at(extent(1, 10), extent(900, 20_000)).is_worn(), "little");
        assert!(at(extent(1, 10), extent(900, 20_001)).is_worn());
        assert!(!at(extent(9, 500_000), extent(900, 500_000)).is_worn());
        assert!(at(extent(1, 10), extent(1025, 1025)).is_worn(), "many small ones");
        let lost = Position { lost: true, ..at(extent(1, 10), extent(0, 0)) };
        assert!(lost.is_worn(), "not all of it is there");
    }
}
