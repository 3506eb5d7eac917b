//! The positions to which the copies of the log have come, as the catalog notes them.

use crate::Error;
use crate::log::changes::{self, ChangeNumber};
use crate::pool_records::{meta, notes};
use crate::sql::Tx;
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::ids::Epoch;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The position to which a copy of the log has come. It is noted in the transaction that forgets the changes which
/// every copy has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The sequence number of the generation's first block.
    pub generation: u64,
    /// The recovery key under which the generation is sealed, by its name.
    pub key: Digest,
    /// The sequence number of the last block.
    pub sequence: u64,
    /// The name of the last block.
    pub last: ChunkName,
    /// The manager's epoch when that block was written.
    pub epoch: Epoch,
    /// The attempt that wrote that block.
    pub attempt: u64,
    /// The last change that the copy covers.
    #[serde(default)]
    pub change: ChangeNumber,
    /// True if the generation cannot go on, because some of it is nowhere any more, or changes that would follow were
    /// forgotten: a new generation takes its place.
    #[serde(default)]
    pub lost: bool,
    /// The file that the copy is in; `None` for the copy on donors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<LogPlace>,
    /// The wall time at which the generation began, in milliseconds.
    pub begun_ms: i64,
    /// The blocks and records of the base.
    pub base: Extent,
    /// The blocks and records since the base.
    pub log: Extent,
}

/// The file of a copy, and its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPlace {
    /// The number of the file in the directory of backups.
    pub number: u64,
    /// The length of the file in bytes.
    pub bytes: u64,
}

/// The amount of data in blocks of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// The number of blocks.
    pub blocks: u64,
    /// The number of lines, each of which is a record.
    pub lines: u64,
    /// The size of the sealed blocks in bytes.
    pub bytes: u64,
}

impl Extent {
    /// Adds a block of so many lines, which is `bytes` long as it is stored.
    pub fn add_block(&mut self, lines: u64, bytes: u64) {
        self.blocks += 1;
        self.lines += lines;
        self.bytes += bytes;
    }

    /// Returns the cost of keeping these blocks and reading them back, in bytes.
    fn cost(self) -> u64 {
        self.bytes + self.blocks * BLOCK_COST
    }
}

/// The bytes of records that cost as much as a block: about eight rows of the catalog with their indexes, a file on
/// each donor that has a copy, and a request when the log is read back.
const BLOCK_COST: u64 = 16 << 10;
/// The least cost of changes, in bytes, for which a base is written anew before it is [`BASE_AGE`] old: a pool that was
/// just made would otherwise begin a generation with each of its first files.
const LEAST_COST: u64 = 1 << 20;
/// The share of the base's cost that its changes may reach once it is as old as [`BASE_AGE`]: one part in so many.
const SHARE: u64 = 6;
/// The age at which a base is written anew for the sake of the space that its changes take.
const BASE_AGE: Duration = Duration::from_secs(24 * 3600);
/// The least number of changes that are kept for a copy that cannot be written.
const KEPT_CHANGES: u64 = 20_000;

/// The place of a copy of the log.
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
    /// Makes the position at the first block of a generation that is sealed under `key` and begins at the wall time
    /// `begun_ms`.
    pub fn first(
        key: Digest,
        sequence: u64,
        last: ChunkName,
        epoch: Epoch,
        attempt: u64,
        begun_ms: i64,
    ) -> Self {
        let (base, log) = (Extent::default(), Extent::default());
        let generation = sequence;
        let (change, lost, file) = (ChangeNumber::default(), false, None);
        Self {
            generation,
            key,
            sequence,
            last,
            epoch,
            attempt,
            change,
            lost,
            file,
            begun_ms,
            base,
            log,
        }
    }

    /// Reads the position of a copy, as the catalog notes it; `None` before the first base of the copy.
    pub(crate) fn of(db: &Tx, copy: LogCopy) -> Result<Option<Self>, Error> {
        Self::read(db, copy.note())
    }

    /// Reads the position that the copy on donors had before the catalog was known to lack changes.
    pub(crate) fn left(db: &Tx) -> Result<Option<Self>, Error> {
        Self::read(db, notes::LOG_LEFT)
    }

    fn read(db: &Tx, note: &str) -> Result<Option<Self>, Error> {
        let Some(text) = notes::get(db, note)? else { return Ok(None) };
        let read = serde_json::from_str(&text);
        read.map(Some).map_err(|why| Error::Damaged(format!("the note of the log: {why}")))
    }

    /// Writes the position down, and forgets the changes for which no copy waits any more.
    pub(crate) fn note(&self, db: &Tx, copy: LogCopy) -> Result<(), Error> {
        self.write(db, copy)?;
        forget_covered(db)
    }

    fn write(&self, db: &Tx, copy: LogCopy) -> Result<(), Error> {
        let text = serde_json::to_string(self).map_err(|why| Error::Bug(why.to_string()))?;
        notes::set(db, copy.note(), &text)
    }

    /// Marks the generation as lost, so that a new one takes its place.
    pub(crate) fn lose(self, db: &Tx, copy: LogCopy) -> Result<(), Error> {
        Self { lost: true, ..self }.note(db, copy)
    }

    /// Makes a copy begin anew with a base.
    pub(crate) fn clear(db: &Tx, copy: LogCopy) -> Result<(), Error> {
        notes::clear(db, copy.note())?;
        forget_covered(db)
    }

    /// Returns whether a new generation is due at the wall time `now_ms`: this one is lost, its changes outweigh the
    /// base, or they take more than a share of it and the base is a day old.
    ///
    /// A base is written whole, so the rule weighs its cost against that of a longer log. While changes are many, as
    /// when a pool is filled, a base follows only on changes that cost as much: all bases together cost no more than
    /// the changes did. Otherwise there is at most one base a day. It follows on changes of at least a sixth of its
    /// cost, so that bases cost up to six times what the changes did, which are records of metadata, and the log takes
    /// 7/6 of its base and the changes of a day: in a pool of which one file in a hundred changes each day, 1.18 times
    /// what is needed. Without the age, a pool whose changes come two seconds apart, and cost a block each, would write
    /// its base that often. With the first rule alone, the log would take up to twice what is needed, for ever.
    pub fn is_worn(&self, now_ms: i64) -> bool {
        let (base, log) = (self.base.cost(), self.log.cost());
        // If the base seems to begin in the future, the clock was put back and the age of the base is not known.
        let is_old = now_ms.abs_diff(self.begun_ms) >= BASE_AGE.as_millis() as u64;
        self.lost || log > base.max(LEAST_COST) || (is_old && log > base / SHARE)
    }
}

/// Forgets the changes that every copy has. For a copy that cannot be written, as on a disk that is full or was taken
/// away, changes are kept only while they are fewer than the records of a new base, or fewer than [`KEPT_CHANGES`]: the
/// catalog does not grow without an end. As many changes are kept for a copy that begins anew: its base may be under
/// way, and the changes that were made since that began are not in it.
pub(crate) fn forget_covered(db: &Tx) -> Result<(), Error> {
    let last = changes::last(db)?;
    let mut covered = last;
    for copy in [LogCopy::OnDonors, LogCopy::InFile] {
        let at = Position::of(db, copy)?;
        let (change, base) = at.as_ref().map_or((0, 0), |at| (at.change.0, at.base.lines));
        let oldest = last - KEPT_CHANGES.max(base) as i64;
        covered = covered.min(change.max(oldest));
        if let Some(at) = at.filter(|at| !at.lost && change < oldest) {
            // The next write to this copy is refused because of that, and begins a new base.
            Position { lost: true, ..at }.write(db, copy)?;
        }
    }
    changes::forget(db, covered)
}

/// An advance of a copy of the log from one position to another.
#[derive(Debug, Clone)]
pub struct Advance {
    /// The copy of the log that advances.
    pub copy: LogCopy,
    /// The position from which this advance began.
    pub before: Option<Position>,
    /// The position that the copy has now.
    pub after: Position,
    /// The manager's epoch when the advance was begun.
    pub epoch: Epoch,
}

impl Advance {
    /// Writes the advance down.
    ///
    /// Errors: [`Error::NoSession`] if the position of the copy or the manager's epoch changed meanwhile: a freeze of
    /// garbage collection has the log begin anew, because of another manager whose blocks have the same numbers. The
    /// error is the same if changes that follow were forgotten while a base was written: the copy would lack them
    /// unseen.
    pub(crate) fn note(&self, db: &Tx) -> Result<(), Error> {
        let is_alone = Position::of(db, self.copy)? == self.before;
        let goes_on = changes::forgotten(db)? <= self.after.change.0;
        if is_alone && goes_on && meta::epoch(db)? == self.epoch {
            self.after.note(db, self.copy)
        } else {
            Err(Error::NoSession)
        }
    }

    /// Returns whether a generation begins with the advance.
    pub fn begins_generation(&self) -> bool {
        self.before.as_ref().is_none_or(|before| before.generation != self.after.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: i64 = 24 * 3600 * 1000;
    const BEGUN_MS: i64 = 20_000 * DAY_MS;

    fn extent(blocks: u64, bytes: u64) -> Extent {
        Extent { blocks, lines: 1, bytes }
    }

    fn at(base: Extent, log: Extent) -> Position {
        let position =
            Position::first(Digest([7; 32]), 9, ChunkName::of(b"last"), Epoch(1), 1, BEGUN_MS);
        Position { base, log, ..position }
    }

    #[test]
    fn a_generation_is_worn_when_its_changes_outweigh_its_base() {
        let is_worn = |base, log| at(base, log).is_worn(BEGUN_MS + 1);
        assert!(!is_worn(extent(1, 10), extent(1, 900_000)), "little");
        assert!(is_worn(extent(1, 10), extent(1, 1_100_000)));
        assert!(!is_worn(extent(10, 30_000_000), extent(10, 30_000_000)));
        assert!(is_worn(extent(10, 30_000_000), extent(10, 30_000_001)));
        assert!(is_worn(extent(1, 10), extent(65, 6500)), "many small blocks");
        assert!(!is_worn(extent(10, 30_000_000), extent(1000, 100_000)), "beside a large base");
        let lost = Position { lost: true, ..at(extent(1, 10), extent(0, 0)) };
        assert!(lost.is_worn(BEGUN_MS), "not all of it is there");
    }

    #[test]
    fn day_old_base_is_rewritten_at_a_sixth_of_changes() {
        let is_worn = |log, after| at(extent(2, 6_000_000), log).is_worn(BEGUN_MS + after);
        assert!(!is_worn(extent(1, 1_100_000), DAY_MS - 1), "it is young");
        assert!(is_worn(extent(1, 1_100_000), DAY_MS));
        assert!(!is_worn(extent(1, 900_000), 100 * DAY_MS), "they are few");
        assert!(is_worn(extent(70, 7000), DAY_MS), "many small blocks");
        assert!(is_worn(extent(1, 1_100_000), -DAY_MS), "the clock was put back");
        assert!(!at(extent(1, 10), Extent::default()).is_worn(BEGUN_MS + DAY_MS), "no change");
    }

    /// A pool of 10,000 records, of which one in a hundred changes each day.
    #[test]
    fn log_exceeds_its_base_by_a_fifth_at_most() {
        let base = extent(5, 20_000_000);
        let (mut log, mut begun, mut written) = (Extent::default(), 0, 0);
        for day in 0..365 {
            let now_ms = BEGUN_MS + day * DAY_MS;
            if (Position { begun_ms: begun, ..at(base, log) }).is_worn(now_ms) {
                (log, begun, written) = (Extent::default(), now_ms, written + 1);
            }
            log.add_block(100, base.bytes / 100);
            assert!(5 * (base.bytes + log.bytes) <= 6 * base.bytes, "day {day}: {log:?}");
        }
        assert!((20..30).contains(&written), "{written} bases");
    }
}
