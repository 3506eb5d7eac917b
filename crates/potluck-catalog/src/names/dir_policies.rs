//! Policies of directories: the parts of a policy that a directory sets differently from what holds above it.
//!
//! They are kept by the number of the directory, so that they move with it.

use crate::checkpoints::checkpoint_rows;
use crate::error::Error;
use crate::names::entries::{self, DirId, EntryPlace, FoundEntry};
use crate::pool_records::spaces::{self, Space};
use crate::sql::{Tx, params};
use potluck_core::checkpoint::StagedPlace;
use potluck_core::erasure::Ec;
use potluck_core::ids::SpaceId;
use potluck_core::path::PoolPath;
use potluck_core::policy::{MAX_GROUP, Override, Policy};
use std::collections::HashMap;

/// Returns the parts of the policy that `dir` sets differently; empty where nothing was set.
pub(crate) fn get(db: &Tx, dir: DirId) -> Result<Override, Error> {
    let text: Option<String> = db
        .prepare("SELECT policy FROM dir_policies WHERE dir = ?1")?
        .query_one(params![dir.0], |row| row.get(0))?;
    let Some(text) = text else { return Ok(Override::default()) };
    serde_json::from_str(&text)
        .map_err(|why| Error::Damaged(format!("the policy of directory {}: {why}", dir.0)))
}

/// The most directories of one space that may set something differently: all of them are looked at when a checkpoint
/// takes the place of a directory.
const MOST: u64 = 4096;

/// Sets the parts of the policy that differ below `dir`, which is in this space.
pub(crate) fn set(db: &Tx, space: SpaceId, dir: DirId, over: &Override) -> Result<(), Error> {
    let text = serde_json::to_string(over).map_err(|why| Error::Bug(why.to_string()))?;
    db.prepare(
        "INSERT INTO dir_policies (dir, space, policy) VALUES (?1, ?2, ?3)
         ON CONFLICT (dir) DO UPDATE SET policy = excluded.policy",
    )?
    .execute(params![dir.0, space.0, text])?;
    Ok(())
}

/// Refuses a policy of `dir` if [`MOST`] other directories of the space have a policy already.
pub(crate) fn admit(db: &Tx, space: &Space, dir: DirId) -> Result<(), Error> {
    let mut others =
        db.prepare("SELECT count(*) FROM dir_policies WHERE space = ?1 AND dir <> ?2")?;
    let others: i64 = others.query_row(params![space.id.0, dir.0], |row| row.get(0))?;
    match others as u64 >= MOST {
        true => Err(Error::TooManyPolicies { space: space.name.clone(), most: MOST }),
        false => Ok(()),
    }
}

/// Forgets the policy of a directory that is no more.
pub(crate) fn forget(db: &Tx, dir: DirId) -> Result<(), Error> {
    db.prepare("DELETE FROM dir_policies WHERE dir = ?1")?.execute(params![dir.0])?;
    Ok(())
}

/// Returns the policy that holds at `path`: the space's, with all that the directories on the way set differently, down
/// to `path` itself if it is a directory. A path that is not there yet inherits. At the root of the pool, it is the
/// default policy.
pub(crate) fn effective(db: &Tx, path: &PoolPath) -> Result<Policy, Error> {
    if path.space().is_empty() {
        return Ok(Policy::default());
    }
    effective_in(db, &spaces::named(db, path.space())?, path)
}

/// Returns the policy that holds at a path in `space`, as [`effective`] does.
pub(crate) fn effective_in(db: &Tx, space: &Space, path: &PoolPath) -> Result<Policy, Error> {
    let (mut policy, mut dir) = (space.policy.clone(), space.root);
    for name in inheriting(db, path)? {
        match entries::lookup(db, dir, &name)? {
            Some(FoundEntry { place: EntryPlace::Dir(next), .. }) => dir = next,
            _ => break,
        }
        policy = below(&policy, &get(db, dir)?)?;
    }
    Ok(policy)
}

/// Returns the names of the directories that a path inherits from. An entry that is staged for a checkpoint inherits as
/// it will at its target.
fn inheriting(db: &Tx, path: &PoolPath) -> Result<Vec<String>, Error> {
    let mut names = Vec::with_capacity(path.names().len());
    for name in path.names() {
        match checkpoint_rows::target_of(db, path.space(), name)? {
            Some(target) => names.extend(target),
            None => names.push(name.clone()),
        }
    }
    Ok(names)
}

/// Returns the directory whose policy, with those of the directories below it, holds for what is below `dir`, which is
/// at `path`. That is `dir` itself; for a staged directory, it is the one of that name at the target, or `None` if that
/// is not there.
pub(crate) fn deciding(db: &Tx, path: &PoolPath, dir: DirId) -> Result<Option<DirId>, Error> {
    if StagedPlace::of(path).is_none() {
        return Ok(Some(dir));
    }
    let mut dir = spaces::named(db, path.space())?.root;
    for name in inheriting(db, path)? {
        match entries::lookup(db, dir, &name)? {
            Some(FoundEntry { place: EntryPlace::Dir(next), .. }) => dir = next,
            _ => return Ok(None),
        }
    }
    Ok(Some(dir))
}

/// Returns the directories of a space that set something differently.
pub(crate) fn in_space(db: &Tx, space: SpaceId) -> Result<Vec<DirId>, Error> {
    let mut select = db.prepare("SELECT dir FROM dir_policies WHERE space = ?1")?;
    select.query_map(params![space.0], |row| row.get(0).map(DirId::now))?.collect()
}

/// Returns the policy of a directory that sets `over`, below one where `above` holds.
///
/// The chunk size that is inherited from above, or set at a directory's former place, may be too large for groups of
/// the erasure code that holds here; then it is the largest that groups allow.
fn below(above: &Policy, over: &Override) -> Result<Policy, Error> {
    let ec = if over.copies.is_some() { None } else { over.ec.or(above.ec) };
    let fitted = |ec: Ec| Override { chunk_size: Some(largest_chunk(ec)), ..*over };
    above
        .with(over)
        .or_else(|why| ec.map_or(Err(why), |ec| above.with(&fitted(ec))))
        .map_err(|why| Error::Damaged(format!("the policy of a directory: {why}")))
}

fn largest_chunk(ec: Ec) -> u32 {
    1 << (MAX_GROUP / ec.width() as u64).ilog2()
}

/// The policies that hold in the directories of a tree, each computed once.
pub struct Inherited<'db> {
    db: &'db Tx,
    /// The name of the space that the tree is in.
    space: &'db str,
    /// False if no directory has a policy of its own, so that nothing need be looked up.
    any: bool,
    /// The policies found so far, by path relative to the tree's root.
    known: HashMap<String, Here>,
}

/// The policy that holds in one directory.
#[derive(Debug, Clone)]
pub struct Here {
    /// The policy, with all that directories set differently.
    pub policy: Policy,
    /// True if this directory, or one between it and the tree's root, sets a redundancy.
    pub own_redundancy: bool,
    dir: Option<DirId>,
}

impl<'db> Inherited<'db> {
    /// Begins at the directory `root` in a space, where `policy` holds. Without a root, no directory below sets anything
    /// differently.
    pub(crate) fn new(
        db: &'db Tx,
        space: &'db str,
        root: Option<DirId>,
        policy: Policy,
    ) -> Result<Self, Error> {
        let any = db.prepare("SELECT 1 FROM dir_policies LIMIT 1")?.exists(params![])?;
        let here = Here { policy, own_redundancy: false, dir: root };
        Ok(Self { db, space, any, known: HashMap::from([(String::new(), here)]) })
    }

    /// Returns what holds in the directory of the entry at `path`, which is relative to the root.
    pub fn around(&mut self, path: &str) -> Result<&Here, Error> {
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        self.at(if self.any { dir } else { "" })
    }

    fn at(&mut self, path: &str) -> Result<&Here, Error> {
        if !self.known.contains_key(path) {
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            let above = self.at(above)?.clone();
            let here = self.inside(above, name)?;
            self.known.insert(path.into(), here);
        }
        self.known.get(path).ok_or_else(|| Error::Bug("an inherited policy was lost".into()))
    }

    /// Returns what holds in the directory `name` of one in which `above` holds. In a staging directory of a
    /// checkpoint, it is what holds at the target.
    fn inside(&self, above: Here, name: &str) -> Result<Here, Error> {
        if let Some(target) = checkpoint_rows::target_of(self.db, self.space, name)? {
            return target.iter().try_fold(above, |here, name| self.inside(here, name));
        }
        let found = match above.dir {
            Some(dir) => entries::lookup(self.db, dir, name)?,
            None => None,
        };
        let Some(FoundEntry { place: EntryPlace::Dir(dir), .. }) = found else {
            return Ok(Here { dir: None, ..above });
        };
        let over = get(self.db, dir)?;
        Ok(Here {
            policy: below(&above.policy, &over)?,
            own_redundancy: above.own_redundancy || over.copies.is_some() || over.ec.is_some(),
            dir: Some(dir),
        })
    }
}
