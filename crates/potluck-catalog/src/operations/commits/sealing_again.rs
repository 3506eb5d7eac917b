//! Versions whose content is sealed with another key of their space: the same bytes by other chunks, in the place of the
//! chunks that it had. The version keeps its number, so that every name, snapshot and part that leads to it stays.

use crate::chunks::ReferenceCounts;
use crate::error::Error;
use crate::log::changes::{self, ChangeOp};
use crate::operations::commits::commit::{PreparedChunk, PreparedFile};
use crate::policies::conversions;
use crate::pool_records::spaces::Space;
use crate::sql::{Tx, params};
use crate::versions::{self, parts};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{KeyNumber, VersionId};
use potluck_pool::redundancy::Version;

/// Returns the version that `file`, sealed with key `key`, is to seal again.
///
/// Errors: [`Error::NotSealedAgain`] if the version is gone, or differs from the file in anything but the key, or the
/// key is not the present one or was that before; [`Error::OpenElsewhere`] while readers have it open (promise A5).
pub(crate) fn find(
    db: &Tx,
    space: Option<&Space>,
    (of, key): (VersionId, Option<KeyNumber>),
    file: &PreparedFile,
    now_ms: u64,
) -> Result<Version, Error> {
    let differs = || Error::NotSealedAgain(of);
    let found = versions::find(db, of)?.ok_or_else(differs)?;
    let keys = space.and_then(|space| space.keys.as_ref()).ok_or_else(differs)?;
    let is_earlier = found.key.is_some_and(|key| keys.earlier().any(|earlier| earlier == key));
    if !is_earlier || key != Some(keys.current) {
        return Err(differs());
    }
    let new = &file.version;
    // Where its groups are cut otherwise than at first, other zeros of its holes are stored now. The version counts as it
    // did, so that the sums lose as much when it goes as they gained when it came.
    let same = (found.size, found.digest, found.inline, found.chunk_size, found.parts)
        == (new.size, new.digest, new.inline, new.chunk_size, new.parts);
    if !same || file.in_parts.is_some() || !new.inline && found.redundancy() != new.redundancy() {
        return Err(differs());
    }
    let whole = parts::whole_of(db, of)?.unwrap_or(of);
    match db.leases().is_leased(whole, now_ms) {
        true => Err(Error::OpenElsewhere(whole)),
        false => Ok(found),
    }
}

/// Content that is sealed with another key.
pub(crate) struct SealedContent<'a> {
    /// The number of the key.
    pub key: KeyNumber,
    /// The sealed content, if it lives in the catalog.
    pub inline: Option<&'a [u8]>,
    /// The pages of the recipe.
    pub pages: &'a [Vec<u8>],
    /// The chunks in order, then the parity.
    pub chunks: &'a [PreparedChunk],
    /// The number of chunks that are no parity.
    pub data: usize,
    /// The time since when all redundancy of the content is there.
    pub safe_wall_ms: Option<i64>,
}

/// Gives a version this content in the place of what it has. The references of the earlier chunks end.
pub(crate) fn replace(
    db: &Tx,
    version: &Version,
    new: &SealedContent<'_>,
    counts: &mut ReferenceCounts<'_>,
) -> Result<(), Error> {
    let id = version.id;
    for chunk in new.chunks {
        counts.add(id, &chunk.name, chunk.len, &chunk.holders)?;
    }
    let earlier = versions::recipe_of(db, version)?;
    counts.remove(id, earlier.iter().map(|entry| &entry.name))?;
    counts.remove(id, &versions::parity(db, version)?)?;
    counts.remove(id, &conversions::forget(db, id)?)?;
    db.prepare("DELETE FROM recipe_pages WHERE version = ?1")?.execute(params![id.0 as i64])?;
    versions::insert_pages(db, id, new.pages)?;
    let parity = new.chunks.get(new.data..).unwrap_or_default();
    let parity: Vec<ChunkName> = parity.iter().map(|chunk| chunk.name).collect();
    versions::set_redundancy(db, id, version.redundancy(), &parity)?;
    db.prepare(
        "UPDATE versions SET key = ?2, inline = ?3, chunks = ?4, safe_wall_ms = ?5 WHERE id = ?1",
    )?
    .execute(params![
        id.0 as i64,
        new.key.0,
        new.inline,
        new.data as i64,
        new.safe_wall_ms
    ])?;
    changes::append(db, &ChangeOp::SealedAgain(id))?;
    parts::safety_changed(db, &[id])
}
