//! Spaces: names at the top with a policy, a key and running sums.

use super::changes::{self, Op};
use super::entries::{self, DirId, Place};
use super::error::Error;
use super::schema::Counter;
use super::trash;
use potluck_core::ids::SpaceId;
use potluck_core::path::SYSTEM_SPACE;
use potluck_core::policy::Policy;
use potluck_core::seal::SpaceKey;
use potluck_wire::control::SpaceInfo;
use rusqlite::{Connection, OptionalExtension, Row, params};

/// A space as the catalog knows it.
#[derive(Debug, Clone)]
pub struct Space {
    /// Its number.
    pub id: SpaceId,
    /// Its name.
    pub name: String,
    /// Its root directory.
    pub root: DirId,
    /// Its policy.
    pub policy: Policy,
    /// Its secret, when sealed.
    pub key: Option<SpaceKey>,
    /// Its sums.
    pub sums: Sums,
}

/// Files and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Files.
    pub files: i64,
    /// Their sizes together.
    pub bytes: i64,
}

impl Sums {
    /// Counts a file of `bytes` in.
    pub fn add(&mut self, bytes: i64) {
        self.files += 1;
        self.bytes += bytes;
    }

    /// Counts a file of `bytes` out.
    pub fn sub(&mut self, bytes: i64) {
        self.files -= 1;
        self.bytes -= bytes;
    }
}

const COLUMNS: &str = "SELECT id, name, root, policy, key, files, bytes FROM spaces";

fn space(row: &Row<'_>) -> rusqlite::Result<Space> {
    let policy: String = row.get(3)?;
    let policy = serde_json::from_str(&policy).map_err(|why| {
        rusqlite::Error::FromSqlConversionFailure(3, rusqlite::types::Type::Text, why.into())
    })?;
    Ok(Space {
        id: SpaceId(row.get(0)?),
        name: row.get(1)?,
        root: DirId(row.get(2)?),
        policy,
        key: row.get::<_, Option<[u8; 32]>>(4)?.map(SpaceKey::from_bytes),
        sums: Sums { files: row.get(5)?, bytes: row.get(6)? },
    })
}

/// The space called `name`.
pub fn named(db: &Connection, name: &str) -> Result<Space, Error> {
    db.prepare_cached(&format!("{COLUMNS} WHERE name = ?1"))?
        .query_row([name], space)
        .optional()?
        .ok_or_else(|| Error::NoSpaceNamed(name.into()))
}

/// The space with a number, if it is still there.
pub fn numbered(db: &Connection, id: SpaceId) -> Result<Option<Space>, Error> {
    let found = db.prepare_cached(&format!("{COLUMNS} WHERE id = ?1"))?.query_row([id.0], space);
    Ok(found.optional()?)
}

/// All spaces in order of their names.
pub fn all(db: &Connection) -> Result<Vec<SpaceInfo>, Error> {
    let mut rows = db.prepare_cached(&format!("{COLUMNS} ORDER BY name"))?;
    let found = rows.query_map([], space)?.collect::<Result<Vec<_>, _>>()?;
    Ok(found
        .into_iter()
        .filter(|space| space.name != SYSTEM_SPACE)
        .map(|space| SpaceInfo {
            name: space.name,
            policy: space.policy,
            files: space.sums.files.max(0) as u64,
            bytes: space.sums.bytes.max(0) as u64,
        })
        .collect())
}

/// Makes a space; `key` seals it.
pub fn create(
    db: &Connection,
    name: &str,
    policy: &Policy,
    key: Option<&SpaceKey>,
    wall_ms: i64,
) -> Result<(), Error> {
    if entries::lookup(db, DirId::ROOT, name)?.is_some() {
        return Err(Error::SpaceExists(name.into()));
    }
    let root = DirId(Counter::Dir.take(db, 1)?);
    let policy = serde_json::to_string(policy).map_err(|why| Error::Bug(why.to_string()))?;
    db.execute(
        "INSERT INTO spaces (name, root, policy, key) VALUES (?1, ?2, ?3, ?4)",
        params![name, root.0, policy, key.map(SpaceKey::as_bytes)],
    )?;
    entries::insert(db, DirId::ROOT, name, Place::Dir(root), wall_ms)?;
    changes::append(db, &Op::Space(name.into()))
}

/// Removes a space, with what is in it only if `recursive`.
pub fn remove(db: &Connection, name: &str, recursive: bool) -> Result<(), Error> {
    let space = named(db, name)?;
    if !recursive && entries::has_children(db, space.root)? {
        let files = space.sums.files.max(0) as u64;
        return Err(Error::SpaceNotEmpty { name: name.into(), files });
    }
    db.execute("DELETE FROM spaces WHERE id = ?1", [space.id.0])?;
    entries::delete(db, DirId::ROOT, name)?;
    trash::throw(db, space.root)?;
    changes::append(db, &Op::SpaceRemoved(name.into()))
}

/// Changes a space's policy.
pub fn set_policy(db: &Connection, space: SpaceId, policy: &Policy) -> Result<(), Error> {
    let policy = serde_json::to_string(policy).map_err(|why| Error::Bug(why.to_string()))?;
    db.prepare_cached("UPDATE spaces SET policy = ?2 WHERE id = ?1")?
        .execute(params![space.0, policy])?;
    Ok(())
}

/// Adds to a space's sums.
pub fn add_sums(db: &Connection, space: SpaceId, change: Sums) -> Result<(), Error> {
    if change != Sums::default() {
        db.prepare_cached(
            "UPDATE spaces SET files = files + ?2, bytes = bytes + ?3 WHERE id = ?1",
        )?
        .execute(params![space.0, change.files, change.bytes])?;
    }
    Ok(())
}
