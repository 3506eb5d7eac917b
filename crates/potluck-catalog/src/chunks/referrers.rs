//! The versions that refer to each chunk: the way back from a donor's copies to the files that need them.
//!
//! Most chunks belong to one version, which their row names, so that following a donor's copies reads no more rows than
//! there are copies. The versions of a shared chunk are in a separate table. A version that is removed is taken from
//! both; one that gives up its parity stays, because the same chunk may be data of it too. So the list may name a
//! version that does not refer to the chunk any more, and never lacks one that does.

use crate::chunks::ChunkRow;
use crate::error::Error;
use crate::sql::{Tx, params};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{ChunkId, DonorId, VersionId};

/// The value of the column for chunks whose versions are listed in the table.
const SEVERAL: i64 = -1;

/// The number of uses in a page after which no further chunk is looked at: one chunk may be in a million files.
const MOST_USES: usize = 1 << 16;

/// The statement that reads a page of a donor's copies.
pub(crate) const COPIES_AT: &str =
    "SELECT p.chunk, c.name, c.referrer FROM placements p JOIN chunks c ON c.id = p.chunk
     WHERE p.donor = ?1 AND p.chunk > ?2 ORDER BY p.chunk LIMIT ?3";

/// The versions that begin and end to refer to a chunk in one transaction.
#[derive(Debug, Default)]
pub(crate) struct Change {
    gained: Vec<VersionId>,
    lost: Vec<VersionId>,
}

impl Change {
    /// Notes that a version refers to the chunk from now on.
    pub(crate) fn gain(&mut self, version: VersionId) {
        if self.gained.last() != Some(&version) {
            self.gained.push(version);
        }
    }

    /// Notes that a version which refers to the chunk is deleted.
    pub(crate) fn lose(&mut self, version: VersionId) {
        if self.lost.last() != Some(&version) {
            self.lost.push(version);
        }
    }
}

impl Change {
    /// Returns the value of the column for a chunk that is new.
    pub(crate) fn column(&self) -> Option<i64> {
        match self.kept()[..] {
            [] => None,
            [only] => Some(only.0 as i64),
            _ => Some(SEVERAL),
        }
    }

    /// Returns the versions that refer to a new chunk after the transaction, in which a version may come and be
    /// replaced.
    fn kept(&self) -> Vec<VersionId> {
        let mut kept = self.gained.clone();
        kept.retain(|version| !self.lost.contains(version));
        kept
    }
}

/// Lists the versions of a chunk that is new, if they are several.
pub(crate) fn list(db: &Tx, chunk: ChunkId, change: &Change) -> Result<(), Error> {
    match &change.kept()[..] {
        [] | [_] => Ok(()),
        several => several.iter().try_for_each(|version| insert(db, chunk, *version)),
    }
}

/// Writes the changed versions of a chunk that is still referred to and has `known` in its column. Returns the new
/// value of the column.
pub(crate) fn change(
    db: &Tx,
    chunk: ChunkId,
    known: Option<i64>,
    change: &Change,
) -> Result<Option<i64>, Error> {
    if change.gained.is_empty() && change.lost.is_empty() {
        return Ok(known);
    }
    if known == Some(SEVERAL) {
        return change_several(db, chunk, change).map(Some);
    }
    let mut all: Vec<VersionId> = known.map(|only| VersionId(only as u64)).into_iter().collect();
    all.extend(&change.gained);
    all.sort_unstable();
    all.dedup();
    let last = all.last().copied();
    all.retain(|version| !change.lost.contains(version));
    if all.is_empty() {
        // A large version that names the chunk twice is released page by page, and stays its referrer until the last
        // page.
        all.extend(last);
    }
    if let [only] = all[..] {
        return Ok(Some(only.0 as i64));
    }
    all.into_iter().try_for_each(|version| insert(db, chunk, version))?;
    Ok(Some(SEVERAL))
}

/// Writes the changed versions of a chunk whose versions are in the table, and returns the new value of the column.
/// There may be a million versions, so no more than two are read.
fn change_several(db: &Tx, chunk: ChunkId, change: &Change) -> Result<i64, Error> {
    for version in &change.gained {
        insert(db, chunk, *version)?;
    }
    let mut delete = db.prepare("DELETE FROM chunk_referrers WHERE chunk = ?1 AND version = ?2")?;
    for version in &change.lost {
        delete.execute(params![chunk, version.0 as i64])?;
    }
    let Some(last) = change.lost.last() else { return Ok(SEVERAL) };
    let only = match some_listed(db, chunk, 2)?[..] {
        [] => *last,
        [only] => only,
        _ => return Ok(SEVERAL),
    };
    delete.execute(params![chunk, only.0 as i64])?;
    Ok(only.0 as i64)
}

fn insert(db: &Tx, chunk: ChunkId, version: VersionId) -> Result<(), Error> {
    db.prepare(
        "INSERT INTO chunk_referrers (chunk, version) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
    )?
    .execute(params![chunk, version.0 as i64])?;
    Ok(())
}

/// Forgets what is listed for a chunk that no version refers to any more, and that had `known` in its column.
pub(crate) fn clear(db: &Tx, chunk: ChunkId, known: Option<i64>) -> Result<(), Error> {
    if known == Some(SEVERAL) {
        db.prepare("DELETE FROM chunk_referrers WHERE chunk = ?1")?.execute(params![chunk])?;
    }
    Ok(())
}

/// Reads at most `limit` of the versions that the table lists for a chunk.
fn some_listed(db: &Tx, chunk: ChunkId, limit: i64) -> Result<Vec<VersionId>, Error> {
    let mut rows = db.prepare("SELECT version FROM chunk_referrers WHERE chunk = ?1 LIMIT ?2")?;
    let versions = rows
        .query_map(params![chunk, limit], |row| row.get(0).map(|id: i64| VersionId(id as u64)))?;
    versions.collect()
}

/// Returns at most `limit` of the versions that refer to a chunk.
pub(crate) fn some_of(db: &Tx, chunk: &ChunkRow, limit: usize) -> Result<Vec<VersionId>, Error> {
    match chunk.referrer {
        None => Ok(Vec::new()),
        Some(SEVERAL) => some_listed(db, chunk.id, limit as i64),
        Some(only) => Ok(vec![VersionId(only as u64)]),
    }
}

/// A page of the versions that refer to the copies at a donor, whatever the state of the copies.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Referrers {
    /// The versions that may refer to the chunks of the page, each with the chunk, in order.
    pub uses: Vec<(VersionId, ChunkName)>,
    /// The last chunk of the page, after which the next page begins; `None` if there is no more.
    pub next: Option<ChunkId>,
}

/// Returns a page of the versions that need copies at a donor: those of at most `limit` chunks after `after`.
pub(crate) fn of_copies_at(
    db: &Tx,
    donor: DonorId,
    after: ChunkId,
    limit: usize,
) -> Result<Referrers, Error> {
    let mut rows = db.prepare(COPIES_AT)?;
    let copies = rows
        .query_map(params![donor.0, after, limit as i64], |row| {
            Ok((row.get(0)?, ChunkName(row.get(1)?), row.get(2)?))
        })?
        .collect::<Result<Vec<(ChunkId, ChunkName, Option<i64>)>, _>>()?;
    let mut next = copies.last().filter(|_| copies.len() == limit).map(|(chunk, ..)| *chunk);
    let last = copies.last().map(|(chunk, ..)| *chunk);
    let mut uses = Vec::new();
    for (chunk, name, column) in copies {
        match column {
            Some(SEVERAL) => {
                let versions = some_listed(db, chunk, i64::MAX)?.into_iter();
                uses.extend(versions.map(|version| (version, name)));
            }
            Some(only) => uses.push((VersionId(only as u64), name)),
            None => {}
        }
        if uses.len() >= MOST_USES && Some(chunk) != last {
            next = Some(chunk);
            break;
        }
    }
    uses.sort_unstable();
    Ok(Referrers { uses, next })
}
