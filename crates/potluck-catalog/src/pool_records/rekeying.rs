//! New keys for sealed spaces, and what is left under earlier ones.

use crate::error::Error;
use crate::log::apply;
use crate::pool_records::{
    meta::Counter,
    space_keys::KeyRing,
    spaces::{self, Space},
};
use crate::sql::{Tx, params};
use crate::versions::{self, COLUMNS};
use potluck_core::ids::{KeyNumber, VersionId};
use potluck_core::seal::SpaceKey;
use potluck_pool::redundancy::Version;

/// The way in which the keys of a space change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rekey {
    /// A new key is made in any case.
    Anew,
    /// A new key is made unless content is still to be sealed with the present key, which nobody else can know: then an earlier rekey
    /// goes on.
    OrGoOn,
    /// No key is made: only keys that nothing needs any more are dropped.
    Finish,
}

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

fn keys_of(space: &Space) -> Result<&KeyRing, Error> {
    space.keys.as_ref().ok_or_else(|| Error::NotSealed(space.name.clone()))
}

/// Gives a space a new key if that is asked for, and returns whether it did. Keys that nothing needs are dropped.
pub(crate) fn rekey(db: &Tx, name: &str, key: &SpaceKey, how: Rekey) -> Result<bool, Error> {
    drop_unused(db, name)?;
    let space = spaces::named(db, name)?;
    let mut keys = keys_of(&space)?.clone();
    // Each earlier key that is left is needed.
    let goes_on = match how {
        Rekey::Anew => false,
        Rekey::OrGoOn => keys.earlier().next().is_some() && !keys.exposed,
        Rekey::Finish => true,
    };
    if goes_on {
        return Ok(false);
    }
    keys.current = KeyNumber(Counter::Key.take(db, 1)? as u32);
    keys.keys.0.insert(keys.current, key.clone());
    keys.exposed = false;
    apply::write(db, Space { keys: Some(keys), ..space }.record())?;
    drop_unused(db, name)?;
    Ok(true)
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

/// Drops the earlier keys of a space that nothing needs any more, and returns how many there were.
pub(crate) fn drop_unused(db: &Tx, name: &str) -> Result<usize, Error> {
    let space = spaces::named(db, name)?;
    let Some(mut keys) = space.keys.clone() else { return Ok(0) };
    let before = keys.keys.0.len();
    for number in keys.earlier().collect::<Vec<_>>() {
        let needed = db.prepare("SELECT 1 FROM versions WHERE key = ?1 LIMIT 1")?;
        let needed = { needed }.exists(params![number.0])?
            || db
                .prepare("SELECT 1 FROM sessions WHERE key = ?1 AND ended = 0")?
                .exists(params![number.0])?;
        if !needed {
            keys.keys.0.remove(&number);
        }
    }
    let dropped = before - keys.keys.0.len();
    if dropped > 0 {
        apply::write(db, Space { keys: Some(keys), ..space }.record())?;
    }
    Ok(dropped)
}
