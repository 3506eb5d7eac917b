//! Trees and versions that are gone for good: no path reaches them any more, and [`crate::history::reaping`] takes them
//! apart step by step. Removed things that can be brought back, which people call the trash, are in [`crate::history`].

use crate::chunks::packed;
use crate::error::Error;
use crate::names::entries::DirId;
use crate::sql::{Tx, params};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{SpaceId, VersionId};
use potluck_core::recipe::PAGE_ENTRIES;
use potluck_pool::redundancy::Version;

/// Leaves a directory of this space, to which no entry leads any more, to be taken apart.
pub(crate) fn throw(db: &Tx, dir: DirId, space: SpaceId) -> Result<(), Error> {
    db.execute("INSERT INTO trash (dir, space) VALUES (?1, ?2)", params![dir.0, space.0])?;
    Ok(())
}

/// Leaves the references of a version that is deleted, with its parity, to be ended later. A version that readers have
/// open is left whole for a while, from its removal at `leased_ms` on.
pub(crate) fn throw_version(
    db: &Tx,
    version: &Version,
    parity: &[ChunkName],
    leased_ms: Option<u64>,
) -> Result<(), Error> {
    let (id, digest) = (version.id.0 as i64, version.digest.0);
    let thrown_ms = leased_ms.map(|ms| ms as i64);
    db.prepare("INSERT INTO trash (version, digest, thrown_ms) VALUES (?1, ?2, ?3)")?
        .execute(params![id, digest, thrown_ms])?;
    let mut insert =
        db.prepare("INSERT INTO trash (version, names, thrown_ms) VALUES (?1, ?2, ?3)")?;
    for names in parity.chunks(PAGE_ENTRIES) {
        insert.execute(params![id, packed(names), thrown_ms])?;
    }
    Ok(())
}

/// Leaves what is in a row whole for as long again from now on, because a reader still has it open.
pub(crate) fn keep_longer(db: &Tx, row: i64, now_ms: u64) -> Result<(), Error> {
    db.prepare("UPDATE trash SET thrown_ms = ?2 WHERE id = ?1")?
        .execute(params![row, now_ms as i64 + 1])?; // so that the row is not looked at again at this moment
    Ok(())
}

/// Leaves the parts of a version that was removed at this time to be taken apart later.
pub(crate) fn throw_whole(db: &Tx, whole: VersionId, now_ms: u64) -> Result<(), Error> {
    let (id, now) = (whole.0 as i64, now_ms as i64);
    db.prepare("INSERT INTO trash (version, thrown_ms) VALUES (?1, ?2)")?
        .execute(params![id, now])?;
    Ok(())
}

/// Leaves the parts of a file that never became visible to be taken apart.
pub(crate) fn throw_parts(db: &Tx, whole: VersionId) -> Result<(), Error> {
    db.execute("INSERT INTO trash (version) VALUES (?1)", params![whole.0 as i64])?;
    Ok(())
}

/// Returns whether there is trash.
pub(crate) fn any(db: &Tx) -> Result<bool, Error> {
    db.prepare("SELECT 1 FROM trash LIMIT 1")?.exists(params![])
}
