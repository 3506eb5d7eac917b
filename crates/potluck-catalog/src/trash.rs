//! Trees that no path reaches any more, taken apart a few entries at a time.

use super::chunks::ReferenceCounts;
use super::dir_policies;
use super::entries::{self, DirId, Found, Place};
use super::error::Error;
use super::versions;
use crate::sql::{Tx, params};

/// Unlinks a directory for good.
pub(crate) fn throw(db: &Tx, dir: DirId) -> Result<(), Error> {
    db.prepare("INSERT INTO trash (dir) VALUES (?1)")?.execute(params![dir.0])?;
    Ok(())
}

/// Takes up to `limit` entries apart; `false` when there is no trash.
pub(crate) fn reap(db: &Tx, limit: usize, now_ms: u64) -> Result<bool, Error> {
    let next: Option<i64> = db
        .prepare("SELECT dir FROM trash ORDER BY dir LIMIT 1")?
        .query_one(params![], |row| row.get(0))?;
    let Some(dir) = next.map(DirId) else { return Ok(false) };
    let below = children(db, dir, limit)?;
    if below.is_empty() {
        dir_policies::forget(db, dir)?;
        db.prepare("DELETE FROM trash WHERE dir = ?1")?.execute(params![dir.0])?;
        return Ok(true);
    }
    let mut counts = ReferenceCounts::new(db, now_ms);
    for (name, place) in below {
        match place {
            Place::Dir(below) => throw(db, below)?,
            Place::File(version) => {
                let (_, chunks) = versions::delete(db, version)?;
                counts.remove(&chunks)?;
            }
        }
        entries::delete(db, dir, &name)?;
    }
    counts.close()?;
    Ok(true)
}

fn children(db: &Tx, dir: DirId, limit: usize) -> Result<Vec<(String, Place)>, Error> {
    let mut rows = db.prepare(
        "SELECT name, dir, version FROM entries WHERE parent = ?1 ORDER BY name LIMIT ?2",
    )?;
    let mut rows = rows.query(params![dir.0, limit as i64])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push((row.get(0)?, Found::of(row.get(1)?, row.get(2)?, 0)?.place));
    }
    Ok(found)
}

/// Whether there is trash.
pub(crate) fn any(db: &Tx) -> Result<bool, Error> {
    db.prepare("SELECT 1 FROM trash LIMIT 1")?.exists(params![])
}
