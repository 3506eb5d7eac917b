//! Unused chunks on their way out, in two phases (promise D5).
//!
//! First a chunk is condemned here, durably. Only then are donors ordered to delete their copies,
//! and their word that a copy is gone takes its placement away.

use crate::chunks;
use crate::chunks::placements;
use crate::error::Error;
use crate::members;
use crate::sql::{Tx, params};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{ChunkId, DonorId};
use potluck_wire::control::Holding;

/// The statement that reads a page of the condemned chunks.
pub(crate) const CONDEMNED: &str = "SELECT id, name FROM chunks
     WHERE refs = 0 AND state = 1 AND id > ?1 ORDER BY id LIMIT ?2";

/// The statement that reads the first copy that counts at a donor, from a chunk on, and the number of the first unused
/// chunk from that copy on.
pub(crate) const NEXT_COPY_AND_UNUSED: &str = "SELECT p.chunk, p.ack = 0, (
         SELECT min(id) FROM chunks WHERE refs = 0 AND state = 0 AND id >= p.chunk)
     FROM placements p WHERE p.donor = ?1 AND p.chunk >= ?2 AND p.state = 0
     ORDER BY p.chunk LIMIT 1";

/// A place in the queue of unused chunks: the pool's time, in milliseconds, since which a chunk is unused, and its
/// number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnusedSince(i64, ChunkId);

impl UnusedSince {
    /// The place before all unused chunks.
    pub const FIRST: Self = Self(i64::MIN, ChunkId::FIRST);
}

/// Returns a page of the chunks that no file has used since `before_ms` and that are not condemned, longest unused
/// first, after `after`.
pub(crate) fn unused(
    db: &Tx,
    before_ms: u64,
    after: UnusedSince,
    limit: usize,
) -> Result<Vec<(UnusedSince, ChunkName)>, Error> {
    let mut rows = db.prepare(
        "SELECT zero_since_ms, id, name FROM chunks
         WHERE refs = 0 AND state = 0 AND zero_since_ms <= ?1 AND (zero_since_ms, id) > (?2, ?3)
         ORDER BY zero_since_ms, id LIMIT ?4",
    )?;
    let page = rows
        .query_map(params![before_ms as i64, after.0, after.1, limit as i64], |row| {
            Ok((UnusedSince(row.get(0)?, row.get(1)?), ChunkName(row.get(2)?)))
        })?;
    page.collect()
}

/// A page of the unused chunks of which a donor has a copy that may be in its memory only.
pub(crate) struct InMemory {
    /// The numbers of the chunks.
    pub chunks: Vec<ChunkId>,
    /// The chunk from which the next page goes on; `None` at the end.
    pub next: Option<ChunkId>,
}

/// Looks, from the chunk `from` on, for unused chunks of which a copy counts at a donor that is not known to be on its
/// disk. Each of at most `steps` steps finds one, or leaps from one of the donor's copies to the next unused chunk, so
/// that all pages together take no more steps than the donor has copies, however many chunks are unused elsewhere.
pub(crate) fn in_memory(
    db: &Tx,
    donor: DonorId,
    from: ChunkId,
    steps: usize,
) -> Result<InMemory, Error> {
    let mut step = db.prepare(NEXT_COPY_AND_UNUSED)?;
    let mut page = InMemory { chunks: Vec::new(), next: Some(from) };
    for _ in 0..steps {
        let Some(from) = page.next else { break };
        let met: Option<(i64, bool, Option<i64>)> = step
            .query_one(params![donor.0, from], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        page.next = match met {
            Some((copy, in_memory, Some(unused))) if copy == unused => {
                page.chunks.extend(in_memory.then_some(ChunkId::from_catalog(copy)));
                Some(ChunkId::from_catalog(copy + 1))
            }
            Some((_, _, unused)) => unused.map(ChunkId::from_catalog),
            None => None,
        };
    }
    Ok(page)
}

/// Stops counting the copies of these chunks at a donor that may be in its memory only, unless files use the chunks by
/// now: the donor was started again, and may have lost them. They count again when they are put once more.
pub(crate) fn doubt_in_memory(db: &Tx, donor: DonorId, chunks: &[ChunkId]) -> Result<(), Error> {
    let mut update = db.prepare(
        "UPDATE placements SET state = 3 WHERE chunk = ?1 AND donor = ?2 AND state = 0 AND ack = 0
         AND EXISTS (SELECT 1 FROM chunks WHERE id = ?1 AND refs = 0)",
    )?;
    for chunk in chunks {
        update.execute(params![*chunk, donor.0])?;
    }
    Ok(())
}

/// Condemns those of `names` that still no file has used since `before_ms`.
pub(crate) fn condemn(db: &Tx, names: &[ChunkName], before_ms: u64) -> Result<(), Error> {
    let mut update = db.prepare(
        "UPDATE chunks SET state = 1
         WHERE name = ?1 AND refs = 0 AND state = 0 AND zero_since_ms <= ?2",
    )?;
    for name in names {
        update.execute(params![name.0, before_ms as i64])?;
    }
    Ok(())
}

/// A condemned chunk and where copies of it may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condemned {
    /// The number of the chunk, after which the next page begins.
    pub id: ChunkId,
    /// The name of the chunk.
    pub name: ChunkName,
    /// The donors that may have the chunk.
    pub donors: Vec<DonorId>,
}

/// Returns a page of condemned chunks after `after`, in order of their numbers.
pub(crate) fn condemned(db: &Tx, after: ChunkId, limit: usize) -> Result<Vec<Condemned>, Error> {
    let mut rows = db.prepare(CONDEMNED)?;
    let page = rows
        .query_map(params![after, limit as i64], |row| Ok((row.get(0)?, ChunkName(row.get(1)?))))?
        .collect::<Result<Vec<_>, _>>()?;
    let mut donors = db.prepare("SELECT donor FROM placements WHERE chunk = ?1")?;
    page.into_iter()
        .map(|(id, name)| {
            let donors = donors
                .query_map(params![id], |row| row.get(0).map(DonorId))?
                .collect::<Result<_, _>>()?;
            Ok(Condemned { id, name, donors })
        })
        .collect()
}

/// Forgets the copies of a condemned `chunk` at donors that were removed from the pool, for which no order is needed.
/// Without its last copy the chunk is gone.
pub(crate) fn forget_copies(
    db: &Tx,
    chunk: ChunkId,
    donors: &[DonorId],
    now_ms: u64,
) -> Result<(), Error> {
    for donor in donors {
        placements::forget(db, chunk, *donor, now_ms)?;
    }
    // A chunk that no donor ever stored has no copy to forget, so it is looked at here.
    placements::gone_if_nowhere(db, chunk, now_ms)
}

/// Forgets copies at donors that were removed from the pool, `limit` at most, and returns whether there may be more.
pub(crate) fn forget_removed_donors(db: &Tx, limit: usize, now_ms: u64) -> Result<bool, Error> {
    let mut left = limit;
    for donor in members::removed_donors(db)? {
        for chunk in placements::some_at(db, donor, left)? {
            placements::forget(db, chunk, donor, now_ms)?;
            left -= 1;
        }
    }
    Ok(left == 0)
}

/// Forgets chunks that have been gone from everywhere since `before_ms`, `limit` at most, and returns whether there may
/// be more.
pub(crate) fn prune_gone(db: &Tx, before_ms: u64, limit: usize) -> Result<bool, Error> {
    let forgotten = db.execute(
        "DELETE FROM chunks WHERE id IN (
             SELECT id FROM chunks WHERE refs = 0 AND state = 2 AND zero_since_ms <= ?1 LIMIT ?2)",
        params![before_ms as i64, limit as i64],
    )?;
    Ok(forgotten == limit)
}

/// Makes chunks known that no file uses, unless they are known by now, and returns their numbers.
pub(crate) fn take_in(db: &Tx, chunks: &[Holding], now_ms: u64) -> Result<Vec<ChunkId>, Error> {
    let number = |chunk: &Holding| match chunks::get(db, &chunk.name)? {
        Some(known) => Ok(known.id),
        None => chunks::insert_unused(db, &chunk.name, chunk.len, now_ms),
    };
    chunks.iter().map(number).collect()
}
