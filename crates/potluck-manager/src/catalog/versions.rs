//! Versions: one immutable state of a file, and its recipe.

use super::error::Error;
use potluck_core::chunk::Digest;
use potluck_core::ids::VersionId;
use potluck_core::recipe::{self, Entry};
use rusqlite::{Connection, OptionalExtension, Row, params};

/// A version without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Its number.
    pub id: VersionId,
    /// Plaintext bytes.
    pub size: u64,
    /// Digest of the plaintext.
    pub digest: Digest,
    /// Modification time at the source.
    pub mtime_ms: i64,
    /// Whether its owner may execute it.
    pub executable: bool,
    /// Plaintext bytes per chunk.
    pub chunk_size: u32,
    /// Copies that its policy asks for.
    pub copies: u32,
    /// Chunks in its recipe.
    pub chunks: u64,
    /// Whether the content lives in the catalog.
    pub inline: bool,
}

/// The columns of [`Version::of_row`], for queries that join `versions AS v`.
pub const COLUMNS: &str = "v.id, v.size, v.digest, v.mtime_ms, v.executable, v.chunk_size, v.copies, v.chunks, v.inline IS NOT NULL";

impl Version {
    /// Reads [`COLUMNS`] from column `at` on; `None` where the join found no version.
    pub fn of_row(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Self>> {
        let Some(id) = row.get::<_, Option<i64>>(at)? else { return Ok(None) };
        Ok(Some(Self {
            id: VersionId(id as u64),
            size: row.get::<_, i64>(at + 1)? as u64,
            digest: Digest(row.get(at + 2)?),
            mtime_ms: row.get(at + 3)?,
            executable: row.get(at + 4)?,
            chunk_size: row.get(at + 5)?,
            copies: row.get(at + 6)?,
            chunks: row.get::<_, i64>(at + 7)? as u64,
            inline: row.get(at + 8)?,
        }))
    }
}

/// The version with a number, which must be there because an entry names it.
pub fn get(db: &Connection, id: VersionId) -> Result<Version, Error> {
    db.prepare_cached(&format!("SELECT {COLUMNS} FROM versions AS v WHERE v.id = ?1"))?
        .query_row([id.0 as i64], |row| Version::of_row(row, 0))
        .optional()?
        .flatten()
        .ok_or_else(|| Error::Damaged(format!("version {id} is missing")))
}

/// Writes a version and its recipe.
pub fn insert(
    db: &Connection,
    version: &Version,
    inline: Option<&[u8]>,
    pages: &[Vec<u8>],
) -> Result<(), Error> {
    db.prepare_cached(
        "INSERT INTO versions
         (id, size, digest, mtime_ms, executable, chunk_size, copies, chunks, inline)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        version.id.0 as i64,
        version.size as i64,
        version.digest.0,
        version.mtime_ms,
        version.executable,
        version.chunk_size,
        version.copies,
        version.chunks as i64,
        inline,
    ])?;
    if !pages.is_empty() {
        let mut insert = db
            .prepare_cached("INSERT INTO recipe_pages (version, page, blob) VALUES (?1, ?2, ?3)")?;
        for (page, blob) in pages.iter().enumerate() {
            insert.execute(params![version.id.0 as i64, page as i64, blob])?;
        }
    }
    Ok(())
}

/// Deletes a version; gives it and its recipe's entries, whose references end.
pub fn delete(db: &Connection, id: VersionId) -> Result<(Version, Vec<Entry>), Error> {
    let version = get(db, id)?;
    let entries = if version.chunks > 0 { recipe_of(db, &version)? } else { Vec::new() };
    db.prepare_cached("DELETE FROM versions WHERE id = ?1")?.execute([id.0 as i64])?;
    if version.chunks > 0 {
        db.prepare_cached("DELETE FROM recipe_pages WHERE version = ?1")?.execute([id.0 as i64])?;
    }
    Ok((version, entries))
}

/// The packed pages of a recipe, in order.
pub fn pages(db: &Connection, id: VersionId) -> Result<Vec<Vec<u8>>, Error> {
    let mut rows =
        db.prepare_cached("SELECT blob FROM recipe_pages WHERE version = ?1 ORDER BY page")?;
    let pages = rows.query_map([id.0 as i64], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(pages)
}

/// Reads the pages of `version`'s recipe, and checks that they are all and sound.
pub fn unpack(version: &Version, pages: &[Vec<u8>]) -> Result<Vec<Entry>, Error> {
    let damaged =
        |why: &str| Error::Damaged(format!("the recipe of version {}: {why}", version.id));
    let mut entries = Vec::with_capacity(version.chunks as usize);
    for page in pages {
        entries.extend(recipe::unpack(page).map_err(|why| damaged(&why.to_string()))?);
    }
    if entries.len() as u64 != version.chunks {
        return Err(damaged("chunks are missing"));
    }
    Ok(entries)
}

/// The entries of a version's recipe.
pub fn recipe_of(db: &Connection, version: &Version) -> Result<Vec<Entry>, Error> {
    unpack(version, &pages(db, version.id)?)
}

/// Content that lives in the catalog.
pub fn inline(db: &Connection, id: VersionId) -> Result<Option<Vec<u8>>, Error> {
    let found = db
        .prepare_cached("SELECT inline FROM versions WHERE id = ?1")?
        .query_row([id.0 as i64], |row| row.get(0))
        .optional()?;
    Ok(found.flatten())
}
