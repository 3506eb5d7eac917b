//! Versions that are made of parts ([`crate::versions::parts`]), as the sums of their parts.

use crate::error::Error;
use crate::sql::{Tx, params};
use crate::versions::{
    parts, {self, COLUMNS},
};
use potluck_core::chunk::Digest;
use potluck_core::ids::VersionId;
use potluck_core::recipe;
use potluck_pool::redundancy::Version;

/// Returns the first part of a whole from number `from` on, with its number; `None` where only a hole follows.
pub(crate) fn next(db: &Tx, whole: VersionId, from: u32) -> Result<Option<(u32, Version)>, Error> {
    let Some((number, part)) = parts::next(db, whole, from)? else { return Ok(None) };
    Ok(Some((number, versions::get(db, part)?)))
}

/// The parts of a file together.
pub(crate) struct Sum {
    /// The number of chunks of all parts together.
    pub chunks: u64,
    /// The bytes of the file that are in holes: those of parts that are there, and parts that are not.
    pub holes: u64,
    /// True if all redundancy of each part is there.
    pub safe: bool,
}

/// Adds the parts of a whole up. Returns `None` if they are not those of a file of this size, digest, chunk size and
/// redundancy.
pub(crate) fn sum(db: &Tx, file: &Version) -> Result<Option<Sum>, Error> {
    let mut select = db.prepare(&format!(
        "SELECT p.number, {COLUMNS} FROM parts p LEFT JOIN versions v ON v.id = p.part
         WHERE p.whole = ?1 ORDER BY p.number"
    ))?;
    let mut rows = select.query(params![file.id.0 as i64])?;
    let mut stored: Vec<(u32, Digest)> = Vec::new();
    let mut sum = Sum { chunks: 0, holes: file.size, safe: true };
    let Some(row) = recipe::part_bytes_of(file.size, file.chunk_size, file.parts) else {
        return Ok(None);
    };
    while let Some(found) = rows.next()? {
        let number: u32 = found.get(0)?;
        let Some(part) = versions::of_row(&found, 1)? else { return Ok(None) };
        let same = part.chunk_size == file.chunk_size && part.redundancy() == file.redundancy();
        let before = u64::from(number).saturating_mul(row);
        if before >= file.size || part.size != row.min(file.size - before) || !same {
            return Ok(None);
        }
        stored.push((number, part.digest));
        sum.chunks += part.chunks;
        sum.holes = sum.holes.saturating_sub(part.data());
        sum.safe &= part.safe_wall_ms.is_some();
    }
    let is_it = recipe::digest_of_parts(file.size, row, stored) == Some(file.digest);
    Ok(is_it.then_some(sum))
}
