//! Operations on spaces and on the policies of the files in them.

pub(crate) mod policy_changes;
pub(crate) mod rekeying;

use crate::log::{apply, records::Record};
use crate::names::entries::{self, DirId};
use crate::operations::{
    grants,
    sessions::session_changes,
    spaces::{
        policy_changes::{FollowedPage, PolicyChange},
        rekeying::Rekey,
    },
};
use crate::pool_records::{
    meta::Counter,
    old_keys::{self, ContentUnderOldKeys},
    space_keys::KeyRing,
    spaces::{self, NewSpace, Space},
};
use crate::sql::Tx;
use crate::versions::open::{self, OldPage};
use crate::{Catalog, Durability, Error};
use potluck_core::attributes::EntryAttributes;
use potluck_core::ids::{KeyNumber, SpaceId, VersionId};
use potluck_core::path::PoolPath;
use potluck_core::policy::{BadPolicy, Override, Policy};
use potluck_core::rights::{Grantee, Rights};
use potluck_core::seal::SpaceKey;

impl Catalog {
    /// Makes a space, in which its maker has all rights. A maker that has made `most` spaces or more is refused.
    pub async fn create_space(
        &self,
        new: NewSpace,
        most: Option<u64>,
        wall_ms: i64,
    ) -> Result<(), Error> {
        self.write(Durability::Disk, move |db| create_for_maker(db, &new, most, wall_ms)).await
    }

    /// Removes a space, with `recursive` also one that has files, and ends the reservations in it. Returns the number that
    /// it had.
    pub async fn remove_space(&self, name: String, recursive: bool) -> Result<SpaceId, Error> {
        self.write(Durability::Disk, move |db| remove(db, &name, recursive)).await
    }

    /// Gives a sealed space a new key if that is asked for, and returns whether it did. Keys that nothing needs are
    /// dropped.
    pub async fn rekey_space(
        &self,
        name: String,
        key: SpaceKey,
        how: Rekey,
    ) -> Result<bool, Error> {
        self.write(Durability::Disk, move |db| rekeying::rekey(db, &name, &key, how)).await
    }

    /// Returns what is left in a sealed space under earlier keys.
    pub async fn content_under_old_keys(&self, name: String) -> Result<ContentUnderOldKeys, Error> {
        self.read(move |db| old_keys::old_content(db, &spaces::named(db, &name)?)).await
    }

    /// Opens versions that are sealed with earlier keys of a space, the first after `after`.
    pub async fn open_old(&self, name: String, after: VersionId) -> Result<OldPage, Error> {
        self.read(move |db| open::open_old(db, &name, after)).await
    }

    /// Returns all spaces by name, those that the pool keeps for itself included.
    pub async fn spaces(&self) -> Result<Vec<Space>, Error> {
        self.read(spaces::all).await
    }

    /// Returns the space with a number; `None` if it was removed.
    pub async fn space(&self, space: SpaceId) -> Result<Option<Space>, Error> {
        self.read(move |db| spaces::numbered(db, space)).await
    }

    /// Works out the effects of a change of policy at a path, and changes nothing.
    pub async fn plan_policy(
        &self,
        path: PoolPath,
        over: Override,
    ) -> Result<Result<PolicyChange, BadPolicy>, Error> {
        self.read(move |db| policy_changes::plan(db, &path, &over)).await
    }

    /// Changes the policy at a path, for files to come.
    pub async fn set_policy(&self, path: PoolPath, over: Override) -> Result<(), Error> {
        self.write(Durability::Disk, move |db| policy_changes::set(db, &path, &over)).await
    }

    /// Puts `policy` in the place of `before` as the policy of a space, because the pool's defaults say so. Returns
    /// whether `before` held.
    pub async fn follow_defaults(
        &self,
        space: SpaceId,
        before: Policy,
        policy: Policy,
    ) -> Result<bool, Error> {
        let follow = move |db: &_| policy_changes::replace(db, space, &before, &policy);
        self.write(Durability::Disk, follow).await
    }

    /// Makes a page of the files at a path follow a policy that was changed at `set_at`. Without `set_at`, nothing
    /// changes, and only the effects of the policy are returned.
    pub async fn follow_policy(
        &self,
        path: PoolPath,
        policy: Policy,
        after: Option<String>,
        set_at: Option<u64>,
    ) -> Result<FollowedPage, Error> {
        let follow =
            move |db: &_| policy_changes::follow(db, &path, &policy, after.as_deref(), set_at);
        match set_at {
            None => self.read(follow).await,
            Some(_) => self.write(Durability::Disk, follow).await,
        }
    }
}

/// Removes a space with the reservations in it, and returns its number. One that is not empty is removed only if
/// `recursive`.
pub(crate) fn remove(db: &Tx, name: &str, recursive: bool) -> Result<SpaceId, Error> {
    let space = spaces::named(db, name)?;
    if !recursive && entries::has_children(db, space.root)? {
        let files = space.sums.files.max(0) as u64;
        return Err(Error::SpaceNotEmpty { name: name.into(), files });
    }
    apply::write(db, Record::SpaceRemoved { name: name.into() })?;
    session_changes::end_reservations(db, space.id)?;
    Ok(space.id)
}

/// Makes a space. Nobody but admins may do anything in it until that is granted.
pub(crate) fn create(db: &Tx, new: &NewSpace, wall_ms: i64) -> Result<(), Error> {
    let NewSpace { name, policy, key, made_by } = new.clone();
    if entries::lookup(db, DirId::ROOT, &name)?.is_some() {
        return Err(Error::SpaceExists(name));
    }
    let keys = match key {
        Some(key) => Some(KeyRing::new(KeyNumber(Counter::Key.take(db, 1)? as u32), key)),
        None => None,
    };
    let root = PoolPath::space_root(&name);
    apply::write(db, Record::Space { name, policy, keys, made_by })?;
    let attributes = EntryAttributes::of_dir(wall_ms);
    match root {
        Ok(path) => apply::write(db, Record::PathAttributes { path, attributes }),
        Err(_) => Ok(()), // nobody sees the root of the pool's own space
    }
}

fn create_for_maker(db: &Tx, new: &NewSpace, most: Option<u64>, wall_ms: i64) -> Result<(), Error> {
    let Some(maker) = new.made_by else { return create(db, new, wall_ms) };
    if let Some(most) = most
        && spaces::made_by(db, maker)? >= most
    {
        return Err(Error::TooManySpaces(most));
    }
    create(db, new, wall_ms)?;
    grants::change(db, &new.name, &Grantee::Member(maker), |_| Rights::ALL).map(drop)
}
