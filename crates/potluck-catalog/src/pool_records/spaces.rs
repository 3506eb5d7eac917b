//! Spaces: names at the top with a policy, a key and running sums.

use crate::error::Error;
use crate::history::trash;
use crate::members::grantees;
use crate::names::entries::{self, DirId, EntryPlace, FoundEntry};
use crate::pool_records::{
    meta::Counter,
    space_keys::{self, KeyRing},
};
use crate::sql::{Row, Tx, params};
use potluck_core::attributes::EntryAttributes;
use potluck_core::chunk::ChunkKind;
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
    /// The keys of the space, if it is sealed.
    pub keys: Option<KeyRing>,
    /// The counts of the space's files and directories, and the bytes of the files.
    pub sums: Sums,
    /// The member that made the space; `None`: the pool itself.
    pub made_by: Option<MemberId>,
}

impl Space {
    /// Returns whether the pool keeps the space for itself.
    pub fn is_system(&self) -> bool {
        self.name == SYSTEM_SPACE
    }

    /// Returns the facts that users are told about the space; `None` if the pool keeps it for itself.
    pub fn info(&self) -> Option<SpaceInfo> {
        let count = |sum: i64| sum.max(0) as u64;
        (!self.is_system()).then(|| SpaceInfo {
            name: self.name.clone(),
            policy: self.policy.clone(),
            files: count(self.sums.files),
            bytes: count(self.sums.bytes),
            in_catalog: count(self.sums.in_catalog),
            rekey_advised: self.keys.as_ref().is_some_and(|keys| keys.exposed),
        })
    }

    /// Returns the kind of the chunks of the space's files.
    pub fn chunk_kind(&self) -> ChunkKind {
        if self.is_system() { ChunkKind::Log } else { ChunkKind::Data }
    }
}

/// A space that is to be made.
#[derive(Debug, Clone)]
pub struct NewSpace {
    /// The name of the space.
    pub name: String,
    /// The policy of the space.
    pub policy: Policy,
    /// The key of the space, if it is to be sealed.
    pub key: Option<SpaceKey>,
    /// The member that makes the space.
    pub made_by: Option<MemberId>,
}

/// The sums of a space: its files, their bytes, and its directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// The number of files in the space, kept versions included.
    pub files: i64,
    /// The number of directories below the root of the space, and of snapshots: quotas count them as they count files.
    pub dirs: i64,
    /// The bytes of all these files together that are in no hole, as plaintext. A recipe in the catalog has 36 bytes for
    /// each chunk, which has 64 MiB at most, so this cannot overflow in a catalog of less than 4 TiB. The lengths of
    /// holes cost nothing, so they must be in no sum that is kept or that a call needs.
    pub bytes: i64,
    /// The number of files whose content lives in the catalog.
    pub in_catalog: i64,
}

impl Sums {
    /// Returns the sums of so many directories and nothing else.
    pub fn of_dirs(dirs: u64) -> Self {
        Self { dirs: dirs as i64, ..Self::default() }
    }

    /// Adds a file of `bytes` to the sums.
    pub fn add(&mut self, bytes: i64) {
        self.files += 1;
        self.bytes += bytes;
    }

    /// Takes a file of `bytes` out of the sums.
    pub fn sub(&mut self, bytes: i64) {
        self.files -= 1;
        self.bytes -= bytes;
    }

    /// Takes a deleted file of `bytes` out of the sums, and out of those in the catalog if `in_catalog`.
    pub fn deleted(&mut self, bytes: u64, in_catalog: bool) {
        self.sub(bytes as i64);
        self.in_catalog -= i64::from(in_catalog);
    }
}

const COLUMNS: &str =
    "SELECT id, name, root, policy, keys, files, bytes, made_by, dirs, in_catalog FROM spaces";

fn space(row: &Row<'_>) -> Result<Space, Error> {
    let policy: String = row.get(3)?;
    let policy = serde_json::from_str(&policy)
        .map_err(|why| Error::Damaged(format!("the policy of a space: {why}")))?;
    Ok(Space {
        id: SpaceId(row.get(0)?),
        name: row.get(1)?,
        root: DirId::now(row.get(2)?),
        policy,
        keys: space_keys::read(row.get(4)?)?,
        sums: Sums {
            files: row.get(5)?,
            bytes: row.get(6)?,
            dirs: row.get(8)?,
            in_catalog: row.get(9)?,
        },
        made_by: row.get::<Option<u32>>(7)?.map(MemberId),
    })
}

/// Returns the space called `name`, or an error if there is none.
pub(crate) fn named(db: &Tx, name: &str) -> Result<Space, Error> {
    find(db, name)?.ok_or_else(|| Error::NoSpaceNamed(name.into()))
}

fn find(db: &Tx, name: &str) -> Result<Option<Space>, Error> {
    db.prepare(&format!("{COLUMNS} WHERE name = ?1"))?.query_one(params![name], space)
}

/// Returns the space with a number, if it is still there.
pub(crate) fn numbered(db: &Tx, id: SpaceId) -> Result<Option<Space>, Error> {
    db.prepare(&format!("{COLUMNS} WHERE id = ?1"))?.query_one(params![id.0], space)
}

/// Returns all spaces in the order of their names, the one that the pool keeps for itself included.
pub(crate) fn all(db: &Tx) -> Result<Vec<Space>, Error> {
    db.prepare(&format!("{COLUMNS} ORDER BY name"))?.query_map(params![], space)?.collect()
}

/// Makes a space if it is not there, and gives it this policy and these keys.
pub(crate) fn put(
    db: &Tx,
    name: &str,
    policy: &Policy,
    keys: Option<&KeyRing>,
    made_by: Option<MemberId>,
) -> Result<(), Error> {
    let last = keys.and_then(|keys| keys.keys.0.last_key_value()).map_or(0, |(last, _)| last.0);
    Counter::Key.pass(db, last.into())?;
    let root = match entries::lookup(db, DirId::ROOT, name)? {
        Some(FoundEntry { place: EntryPlace::Dir(root), .. }) => root,
        _ => entries::make_dir(db, DirId::ROOT, name, EntryAttributes::of_dir(0))?,
    };
    let policy = serde_json::to_string(policy).map_err(|why| Error::Bug(why.to_string()))?;
    let (keys, made_by) = (space_keys::written(keys)?, made_by.map(|member| member.0));
    db.prepare(
        "INSERT INTO spaces (name, root, policy, keys, made_by) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (name) DO UPDATE SET policy = excluded.policy, keys = excluded.keys",
    )?
    .execute(params![name, root.0, policy, keys, made_by])?;
    Ok(())
}

/// Notes that somebody who could read a space cannot any more, and may have kept its present key. The log has it in the
/// record by which that right ended.
pub(crate) fn expose(db: &Tx, space: Space) -> Result<(), Error> {
    match &space.keys {
        Some(keys) if !keys.exposed => {
            let keys = KeyRing { exposed: true, ..keys.clone() };
            put(db, &space.name, &space.policy, Some(&keys), space.made_by)
        }
        _ => Ok(()),
    }
}

/// Counts the spaces that a member made and that are still there.
pub(crate) fn made_by(db: &Tx, member: MemberId) -> Result<u64, Error> {
    let mut count = db.prepare("SELECT count(*) FROM spaces WHERE made_by = ?1")?;
    let made: Option<i64> = count.query_one(params![member.0], |row| row.get(0))?;
    Ok(made.unwrap_or(0) as u64)
}

/// Forgets a space if it is there, and leaves what is in it to be taken apart.
pub(crate) fn forget(db: &Tx, name: &str) -> Result<(), Error> {
    let Some(space) = find(db, name)? else { return Ok(()) };
    db.execute("DELETE FROM spaces WHERE id = ?1", params![space.id.0])?;
    grantees::forget_space(db, space.id)?;
    entries::delete(db, DirId::ROOT, name)?;
    trash::throw(db, space.root, space.id)
}

/// Adds to a space's sums.
pub(crate) fn add_sums(db: &Tx, space: SpaceId, change: Sums) -> Result<(), Error> {
    if change != Sums::default() {
        let Sums { files, dirs, bytes, in_catalog } = change;
        db.prepare(
            "UPDATE spaces SET files = files + ?2, dirs = dirs + ?3, bytes = bytes + ?4,
                 in_catalog = in_catalog + ?5
             WHERE id = ?1",
        )?
        .execute(params![space.0, files, dirs, bytes, in_catalog])?;
    }
    Ok(())
}
