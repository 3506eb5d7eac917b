//! Takes trees and versions apart that no path reaches any more ([`crate::history::trash`]), a few entries and chunks
//! at a time.

use crate::chunks::{ReferenceCounts, unpacked};
use crate::error::Error;
use crate::history::{bygone, kept_rows, snapshot_rows, trash};
use crate::names::{
    entries::{self, DirId, EntryPlace},
    entry_moves,
};
use crate::operations::history::keeping;
use crate::policies::conversions;
use crate::pool_records::spaces::{self, Sums};
use crate::sql::{Tx, params};
use crate::versions;
use crate::versions::parts;
use crate::when::When;
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::ids::{SpaceId, VersionId};
use potluck_core::recipe::{self, PAGE_ENTRIES};

/// Something to be taken apart.
enum Thrown {
    /// A directory of this space.
    Dir(DirId, SpaceId),
    /// A version, and the digest of its file.
    Version(VersionId, Digest),
    /// A version that is made of parts.
    Whole(VersionId),
    /// The names of chunks whose references by a version are to be released.
    Names(VersionId, Vec<ChunkName>),
}

impl Thrown {
    /// Returns the version that is taken apart, or that the names are of.
    fn version(&self) -> Option<VersionId> {
        match self {
            Self::Dir(..) => None,
            Self::Version(version, _) | Self::Whole(version) | Self::Names(version, _) => {
                Some(*version)
            }
        }
    }
}

/// Takes one piece of trash apart, or a part of it with about `limit` entries and chunks. Returns `false` when there is
/// none, or none but versions that were thrown away less than `kept_ms` ago and that readers have, or may have, open.
pub(crate) fn reap(db: &Tx, limit: usize, kept_ms: u64, now_ms: u64) -> Result<bool, Error> {
    let kept_ms = match db.leases().are_unknown(now_ms) {
        true => u64::MAX,
        false => kept_ms,
    };
    let Some((id, thrown, since_ms)) = next(db, now_ms.saturating_sub(kept_ms))? else {
        return Ok(false);
    };
    // What has no time was open to nobody when it was thrown away.
    if since_ms.is_some()
        && let Some(version) = thrown.version()
        && db.leases().is_leased(version, now_ms)
    {
        trash::keep_longer(db, id, now_ms)?;
        return Ok(true);
    }
    let unused_since_ms = match (&thrown, since_ms) {
        // The chunks of a version that was left whole are unused since it was removed, or since nobody has it open.
        (_, Some(since_ms)) => since_ms,
        // The file never became visible: nobody could open it, and a writer may be waiting for the room (promise D2).
        // Chunks that it shares with visible files are unused only since those were removed.
        (Thrown::Whole(_), None) => now_ms.saturating_sub(kept_ms),
        (_, None) => now_ms,
    };
    let mut counts = ReferenceCounts::new(db, unused_since_ms);
    let done = match thrown {
        Thrown::Dir(dir, space) => take_entries(db, dir, space, limit, &mut counts)?,
        Thrown::Version(version, digest) => take_page(db, version, &digest, &mut counts)?,
        Thrown::Whole(whole) => take_part(db, whole, &mut counts)?,
        Thrown::Names(version, names) => {
            counts.remove(version, &names)?;
            true
        }
    };
    counts.close()?;
    if done {
        db.execute("DELETE FROM trash WHERE id = ?1", params![id])?;
    }
    Ok(true)
}

/// Finds the next trash to take apart, of that which was thrown away at `before_ms` or earlier, or has no time. Returns
/// the number of its row, the trash, and the time at which it was thrown away, if that was noted.
fn next(db: &Tx, before_ms: u64) -> Result<Option<(i64, Thrown, Option<u64>)>, Error> {
    let mut select = db.prepare(
        "SELECT id, dir, coalesce(space, 0), version, digest, names, thrown_ms FROM trash
         WHERE coalesce(thrown_ms, 0) <= ?1 ORDER BY coalesce(thrown_ms, 0), id LIMIT 1",
    )?;
    select.query_one(params![before_ms as i64], |row| {
        let version = VersionId(row.get::<Option<i64>>(3)?.unwrap_or_default() as u64);
        let names: Option<Vec<u8>> = row.get(5)?;
        let thrown = match (row.get(1)?, names, row.get::<Option<_>>(4)?) {
            (Some(dir), ..) => Thrown::Dir(DirId::now(dir), SpaceId(row.get(2)?)),
            (None, Some(names), _) => Thrown::Names(version, unpacked(&names)),
            (None, None, Some(digest)) => Thrown::Version(version, Digest(digest)),
            (None, None, None) => Thrown::Whole(version),
        };
        Ok((row.get(0)?, thrown, row.get::<Option<i64>>(6)?.map(|ms| ms as u64)))
    })
}

/// Takes entries of a directory apart, then the rows about it, and returns whether the directory is done.
fn take_entries(
    db: &Tx,
    dir: DirId,
    space: SpaceId,
    limit: usize,
    counts: &mut ReferenceCounts<'_>,
) -> Result<bool, Error> {
    let below = entries::children(db, dir, limit)?;
    if below.is_empty() {
        let when = When { pool_ms: counts.now_ms(), ..When::default() };
        let released = bygone::forget_of(db, dir, limit)?;
        for place in &released.not_shown {
            keeping::not_shown(db, place, when)?;
        }
        if kept_rows::forget_of(db, dir, limit)? || !released.all {
            return Ok(false);
        }
        snapshot_rows::forget_dir(db, dir)?;
        entry_moves::dir_ended(db, space, dir)?;
        return Ok(true);
    }
    let (mut sums, mut work) = (Sums::default(), 0);
    for (name, place) in below {
        if let Some(number) = place.snapshot() {
            snapshot_rows::end(db, number)?;
            entries::delete(db, dir, &name)?;
            entry_moves::dir_ended(db, space, DirId::of_snapshot(number))?;
            continue;
        }
        // A snapshot of the directory from which it was moved here may still show it, and then it stays.
        if keeping::keep_shown(db, (dir, &name), &place, counts.now_ms())? {
            continue;
        }
        match place {
            EntryPlace::Dir(below) => trash::throw(db, below, space)?,
            EntryPlace::File(version) => {
                let deleted = versions::delete(db, version, counts)?;
                sums.deleted(deleted.data, deleted.in_catalog);
                work += deleted.chunks.min(PAGE_ENTRIES as u64) as usize;
            }
            EntryPlace::Link(_) => sums.sub(0),
        }
        entries::delete(db, dir, &name)?;
        work += 1;
        if work >= limit {
            break;
        }
    }
    spaces::add_sums(db, space, sums)?;
    Ok(false)
}

/// Ends the references of the last page of a version's recipe, or then of its conversion, and returns whether none is
/// left.
fn take_page(
    db: &Tx,
    version: VersionId,
    digest: &Digest,
    counts: &mut ReferenceCounts<'_>,
) -> Result<bool, Error> {
    let id = version.0 as i64;
    let last: Option<(i64, Vec<u8>)> = db
        .prepare(
            "SELECT page, blob FROM recipe_pages WHERE version = ?1 ORDER BY page DESC LIMIT 1",
        )?
        .query_one(params![id], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let Some((number, page)) = last else {
        let names = conversions::forget_some(db, version, PAGE_ENTRIES)?;
        counts.remove(version, &names)?;
        return Ok(names.is_empty());
    };
    match recipe::unpack_one(digest, number as usize, &page) {
        Ok(page) => counts.remove(version, page.chunks.iter().map(|entry| &entry.name))?,
        // The chunks of this page stay for ever. An error here would keep all other trash.
        Err(why) => tracing::error!(%version, page = number, %why, "a removed file's recipe"),
    }
    db.execute("DELETE FROM recipe_pages WHERE version = ?1 AND page = ?2", params![id, number])?;
    Ok(false)
}

/// Removes the last part of a whole, and returns whether none is left.
fn take_part(db: &Tx, whole: VersionId, counts: &mut ReferenceCounts<'_>) -> Result<bool, Error> {
    let Some((number, part)) = parts::last(db, whole)? else {
        parts::forget_whole(db, whole)?;
        return Ok(true);
    };
    versions::delete(db, part, counts)?;
    parts::forget(db, whole, number)?;
    Ok(false)
}
