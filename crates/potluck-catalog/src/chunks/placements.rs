//! Placements: which donor has which chunk, as far as the manager was told.

use crate::chunks::{self, ChunkState};
use crate::error::Error;
use crate::sql::{Tx, params};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{ChunkId, DonorId};
use potluck_core::policy::AckLevel;
use potluck_wire::control::Holding;
use potluck_wire::ticket::ack_byte;
use std::ops::Range;

// These statements read a part of what one donor has, by the index of donors and not over all chunks.
const COUNTED_AT: &str = "SELECT chunk FROM placements
     WHERE donor = ?1 AND chunk > ?2 AND state = 0 ORDER BY chunk LIMIT ?3";
// A chunk that is gone from every donor has no copies, whatever rows there are of it.
const NAMES_COUNTED_AT: &str =
    "SELECT p.chunk, c.name FROM placements p JOIN chunks c ON c.id = p.chunk
     WHERE p.donor = ?1 AND p.chunk > ?2 AND p.state = 0 AND c.state <> 2 ORDER BY p.chunk LIMIT ?3";
const HELD_AT: &str =
    "SELECT p.chunk, c.name, c.len, c.refs FROM placements p JOIN chunks c ON c.id = p.chunk
     WHERE p.donor = ?1 AND p.chunk > ?2 AND p.state IN (0, 3) ORDER BY p.chunk LIMIT ?3";
const ROWS_AT: &str = "SELECT min(chunk), max(chunk) FROM placements
     WHERE donor = ?1";
const SOME_AT: &str = "SELECT chunk FROM placements WHERE donor = ?1 ORDER BY chunk LIMIT ?2";
const NEXT_AT: &str = "SELECT c.id, c.name, c.len FROM placements p JOIN chunks c ON c.id = p.chunk
     WHERE p.donor = ?1 AND p.chunk >= ?2 AND p.state = 0 AND c.refs > 0
     ORDER BY p.chunk LIMIT 1";

/// The statements that read the placements of one donor.
#[cfg(test)]
pub const BY_DONOR: [&str; 6] = [SOME_AT, COUNTED_AT, NAMES_COUNTED_AT, HELD_AT, ROWS_AT, NEXT_AT];

/// The state of a copy, as the values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i64)]
pub enum CopyState {
    /// The copy is there.
    Here = 0,
    /// The donor does not have the copy.
    Missing = 1,
    /// The donor found the copy damaged, or could not read it, and quarantined it.
    Spoiled = 2,
    /// The copy is there and leaving: it can be read and counts for nothing else. It is to be deleted, or an earlier
    /// order to delete it may still be carried out.
    Leaving = 3,
}

/// Returns the donors whose copies of a chunk count.
pub(crate) fn holders(db: &Tx, chunk: ChunkId) -> Result<Vec<DonorId>, Error> {
    let mut rows = db.prepare("SELECT donor FROM placements WHERE chunk = ?1 AND state = 0")?;
    let donors = rows.query_map(params![chunk], |row| row.get(0).map(DonorId))?;
    donors.collect()
}

/// Returns the donors whose copies of a chunk are leaving.
pub(crate) fn leaving_from(db: &Tx, chunk: ChunkId) -> Result<Vec<DonorId>, Error> {
    let mut rows = db.prepare("SELECT donor FROM placements WHERE chunk = ?1 AND state = 3")?;
    let donors = rows.query_map(params![chunk], |row| row.get(0).map(DonorId))?;
    donors.collect()
}

/// Returns the donors whose copies of a chunk count and were acknowledged at `ack` or better.
pub(crate) fn holders_at(db: &Tx, chunk: ChunkId, ack: AckLevel) -> Result<Vec<DonorId>, Error> {
    let mut rows =
        db.prepare("SELECT donor FROM placements WHERE chunk = ?1 AND state = 0 AND ack >= ?2")?;
    let donors = rows.query_map(params![chunk, ack_byte(ack)], |row| row.get(0).map(DonorId))?;
    donors.collect()
}

/// Counts a copy as there, acknowledged at `ack`, unless it counts at a better level. Facts about an earlier copy that
/// was lost do not apply to it.
pub(crate) fn acknowledge(
    db: &Tx,
    chunk: ChunkId,
    donor: DonorId,
    ack: AckLevel,
) -> Result<(), Error> {
    db.prepare(
        "INSERT INTO placements (chunk, donor, state, ack) VALUES (?1, ?2, 0, ?3)
         ON CONFLICT (chunk, donor) DO UPDATE SET
             ack = CASE WHEN placements.state = 0 AND placements.ack > excluded.ack
                 THEN placements.ack ELSE excluded.ack END, state = 0
         WHERE placements.state <> 0 OR placements.ack < excluded.ack",
    )?
    .execute(params![chunk, donor.0, ack_byte(ack)])?;
    Ok(())
}

/// Counts a copy whose donor says that it is there. A copy that counted already keeps its ack level; another gets the
/// lowest.
pub(crate) fn confirm(db: &Tx, chunk: ChunkId, donor: DonorId) -> Result<(), Error> {
    db.prepare(
        "INSERT INTO placements (chunk, donor, state) VALUES (?1, ?2, 0)
         ON CONFLICT (chunk, donor) DO UPDATE SET state = 0, ack = 0
         WHERE placements.state <> 0",
    )?
    .execute(params![chunk, donor.0])?;
    Ok(())
}

/// Counts a copy that its donor reported before the chunk was known, unless the catalog has a row of the copy.
pub(crate) fn told_before(db: &Tx, chunk: ChunkId, donor: DonorId) -> Result<(), Error> {
    db.prepare(
        "INSERT INTO placements (chunk, donor, state) VALUES (?1, ?2, 0) ON CONFLICT DO NOTHING",
    )?
    .execute(params![chunk, donor.0])?;
    Ok(())
}

/// The report of a donor on some chunks. Removed and spoiled copies are taken from the count before the others are
/// added to it.
#[derive(Debug, Default)]
pub struct ToldCopies {
    /// The names of chunks that the donor does not have, or not any more.
    pub removed: Vec<ChunkName>,
    /// The names of chunks that are damaged or cannot be read, and were quarantined.
    pub spoiled: Vec<ChunkName>,
    /// The chunks that the donor has and did not have before.
    pub added: Vec<Holding>,
    /// The names of chunks that the donor looked at and found sound.
    pub sound: Vec<ChunkName>,
    /// The chunks that the donor has, that the catalog does not know, and that no session writes: they become known
    /// as chunks that no file uses.
    pub unused: Vec<Holding>,
    /// The names of chunks that the donor stored by order, and that are on its disk.
    pub on_disk: Vec<ChunkName>,
}

impl ToldCopies {
    /// Returns whether the donor reported nothing.
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty()
            && self.spoiled.is_empty()
            && self.added.is_empty()
            && self.sound.is_empty()
            && self.unused.is_empty()
            && self.on_disk.is_empty()
    }

    /// Takes out the first part of the report, of so many chunks at most; `None` when nothing is left. The parts, one
    /// after the other, have the same effect as the whole.
    pub(crate) fn next_part(&mut self, most: usize) -> Option<Self> {
        if self.is_empty() {
            return None;
        }
        let mut left = most;
        Some(Self {
            removed: first(&mut self.removed, &mut left),
            spoiled: first(&mut self.spoiled, &mut left),
            added: first(&mut self.added, &mut left),
            unused: first(&mut self.unused, &mut left),
            sound: first(&mut self.sound, &mut left),
            on_disk: first(&mut self.on_disk, &mut left),
        })
    }
}

/// Takes out the first items, `left` at most, and counts them off.
fn first<T>(items: &mut Vec<T>, left: &mut usize) -> Vec<T> {
    let taken: Vec<T> = items.drain(..items.len().min(*left)).collect();
    *left -= taken.len();
    taken
}

/// A donor's listed chunks, compared with the catalog.
#[derive(Debug, Default)]
pub struct Compared {
    /// The numbers of all listed chunks that the catalog knows, those of `uncounted` and `leaving` included.
    pub known: Vec<ChunkId>,
    /// The known chunks that were not counted at the donor, or that were gone from everywhere.
    pub uncounted: Vec<Holding>,
    /// The known chunks whose copies at the donor are leaving. A list does not make them count again, because an
    /// order to delete them may be waiting at the donor; another put does, or a check by order.
    pub leaving: Vec<Holding>,
    /// The chunks that the catalog does not know.
    pub unknown: Vec<Holding>,
}

/// Compares what a donor holds with what the catalog counts there.
pub(crate) fn compare(db: &Tx, donor: DonorId, holdings: &[Holding]) -> Result<Compared, Error> {
    let mut select = db.prepare(
        "SELECT c.id, p.state, c.state FROM chunks c
         LEFT JOIN placements p ON p.chunk = c.id AND p.donor = ?2 WHERE c.name = ?1",
    )?;
    let mut compared = Compared::default();
    for holding in holdings {
        let found: Option<(ChunkId, Option<i64>, i64)> = select
            .query_one(params![holding.name.0, donor.0], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?;
        match found {
            None => compared.unknown.push(*holding),
            Some((id, copy, chunk)) => {
                compared.known.push(id);
                if copy == Some(CopyState::Leaving as i64) {
                    compared.leaving.push(*holding);
                } else if copy != Some(CopyState::Here as i64) || chunk == ChunkState::Gone as i64 {
                    compared.uncounted.push(*holding);
                }
            }
        }
    }
    Ok(compared)
}

/// The changes that a donor's report made.
#[derive(Debug, Default)]
pub(crate) struct ToldChanges {
    /// True if a copy that counted, and that a file needs, is not at the donor.
    pub lost: bool,
    /// The names of chunks that files need and whose copies at the donor counted, but are spoiled or cannot be read.
    pub spoiled: Vec<ChunkName>,
    /// The number of copies that are gone from the donor, of chunks that no file uses.
    pub unused_gone: u64,
    /// The names of chunks that the donor says it stored by order, but of which no copy counts at it.
    pub not_there: Vec<ChunkName>,
}

/// Writes down the report of a donor.
///
/// A copy that is gone or spoiled and that no file needs is forgotten. One that a file needs is kept as missing or
/// spoiled, to be counted and repaired; only a copy that was leaving and is gone is forgotten here, too.
pub(crate) fn tell(
    db: &Tx,
    donor: DonorId,
    told: &ToldCopies,
    now_ms: u64,
) -> Result<ToldChanges, Error> {
    let mut changes = ToldChanges::default();
    for name in &told.removed {
        if let Some(chunk) = chunks::get(db, name)? {
            if chunk.refs > 0 {
                changes.lost |= state_of(db, chunk.id, donor)? == Some(CopyState::Here);
                // A copy that was leaving is forgotten, and is no loss.
                db.prepare("DELETE FROM placements WHERE chunk = ?1 AND donor = ?2 AND state = 3")?
                    .execute(params![chunk.id, donor.0])?;
                mark(db, chunk.id, donor, CopyState::Missing)?;
            } else {
                changes.unused_gone += u64::from(forget(db, chunk.id, donor, now_ms)?);
            }
        }
    }
    for name in &told.spoiled {
        if let Some(chunk) = chunks::get(db, name)? {
            if chunk.refs > 0 {
                if state_of(db, chunk.id, donor)? == Some(CopyState::Here) {
                    changes.spoiled.push(*name);
                }
                mark(db, chunk.id, donor, CopyState::Spoiled)?;
            } else {
                changes.unused_gone += u64::from(forget(db, chunk.id, donor, now_ms)?);
            }
        }
    }
    let added = told.added.iter().chain(&told.unused).map(|it| (&it.name, it.len));
    let there = added.chain(told.sound.iter().map(|name| (name, 0)));
    for (name, len) in there {
        if let Some(chunk) = chunks::get(db, name)? {
            confirm(db, chunk.id, donor)?;
            if chunk.len == 0 && len > 0 {
                db.prepare("UPDATE chunks SET len = ?2 WHERE id = ?1 AND len = 0")?
                    .execute(params![chunk.id, len])?;
            }
            if chunk.state == ChunkState::Gone {
                // A late writer brought the chunk back after it was reclaimed, so it is reclaimed again.
                db.prepare("UPDATE chunks SET state = 1 WHERE id = ?1 AND refs = 0")?
                    .execute(params![chunk.id])?;
            }
        }
    }
    for name in &told.on_disk {
        if !on_disk(db, name, donor)? {
            changes.not_there.push(*name);
        }
    }
    Ok(changes)
}

fn mark(db: &Tx, chunk: ChunkId, donor: DonorId, state: CopyState) -> Result<(), Error> {
    db.prepare("UPDATE placements SET state = ?3 WHERE chunk = ?1 AND donor = ?2")?
        .execute(params![chunk, donor.0, state as i64])?;
    Ok(())
}

/// Forgets a copy of a chunk, and returns whether there was one. A condemned chunk that no file uses is gone with its
/// last copy.
pub(crate) fn forget(db: &Tx, chunk: ChunkId, donor: DonorId, now_ms: u64) -> Result<bool, Error> {
    let forgotten = db
        .prepare("DELETE FROM placements WHERE chunk = ?1 AND donor = ?2")?
        .execute(params![chunk, donor.0])?;
    gone_if_nowhere(db, chunk, now_ms)?;
    Ok(forgotten > 0)
}

/// Marks a condemned chunk that no file uses as gone when no copy of it is left.
pub(crate) fn gone_if_nowhere(db: &Tx, chunk: ChunkId, now_ms: u64) -> Result<(), Error> {
    db.prepare(
        "UPDATE chunks SET state = 2, zero_since_ms = ?2 WHERE id = ?1 AND refs = 0 AND state = 1
         AND NOT EXISTS (SELECT 1 FROM placements WHERE chunk = ?1)",
    )?
    .execute(params![chunk, now_ms as i64])?;
    Ok(())
}

/// Returns a page of the chunks counted at a donor, in order of their numbers, after `after`.
pub(crate) fn counted_at(
    db: &Tx,
    donor: DonorId,
    after: ChunkId,
    limit: usize,
) -> Result<Vec<ChunkId>, Error> {
    let mut rows = db.prepare(COUNTED_AT)?;
    let page = rows.query_map(params![donor.0, after, limit as i64], |row| row.get(0))?;
    page.collect()
}

/// Returns a page of the chunks counted at a donor with their names, in order of their numbers, after `after`. Chunks
/// that are gone from everywhere are left out.
pub(crate) fn names_counted_at(
    db: &Tx,
    donor: DonorId,
    after: ChunkId,
    limit: usize,
) -> Result<Vec<(ChunkId, ChunkName)>, Error> {
    let mut rows = db.prepare(NAMES_COUNTED_AT)?;
    let page = rows.query_map(params![donor.0, after, limit as i64], |row| {
        Ok((row.get(0)?, ChunkName(row.get(1)?)))
    })?;
    page.collect()
}

/// Returns the first chunks, by number, of which the catalog has any row at a donor.
pub(crate) fn some_at(db: &Tx, donor: DonorId, limit: usize) -> Result<Vec<ChunkId>, Error> {
    let mut rows = db.prepare(SOME_AT)?;
    let some = rows.query_map(params![donor.0, limit as i64], |row| row.get(0))?;
    some.collect()
}

/// Returns the names of chunks; those without a row are left out.
pub(crate) fn names_of(db: &Tx, chunks: &[ChunkId]) -> Result<Vec<ChunkName>, Error> {
    let mut select = db.prepare("SELECT name FROM chunks WHERE id = ?1")?;
    let mut names = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        let name: Option<[u8; 32]> = select.query_one(params![chunk], |row| row.get(0))?;
        names.extend(name.map(ChunkName));
    }
    Ok(names)
}

/// Counts a copy as missing. Nothing is deleted: the donor may list it again (promise D5).
pub(crate) fn missing(db: &Tx, donor: DonorId, chunk: ChunkId) -> Result<(), Error> {
    mark(db, chunk, donor, CopyState::Missing)
}

/// Forgets a copy that is gone for good, as the donor's owner said: nothing is wrong with its disk.
pub(crate) fn gone(db: &Tx, donor: DonorId, chunk: ChunkId) -> Result<(), Error> {
    db.prepare("DELETE FROM placements WHERE chunk = ?1 AND donor = ?2")?
        .execute(params![chunk, donor.0])?;
    Ok(())
}

/// The sums of a donor's copies, leaving ones included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldAt {
    /// The number of chunks that files use.
    pub used_chunks: u64,
    /// The stored bytes, also of chunks that no file uses, by the part that the chunks' names are in.
    pub bytes_by_part: Vec<u64>,
}

/// Adds a page of a donor's copies after `after` to `held`, and returns the last chunk of the page; `None` at the end.
pub(crate) fn add_held_at(
    db: &Tx,
    donor: DonorId,
    after: ChunkId,
    limit: usize,
    held: &mut HeldAt,
) -> Result<Option<ChunkId>, Error> {
    let mut rows = db.prepare(HELD_AT)?;
    let mut rows = rows.query(params![donor.0, after, limit as i64])?;
    let mut last = None;
    while let Some(row) = rows.next()? {
        last = Some(row.get(0)?);
        let part = ChunkName(row.get(1)?).part();
        held.bytes_by_part[part as usize] += row.get::<i64>(2)? as u64;
        held.used_chunks += u64::from(row.get::<i64>(3)? > 0);
    }
    Ok(last)
}

/// Notes that a copy which a donor stored by order is on disk, and returns whether it counts.
fn on_disk(db: &Tx, name: &ChunkName, donor: DonorId) -> Result<bool, Error> {
    let updated = db
        .prepare(
            "UPDATE placements SET ack = 1 WHERE state = 0 AND donor = ?2
             AND chunk = (SELECT id FROM chunks WHERE name = ?1)",
        )?
        .execute(params![name.0, donor.0])?;
    Ok(updated > 0)
}

/// Stops counting the copies of a chunk that is used again after it was condemned or gone, until they are put again or
/// checked: an order to delete them may be carried out at any moment. Returns their donors.
pub(crate) fn doubt(db: &Tx, chunk: ChunkId) -> Result<Vec<DonorId>, Error> {
    let donors = holders(db, chunk)?;
    for donor in &donors {
        mark(db, chunk, *donor, CopyState::Leaving)?;
    }
    Ok(donors)
}

/// Stops counting a copy whose donor is going to be told to delete it.
pub(crate) fn mark_leaving(db: &Tx, name: &ChunkName, donor: DonorId) -> Result<(), Error> {
    match chunks::get(db, name)? {
        Some(chunk) => mark(db, chunk.id, donor, CopyState::Leaving),
        None => Ok(()),
    }
}

/// Returns the state of a copy, if the catalog knows of it.
pub(crate) fn state_of(
    db: &Tx,
    chunk: ChunkId,
    donor: DonorId,
) -> Result<Option<CopyState>, Error> {
    let found: Option<i64> = db
        .prepare("SELECT state FROM placements WHERE chunk = ?1 AND donor = ?2")?
        .query_one(params![chunk, donor.0], |row| row.get(0))?;
    Ok(match found {
        Some(0) => Some(CopyState::Here),
        Some(1) => Some(CopyState::Missing),
        Some(2) => Some(CopyState::Spoiled),
        Some(3) => Some(CopyState::Leaving),
        _ => None,
    })
}

/// The number of rows that are tried for one copy to be drawn; each costs a look into an index. For a donor that has
/// one in a hundred of the pool's chunks, nine draws of ten meet a copy of it within so many rows.
const TRIES: u64 = 256;

/// Returns up to `count` of a donor's copies that count and that files use, spread over all of them; `random` decides
/// which. `count` must not be 0.
pub(crate) fn sample(
    db: &Tx,
    donor: DonorId,
    count: usize,
    random: u64,
) -> Result<Vec<Holding>, Error> {
    let Some((first, rows)) = rows_at(db, donor)? else { return Ok(Vec::new()) };
    let stride = (rows / count as u64).max(1);
    let mut sample: Vec<Holding> = Vec::new();
    for (number, at) in (0..).zip((0..rows).step_by(stride as usize).take(count)) {
        let part = first + at as i64..first + (at + stride).min(rows) as i64;
        if let Some(drawn) = drawn_in(db, donor, part, scattered(random, number))?
            && sample.last().is_none_or(|last| last.name != drawn.name)
        {
            sample.push(drawn);
        }
    }
    Ok(sample)
}

/// Returns one of a donor's copies that files use in the given rows. If no tried row has one, returns the first copy
/// from the last tried row on, which may lie beyond the given rows.
fn drawn_in(
    db: &Tx,
    donor: DonorId,
    rows: Range<i64>,
    random: u64,
) -> Result<Option<Holding>, Error> {
    // Every copy is to be drawn as often as any other. The first copy after a random row is not: the one after a gap
    // would be drawn again and again, and gaps are long, for each file is written to a few donors.
    let mut row = rows.start;
    for number in 0..TRIES {
        let within = scattered(random, number) % (rows.end - rows.start).max(1) as u64;
        row = rows.start + within as i64;
        if let Some((id, name, len)) = row_from(db, donor, row)?
            && id == ChunkId::from_catalog(row)
        {
            return Ok(Some(Holding { name, len }));
        }
    }
    Ok(row_from(db, donor, row)?.map(|(_, name, len)| Holding { name, len }))
}

/// Returns the number at place `number` of the sequence that follows from `random` (SplitMix64).
fn scattered(random: u64, number: u64) -> u64 {
    let mut x = random.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns the least chunk number of a donor's copies, and the size of the range up to the greatest.
fn rows_at(db: &Tx, donor: DonorId) -> Result<Option<(i64, u64)>, Error> {
    let range: (Option<i64>, Option<i64>) =
        db.prepare(ROWS_AT)?.query_row(params![donor.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (Some(first), Some(last)) = range else { return Ok(None) };
    Ok(Some((first, (last - first + 1) as u64)))
}

/// Returns the first of a donor's copies that count and that files use, from the chunk number `at` on.
fn row_from(db: &Tx, donor: DonorId, at: i64) -> Result<Option<(ChunkId, ChunkName, u32)>, Error> {
    db.prepare(NEXT_AT)?.query_one(params![donor.0, at], |row| {
        Ok((row.get(0)?, ChunkName(row.get(1)?), row.get(2)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_report_is_believed_in_parts_in_the_same_order() {
        let name = |n: u8| ChunkName([n; 32]);
        let mut told = ToldCopies {
            removed: (0..5).map(name).collect(),
            added: vec![Holding { name: name(0), len: 1 }],
            sound: (6..9).map(name).collect(),
            ..ToldCopies::default()
        };
        let parts: Vec<_> = std::iter::from_fn(|| told.next_part(4)).collect();
        let count = |part: &ToldCopies| (part.removed.len(), part.added.len(), part.sound.len());
        assert_eq!(parts.iter().map(count).collect::<Vec<_>>(), [(4, 0, 0), (1, 1, 2), (0, 0, 1)]);
    }
}
