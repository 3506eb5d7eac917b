//! Counts over the whole catalog.

use crate::error::Error;
use crate::sql::{Tx, params};
use potluck_core::ids::DonorId;
use potluck_core::path::SYSTEM_SPACE;
use std::collections::{BTreeMap, BTreeSet};

/// Counts copies by donor, in the order of the index of donors: grouped by anything more, all placements would be
/// sorted first, in some 50 bytes of memory each.
pub(crate) const COPIES_BY_DONOR: &str =
    "SELECT donor, count(*), sum(CASE WHEN state IN (0, 3) THEN 1 ELSE 0 END)
     FROM placements GROUP BY donor";

/// The catalog in figures.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// The number of files, links included, in all spaces but that of the pool's own metadata.
    pub files: u64,
    /// The bytes of those files together that are in no hole, as plaintext.
    pub bytes: u64,
    /// The number of files whose redundancy is being changed.
    pub changing: u64,
    /// The bytes of the files being changed together that are in no hole, as plaintext.
    pub changing_bytes: u64,
    /// The number of chunks that no file uses and that are not known to be gone, without those of `condemned_at_dead`.
    pub condemned: u64,
    /// The number of chunks that no file uses and that only dead donors have.
    pub condemned_at_dead: u64,
    /// The copies at each donor.
    pub donors: BTreeMap<DonorId, Copies>,
}

/// The numbers of copies at one donor.
#[derive(Debug, Clone, Copy, Default)]
pub struct Copies {
    /// The number of copies that are there, leaving ones included.
    pub here: u64,
    /// The number of copies that are missing or spoiled.
    pub bad: u64,
}

/// Counts everything, while these donors are `dead`. Each placement is read once; if any donor is dead, those of chunks
/// that no file uses are read twice.
pub(crate) fn count(db: &Tx, dead: &BTreeSet<DonorId>) -> Result<Stats, Error> {
    let (files, bytes): (i64, i64) = db.query_row(
        "SELECT coalesce(sum(files), 0), coalesce(sum(bytes), 0) FROM spaces WHERE name <> ?1",
        params![SYSTEM_SPACE],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let condemned: i64 = db.query_row(
        "SELECT count(*) FROM chunks WHERE refs = 0 AND state IN (0, 1)",
        params![],
        |row| row.get(0),
    )?;
    let condemned_at_dead = if dead.is_empty() { 0 } else { only_at(db, dead)? };
    // The content of a file without chunks is in the catalog, so its redundancy is never being changed.
    let (changing, changing_bytes): (i64, i64) = db.query_row(
        "SELECT count(*), coalesce(sum(size - holes), 0) FROM versions
         WHERE chunks > 0 AND goal IS NOT NULL
             AND NOT EXISTS (SELECT 1 FROM parts WHERE part = versions.id)",
        params![],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let mut stats = Stats {
        changing: changing as u64,
        changing_bytes: changing_bytes.max(0) as u64,
        files: files.max(0) as u64,
        bytes: bytes.max(0) as u64,
        condemned: (condemned as u64).saturating_sub(condemned_at_dead),
        condemned_at_dead,
        donors: BTreeMap::new(),
    };
    let mut rows = db.prepare(COPIES_BY_DONOR)?;
    let mut rows = rows.query(params![])?;
    while let Some(row) = rows.next()? {
        let (all, here) = (row.get::<i64>(1)? as u64, row.get::<i64>(2)? as u64);
        stats.donors.insert(DonorId(row.get(0)?), Copies { here, bad: all - here });
    }
    Ok(stats)
}

/// Returns the number of chunks that no file uses and that are at some of these donors and at no other.
fn only_at(db: &Tx, donors: &BTreeSet<DonorId>) -> Result<u64, Error> {
    let mut chunks = db.prepare("SELECT id FROM chunks WHERE refs = 0 AND state IN (0, 1)")?;
    let mut holders = db.prepare("SELECT donor FROM placements WHERE chunk = ?1")?;
    let (mut chunks, mut only) = (chunks.query(params![])?, 0);
    while let Some(chunk) = chunks.next()? {
        let mut holders = holders.query(params![chunk.get::<i64>(0)?])?;
        let (mut is_somewhere, mut is_elsewhere) = (false, false);
        while let Some(holder) = holders.next()? {
            is_somewhere = true;
            is_elsewhere |= !donors.contains(&DonorId(holder.get(0)?));
        }
        only += u64::from(is_somewhere && !is_elsewhere);
    }
    Ok(only)
}
