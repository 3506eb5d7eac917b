//! Versions: each is one immutable state of a file's content, with its recipe.

pub(crate) mod open;
pub(crate) mod parts;
pub(crate) mod wholes;

use crate::attribute_columns::columns;
use crate::chunks::{ReferenceCounts, packed};
use crate::error::Error;
use crate::history::trash;
use crate::policies::conversions;
use crate::sql::{Row, Tx, params};
use potluck_core::attributes::{EntryAttributes, FileOwner, FileTime, Permissions};
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::ids::{KeyNumber, VersionId};
use potluck_core::origin::CacheState;
use potluck_core::policy::Redundancy;
use potluck_core::recipe::{self, Entry, PAGE_ENTRIES};
use potluck_pool::redundancy::Version;

/// The columns of [`of_row`], for queries that join `versions AS v`.
pub const COLUMNS: &str = "v.id, v.size, v.digest, v.mtime_ns, v.permissions, v.uid, v.gid, v.chunk_size, v.copies, v.chunks, v.inline IS NOT NULL, v.ec, v.goal, v.safe_wall_ms, v.parts, v.key, v.ctime_ns, v.atime_ns, v.holes, v.metadata, v.origin, v.cache";

/// The number of columns that [`COLUMNS`] names.
pub const COLUMN_COUNT: usize = 22;

/// Reads [`COLUMNS`] from column `at` on; `None` where the join found no version.
pub fn of_row(row: &Row<'_>, at: usize) -> Result<Option<Version>, Error> {
    let Some(id) = row.get::<Option<i64>>(at)? else { return Ok(None) };
    Ok(Some(Version {
        id: VersionId(id as u64),
        size: row.get::<i64>(at + 1)? as u64,
        holes: row.get::<i64>(at + 18)? as u64,
        digest: Digest(row.get(at + 2)?),
        attributes: EntryAttributes {
            mtime: FileTime(row.get(at + 3)?),
            permissions: Permissions::of_mode(row.get(at + 4)?),
            owner: FileOwner::of_columns(row.get(at + 5)?, row.get(at + 6)?),
            changed: FileTime(row.get(at + 16)?),
            accessed: row.get::<Option<i64>>(at + 17)?.map(FileTime),
        },
        chunk_size: row.get(at + 7)?,
        copies: row.get(at + 8)?,
        chunks: row.get::<i64>(at + 9)? as u64,
        inline: row.get(at + 10)?,
        ec: parsed(row, at + 11, |text| text.parse().map_err(|why| format!("{why}")))?,
        goal: parsed(row, at + 12, |text| {
            serde_json::from_str(text).map_err(|why| why.to_string())
        })?,
        safe_wall_ms: row.get(at + 13)?,
        metadata: parsed(row, at + 19, |text| {
            serde_json::from_str(text).map_err(|why| why.to_string())
        })?,
        parts: row.get::<i64>(at + 14)? as u64,
        key: row.get::<Option<u32>>(at + 15)?.map(KeyNumber),
        origin: parsed(row, at + 20, |text| {
            serde_json::from_str(text).map_err(|why| why.to_string())
        })?,
        cache: cache_state(row.get(at + 21)?)?,
    }))
}

fn cache_state(number: u8) -> Result<CacheState, Error> {
    let unknown = || Error::Damaged(format!("a version's cache state is {number}"));
    CacheState::of_number(number).ok_or_else(unknown)
}

fn parsed<T>(
    row: &Row<'_>,
    at: usize,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, Error> {
    let text: Option<String> = row.get(at)?;
    let parsed = text.map(|text| parse(&text)).transpose();
    parsed.map_err(|why| Error::Damaged(format!("column {at} of a version: {why}")))
}

/// Returns the version with a number, which must be there because something in the catalog names it.
pub(crate) fn get(db: &Tx, id: VersionId) -> Result<Version, Error> {
    find(db, id)?.ok_or_else(|| Error::Damaged(format!("version {id} is missing")))
}

/// Writes a version and its recipe.
pub(crate) fn insert(
    db: &Tx,
    version: &Version,
    inline: Option<&[u8]>,
    pages: &[Vec<u8>],
    parity: &[ChunkName],
) -> Result<(), Error> {
    let parity = (!parity.is_empty()).then(|| packed(parity));
    let (mtime, permissions, uid, gid, ctime, atime) = columns(version.attributes);
    db.prepare(
        "INSERT INTO versions
         (id, size, digest, mtime_ns, permissions, uid, gid, chunk_size, copies, chunks, inline, ec,
          parity, goal, safe_wall_ms, parts, key, ctime_ns, atime_ns, holes, metadata, origin, cache)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
                 ?21, ?22, ?23)",
    )?
    .execute(params![
        version.id.0 as i64,
        version.size as i64,
        version.digest.0,
        mtime,
        permissions,
        uid,
        gid,
        version.chunk_size,
        version.copies,
        version.chunks as i64,
        inline,
        version.ec.map(|ec| ec.to_string()),
        parity,
        goal_text(version.goal)?,
        version.safe_wall_ms,
        version.parts as i64,
        version.key.map(|key| key.0),
        ctime,
        atime,
        version.holes as i64,
        json_text(version.metadata.as_ref())?,
        json_text(version.origin.as_ref())?,
        version.cache.number(),
    ])?;
    if version.parts > 0 && !version.cache.is_kept() {
        // Its parts were stored before it was known that the whole has an origin.
        set_cache(db, version.id, version.cache)?;
    }
    insert_pages(db, version.id, pages)
}

/// Writes the pages of a version's recipe.
pub(crate) fn insert_pages(db: &Tx, id: VersionId, pages: &[Vec<u8>]) -> Result<(), Error> {
    if !pages.is_empty() {
        let mut insert =
            db.prepare("INSERT INTO recipe_pages (version, page, blob) VALUES (?1, ?2, ?3)")?;
        for (page, blob) in pages.iter().enumerate() {
            insert.execute(params![id.0 as i64, page as i64, blob])?;
        }
    }
    Ok(())
}

/// The facts about a deleted version; nothing where they could not be read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeletedVersion {
    /// The bytes of the version's file that were in no hole.
    pub data: u64,
    /// The number of its chunks, for a whole those of all its parts; 0 if they could not be read.
    pub chunks: u64,
    /// True if the content lived in the catalog.
    pub in_catalog: bool,
}

/// Deletes a version. The references of its chunks, parity included, end with it. If it has more chunks than a recipe
/// page has entries, they end later, so that the transaction stays short. A version that readers have open goes to the
/// trash whole, as does one with parts, of which readers may still open some.
///
/// A version whose record is damaged is deleted too, and chunks whose names cannot be read stay for ever: an error
/// would keep the file from being removed or replaced, and everything queued behind it from being reclaimed.
pub(crate) fn delete(
    db: &Tx,
    id: VersionId,
    counts: &mut ReferenceCounts<'_>,
) -> Result<DeletedVersion, Error> {
    delete_with(db, id, counts, PAGE_ENTRIES as u64)
}

/// Deletes a version as [`delete`] does, but leaves the references of all of its chunks for later, because very many
/// versions are deleted in one transaction.
pub(crate) fn throw_away(
    db: &Tx,
    id: VersionId,
    counts: &mut ReferenceCounts<'_>,
) -> Result<DeletedVersion, Error> {
    delete_with(db, id, counts, 0)
}

/// Deletes a version. Its references end at once if it has at most `at_once` chunks and no reader has it open.
fn delete_with(
    db: &Tx,
    id: VersionId,
    counts: &mut ReferenceCounts<'_>,
    at_once: u64,
) -> Result<DeletedVersion, Error> {
    let deleted = match readable(id, get(db, id).map(Some))? {
        Some(version) => {
            end_references(db, &version, counts, at_once)?;
            let Version { chunks, .. } = version;
            DeletedVersion { data: version.data(), chunks, in_catalog: chunks == 0 }
        }
        None => {
            let CountedVersion { size, holes, chunks } = counted_of(db, id)?;
            let data = size.saturating_sub(holes);
            DeletedVersion { data, chunks: 0, in_catalog: chunks == 0 }
        }
    };
    db.prepare("DELETE FROM versions WHERE id = ?1")?.execute(params![id.0 as i64])?;
    Ok(deleted)
}

/// Ends the references of a version that is being deleted, or has the trash end them later.
fn end_references(
    db: &Tx,
    version: &Version,
    counts: &mut ReferenceCounts<'_>,
    at_once: u64,
) -> Result<(), Error> {
    let (id, now_ms) = (version.id, counts.now_ms());
    let is_leased = db.leases().is_leased(id, now_ms);
    if version.parts > 0 {
        return trash::throw_whole(db, id, now_ms);
    }
    if version.chunks == 0 {
        // A file that is one hole has a recipe, though no chunks.
        return delete_pages(db, id);
    }
    let parity = readable(id, parity(db, version))?;
    if version.chunks > at_once || is_leased {
        return trash::throw_version(db, version, &parity, is_leased.then_some(now_ms));
    }
    let recipe = readable(id, recipe_of(db, version))?;
    counts.remove(id, recipe.iter().map(|entry| &entry.name))?;
    counts.remove(id, &parity)?;
    counts.remove(id, &conversions::forget(db, id)?)?;
    delete_pages(db, id)
}

fn delete_pages(db: &Tx, id: VersionId) -> Result<(), Error> {
    db.prepare("DELETE FROM recipe_pages WHERE version = ?1")?.execute(params![id.0 as i64])?;
    Ok(())
}

/// Returns what was read of a version that is being deleted, or the default if its record is damaged.
fn readable<T: Default>(id: VersionId, read: Result<T, Error>) -> Result<T, Error> {
    match read {
        Err(Error::Damaged(why)) => {
            tracing::error!(version = %id, why, "the record of a version that is deleted");
            Ok(T::default())
        }
        read => read,
    }
}

/// Returns the bytes of a version's file, whatever else of its record is damaged; 0 if there is no such version.
pub(crate) fn size_of(db: &Tx, id: VersionId) -> Result<u64, Error> {
    counted_of(db, id).map(|counted| counted.size)
}

/// Returns the bytes of a version's file that are in no hole, as [`size_of`] does.
pub(crate) fn data_of(db: &Tx, id: VersionId) -> Result<u64, Error> {
    counted_of(db, id).map(|counted| counted.size.saturating_sub(counted.holes))
}

/// The numbers of a version that can be read whatever else of its record is damaged; 0 if there is no such version.
#[derive(Default)]
struct CountedVersion {
    size: u64,
    holes: u64,
    chunks: u64,
}

fn counted_of(db: &Tx, id: VersionId) -> Result<CountedVersion, Error> {
    let counted = db.prepare("SELECT size, holes, chunks FROM versions WHERE id = ?1")?.query_one(
        params![id.0 as i64],
        |row| {
            let number = |at| row.get::<i64>(at).map(|number| number as u64);
            Ok(CountedVersion { size: number(0)?, holes: number(1)?, chunks: number(2)? })
        },
    )?;
    Ok(counted.unwrap_or_default())
}

/// Sets the attributes of a version, if it is still there.
pub(crate) fn set_attributes(
    db: &Tx,
    id: VersionId,
    attributes: EntryAttributes,
) -> Result<(), Error> {
    let (mtime, permissions, uid, gid, ctime, atime) = columns(attributes);
    db.prepare(
        "UPDATE versions
         SET mtime_ns = ?2, permissions = ?3, uid = ?4, gid = ?5, ctime_ns = ?6, atime_ns = ?7
         WHERE id = ?1",
    )?
    .execute(params![id.0 as i64, mtime, permissions, uid, gid, ctime, atime])?;
    Ok(())
}

/// Gives a version another redundancy, whose references the caller has counted.
pub(crate) fn set_redundancy(
    db: &Tx,
    id: VersionId,
    redundancy: Redundancy,
    parity: &[ChunkName],
) -> Result<(), Error> {
    let (copies, ec) = match redundancy {
        Redundancy::Copies(copies) => (copies, None),
        Redundancy::Ec(ec) => (1, Some(ec.to_string())),
    };
    let parity = (!parity.is_empty()).then(|| packed(parity));
    db.prepare("UPDATE versions SET copies = ?2, ec = ?3, parity = ?4 WHERE id = ?1")?
        .execute(params![id.0 as i64, copies, ec, parity])?;
    Ok(())
}

/// Returns the version with a number, if it is still there.
pub(crate) fn find(db: &Tx, id: VersionId) -> Result<Option<Version>, Error> {
    let found = db
        .prepare(&format!("SELECT {COLUMNS} FROM versions AS v WHERE v.id = ?1"))?
        .query_one(params![id.0 as i64], |row| of_row(row, 0));
    Ok(found?.flatten())
}

/// Sets the redundancy to which a version, with all of its parts, is being changed; `None`: it keeps the one it has.
pub(crate) fn set_goal(db: &Tx, id: VersionId, goal: Option<Redundancy>) -> Result<(), Error> {
    db.prepare(
        "UPDATE versions SET goal = ?2
         WHERE id IN (SELECT ?1 UNION ALL SELECT part FROM parts WHERE whole = ?1)
             AND goal IS DISTINCT FROM ?2",
    )?
    .execute(params![id.0 as i64, goal_text(goal)?])?;
    Ok(())
}

/// Sets what the pool promises of a version, with all of its parts, if it is still there.
pub(crate) fn set_cache(db: &Tx, id: VersionId, cache: CacheState) -> Result<(), Error> {
    db.prepare(
        "UPDATE versions SET cache = ?2
         WHERE id IN (SELECT ?1 UNION ALL SELECT part FROM parts WHERE whole = ?1) AND cache <> ?2",
    )?
    .execute(params![id.0 as i64, cache.number()])?;
    Ok(())
}

fn goal_text(goal: Option<Redundancy>) -> Result<Option<String>, Error> {
    json_text(goal.as_ref())
}

fn json_text<T: serde::Serialize>(value: Option<&T>) -> Result<Option<String>, Error> {
    let text = value.map(serde_json::to_string).transpose();
    text.map_err(|why| Error::Bug(why.to_string()))
}

/// Reads the packed pages of a recipe, in order.
pub(crate) fn pages(db: &Tx, id: VersionId) -> Result<Vec<Vec<u8>>, Error> {
    let mut rows = db.prepare("SELECT blob FROM recipe_pages WHERE version = ?1 ORDER BY page")?;
    let pages =
        rows.query_map(params![id.0 as i64], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(pages)
}

/// Reads the chunks in the pages of `version`'s recipe, without the holes between them. A recipe that is incomplete, or does not match the file's digest, is never
/// handed out (promise D4).
pub fn unpack(version: &Version, pages: &[Vec<u8>]) -> Result<Vec<Entry>, Error> {
    let damaged =
        |why: &str| Error::Damaged(format!("the recipe of version {}: {why}", version.id));
    let pages = pages.iter().map(Vec::as_slice);
    let content =
        recipe::unpack(&version.digest, pages).map_err(|why| damaged(&why.to_string()))?;
    let entries = content.chunks;
    if entries.len() as u64 != version.chunks {
        return Err(damaged("chunks are missing"));
    }
    Ok(entries)
}

/// Reads the entries of a version's recipe.
pub(crate) fn recipe_of(db: &Tx, version: &Version) -> Result<Vec<Entry>, Error> {
    unpack(version, &pages(db, version.id)?)
}

/// Reads the names of at most `most` chunks of a version, parity after data, from number `first` on.
pub(crate) fn some_names(
    db: &Tx,
    version: &Version,
    first: u64,
    most: u64,
) -> Result<Vec<ChunkName>, Error> {
    let mut names = Vec::new();
    let most = most as usize;
    while names.len() < most {
        let at = first + names.len() as u64;
        let (page, skipped) = (at / PAGE_ENTRIES as u64, (at % PAGE_ENTRIES as u64) as usize);
        if at >= version.chunks {
            let parity = parity(db, version)?;
            let rest = parity.get((at - version.chunks) as usize..).unwrap_or_default();
            names.extend(rest.iter().take(most - names.len()));
            break;
        }
        let blob: Vec<u8> = db
            .prepare("SELECT blob FROM recipe_pages WHERE version = ?1 AND page = ?2")?
            .query_row(params![version.id.0 as i64, page as i64], |row| row.get(0))?;
        let content = recipe::unpack_one(&version.digest, page as usize, &blob).map_err(|why| {
            Error::Damaged(format!("the recipe of version {}: {why}", version.id))
        })?;
        let rest = content.chunks.get(skipped..).unwrap_or_default();
        if rest.is_empty() {
            return Err(Error::Damaged(format!("chunks of version {} are missing", version.id)));
        }
        names.extend(rest.iter().take(most - names.len()).map(|entry| entry.name));
    }
    Ok(names)
}

/// Reads the names of a version's parity chunks, k for each group in order; none if the version has no code.
pub(crate) fn parity(db: &Tx, version: &Version) -> Result<Vec<ChunkName>, Error> {
    let Some(ec) = version.ec else { return Ok(Vec::new()) };
    let blob: Option<Vec<u8>> = db
        .prepare("SELECT parity FROM versions WHERE id = ?1")?
        .query_row(params![version.id.0 as i64], |row| row.get(0))?;
    let blob = blob.unwrap_or_default();
    let (names, rest) = blob.as_chunks::<32>();
    let groups = ec.group_count(version.chunks as usize);
    if !rest.is_empty() || names.len() != groups * ec.parity() {
        return Err(Error::Damaged(format!("the parity of version {}", version.id)));
    }
    Ok(names.iter().map(|name| ChunkName(*name)).collect())
}

/// Returns the content of a version, if it lives in the catalog.
pub(crate) fn inline(db: &Tx, id: VersionId) -> Result<Option<Vec<u8>>, Error> {
    let found = db
        .prepare("SELECT inline FROM versions WHERE id = ?1")?
        .query_one(params![id.0 as i64], |row| row.get(0))?;
    Ok(found.flatten())
}
