//! The content of sealed spaces that is sealed with earlier keys.

use crate::error::Error;
use crate::pool_records::{space_keys::KeyRing, spaces::Space};
use crate::sql::{Tx, params};
use crate::versions::{self, COLUMNS};
use potluck_core::ids::VersionId;
use potluck_pool::redundancy::Version;

/// The state of a space between two keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContentUnderOldKeys {
    /// The number of files, and parts of large files, kept versions included, that are sealed with earlier keys.
    pub versions: u64,
    /// The size of these in bytes of plaintext.
    pub bytes: u64,
    /// The number of those that are being written, or deleted, and so cannot be sealed again.
    pub passing: u64,
    /// The number of write sessions that began under earlier keys.
    pub sessions: u64,
}

/// The condition under which a version `v` is in use: an entry names it, or it is a part of a version that is there.
const IN_USE: &str = "(EXISTS (SELECT 1 FROM entries e WHERE e.version = v.id)
     OR EXISTS (SELECT 1 FROM parts p JOIN versions w ON w.id = p.whole WHERE p.part = v.id)
     OR EXISTS (SELECT 1 FROM bygone b WHERE b.version = v.id))";

/// Returns the keys of a space that is sealed.
pub(crate) fn keys_of(space: &Space) -> Result<&KeyRing, Error> {
    space.keys.as_ref().ok_or_else(|| Error::NotSealed(space.name.clone()))
}

/// Returns what is left in a space under earlier keys.
pub(crate) fn old_content(db: &Tx, space: &Space) -> Result<ContentUnderOldKeys, Error> {
    let keys = keys_of(space)?;
    let mut left = ContentUnderOldKeys::default();
    let mut count = db.prepare(&format!(
        "SELECT count(*), coalesce(sum(v.size - v.holes), 0), {IN_USE} AS used FROM versions v WHERE v.key = ?1 GROUP BY used"
    ))?;
    let mut sessions = db.prepare("SELECT count(*) FROM sessions WHERE key = ?1 AND ended = 0")?;
    for number in keys.earlier() {
        let mut rows = count.query(params![number.0])?;
        while let Some(row) = rows.next()? {
            let (versions, bytes, used): (i64, i64, bool) = (row.get(0)?, row.get(1)?, row.get(2)?);
            match used {
                true => {
                    left.versions += versions as u64;
                    left.bytes += bytes as u64;
                }
                false => left.passing += versions as u64,
            }
        }
        let open: Option<i64> = sessions.query_one(params![number.0], |row| row.get(0))?;
        left.sessions += open.unwrap_or_default() as u64;
    }
    Ok(left)
}

/// Returns the first versions after `after` that are sealed with earlier keys of a space and can be sealed again, at
/// most `most`.
pub(crate) fn old_versions(
    db: &Tx,
    space: &Space,
    after: VersionId,
    most: usize,
) -> Result<Vec<Version>, Error> {
    let mut select = db.prepare(&format!(
        "SELECT {COLUMNS} FROM versions v WHERE v.key = ?1 AND v.id > ?2 AND {IN_USE} ORDER BY v.id LIMIT ?3"
    ))?;
    let mut found = Vec::new();
    for number in keys_of(space)?.earlier() {
        let mut rows = select.query(params![number.0, after.0 as i64, most as i64])?;
        while let Some(row) = rows.next()? {
            found.extend(versions::of_row(&row, 0)?);
        }
    }
    found.sort_by_key(|version| version.id);
    found.truncate(most);
    Ok(found)
}
