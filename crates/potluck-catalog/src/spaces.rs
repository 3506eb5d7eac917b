//! Spaces: names at the top with a policy, a key and running sums.

use super::changes::{self, ChangeOp};
use super::entries::{self, DirId};
use super::error::Error;
use super::grantees;
use super::trash;
use crate::sql::{Row, Tx, params};
use potluck_core::attributes::EntryAttributes;
use potluck_core::ids::{MemberId, SpaceId};
use potluck_core::path::SYSTEM_SPACE;
use potluck_core::policy::Policy;
use potluck_core::seal::SpaceKey;
use potluck_wire::control::SpaceInfo;

/// A space as the catalog knows it.
#[derive(Debug, Clone)]
pub struct Space {
    /// The number of the space.
    pub id: SpaceId,
    /// The name of the space.
    pub name: String,
    /// The root directory of the space.
    pub root: DirId,
    /// The policy of the space.
    pub policy: Policy,
    /// The secret of the space, when it is sealed.
    pub key: Option<SpaceKey>,
    /// The sums over the files of the space.
    pub sums: Sums,
    /// Who made it; `None`: the pool itself.
    pub made_by: Option<MemberId>,
}

/// A space that is to be made.
#[derive(Debug, Clone)]
pub struct NewSpace {
    /// The name of the space.
    pub name: String,
    /// The policy of the space.
    pub policy: Policy,
    /// The secret of the space, when it is to be sealed.
    pub key: Option<SpaceKey>,
    /// Who makes it.
    pub made_by: Option<MemberId>,
}

/// Files and their bytes, and directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Number of files in the space.
    pub files: i64,
    /// Number of directories below the root of the space, and of snapshots: quotas count them as they count files.
    pub dirs: i64,
    /// Size of all files together, in bytes of plaintext.
    pub bytes: i64,
}

impl Sums {
    /// Returns the sums of so many directories.
    pub fn of_dirs(dirs: u64) -> Self {
        Self { dirs: dirs as i64, ..Self::default() }
    }

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

const COLUMNS: &str = "SELECT id, name, root, policy, key, files, bytes, made_by, dirs FROM spaces";

fn space(row: &Row<'_>) -> Result<Space, Error> {
    let policy: String = row.get(3)?;
    let policy = serde_json::from_str(&policy)
        .map_err(|why| Error::Damaged(format!("the policy of a space: {why}")))?;
    Ok(Space {
        id: SpaceId(row.get(0)?),
        name: row.get(1)?,
        root: DirId::now(row.get(2)?),
        policy,
        key: row.get::<Option<[u8; 32]>>(4)?.map(SpaceKey::from_bytes),
        sums: Sums { files: row.get(5)?, bytes: row.get(6)?, dirs: row.get(8)? },
        made_by: row.get::<Option<u32>>(7)?.map(MemberId),
    })
}

/// The space called `name`.
pub(crate) fn named(db: &Tx, name: &str) -> Result<Space, Error> {
    db.prepare(&format!("{COLUMNS} WHERE name = ?1"))?
        .query_one(params![name], space)?
        .ok_or_else(|| Error::NoSpaceNamed(name.into()))
}

/// The space with a number, if it is still there.
pub(crate) fn numbered(db: &Tx, id: SpaceId) -> Result<Option<Space>, Error> {
    db.prepare(&format!("{COLUMNS} WHERE id = ?1"))?.query_one(params![id.0], space)
}

/// Reads all spaces in order of their names.
pub(crate) fn all(db: &Tx) -> Result<Vec<SpaceInfo>, Error> {
    let mut rows = db.prepare(&format!("{COLUMNS} ORDER BY name"))?;
    let found = rows.query_map(params![], space)?.collect::<Result<Vec<_>, _>>()?;
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

/// Makes a space. Nobody but admins may do anything in it until that is granted.
pub(crate) fn create(db: &Tx, new: &NewSpace, wall_ms: i64) -> Result<(), Error> {
    let NewSpace { name, policy, key, made_by } = new;
    if entries::lookup(db, DirId::ROOT, name)?.is_some() {
        return Err(Error::SpaceExists(name.clone()));
    }
    let root = entries::make_dir(db, DirId::ROOT, name, EntryAttributes::of_dir(wall_ms))?;
    let policy = serde_json::to_string(policy).map_err(|why| Error::Bug(why.to_string()))?;
    let (key, made_by) = (key.as_ref().map(SpaceKey::as_bytes), made_by.map(|member| member.0));
    db.execute(
        "INSERT INTO spaces (name, root, policy, key, made_by) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![name, root.0, policy, key, made_by],
    )?;
    changes::append(db, &ChangeOp::Space(name.clone()))
}

/// Counts the spaces that a member made and that are still there.
pub(crate) fn made_by(db: &Tx, member: MemberId) -> Result<u64, Error> {
    let mut count = db.prepare("SELECT count(*) FROM spaces WHERE made_by = ?1")?;
    let made: Option<i64> = count.query_one(params![member.0], |row| row.get(0))?;
    Ok(made.unwrap_or(0) as u64)
}

/// Removes a space, with what is in it only if `recursive`; gives the number that it had.
pub(crate) fn remove(db: &Tx, name: &str, recursive: bool) -> Result<SpaceId, Error> {
    let space = named(db, name)?;
    if !recursive && entries::has_children(db, space.root)? {
        let files = space.sums.files.max(0) as u64;
        return Err(Error::SpaceNotEmpty { name: name.into(), files });
    }
    db.execute("DELETE FROM spaces WHERE id = ?1", params![space.id.0])?;
    grantees::forget_space(db, space.id)?;
    entries::delete(db, DirId::ROOT, name)?;
    trash::throw(db, space.root, space.id)?;
    changes::append(db, &ChangeOp::SpaceRemoved(name.into()))?;
    Ok(space.id)
}

/// Changes a space's policy.
pub(crate) fn set_policy(db: &Tx, space: SpaceId, policy: &Policy) -> Result<(), Error> {
    let policy = serde_json::to_string(policy).map_err(|why| Error::Bug(why.to_string()))?;
    db.prepare("UPDATE spaces SET policy = ?2 WHERE id = ?1")?.execute(params![space.0, policy])?;
    Ok(())
}

/// Adds to a space's sums.
pub(crate) fn add_sums(db: &Tx, space: SpaceId, change: Sums) -> Result<(), Error> {
    if change != Sums::default() {
        let Sums { files, dirs, bytes } = change;
        db.prepare(
            "UPDATE spaces SET files = files + ?2, dirs = dirs + ?3, bytes = bytes + ?4
             WHERE id = ?1",
        )?
        .execute(params![space.0, files, dirs, bytes])?;
    }
    Ok(())
}
