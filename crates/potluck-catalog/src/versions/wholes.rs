//! Versions that are made of parts ([`crate::versions::parts`]), as the sums of their parts.

use crate::error::Error;
use crate::sql::{Tx, params};
use crate::versions::{
    parts, {self, COLUMNS},
};
use potluck_core::ids::VersionId;
use potluck_core::merkle::Tree;
use potluck_core::recipe;
use potluck_pool::redundancy::Version;

/// Returns part `number` of a whole, which must be there.
pub(crate) fn get(db: &Tx, whole: VersionId, number: u32) -> Result<Version, Error> {
    let part = parts::at(db, whole, number)?;
    let missing = || Error::Damaged(format!("part {number} of version {whole} is missing"));
    versions::get(db, part.ok_or_else(missing)?)
}

/// The parts of a file together.
pub(crate) struct Sum {
    /// The number of chunks of all parts together.
    pub chunks: u64,
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
    let (mut tree, mut size, mut count) = (Tree::default(), 0, 0);
    let mut sum = Sum { chunks: 0, safe: true };
    let mut whole_so_far = true;
    let Some(row) = recipe::part_bytes_of(file.size, file.chunk_size, file.parts) else {
        return Ok(None);
    };
    while let Some(found) = rows.next()? {
        let number: i64 = found.get(0)?;
        let Some(part) = versions::of_row(&found, 1)? else { return Ok(None) };
        let same = part.chunk_size == file.chunk_size && part.redundancy() == file.redundancy();
        if number != count || !whole_so_far || !same {
            return Ok(None);
        }
        whole_so_far = part.size == row;
        tree.push(part.digest.0);
        size += part.size;
        sum.chunks += part.chunks;
        sum.safe &= part.safe_wall_ms.is_some();
        count += 1;
    }
    let is_it = size == file.size && tree.root() == file.digest.0 && count as u64 == file.parts;
    Ok(is_it.then_some(sum))
}
