//! What members may do in spaces, and the groups that they are in.

use crate::{Catalog, Durability, Error, grants, groups};
use potluck_core::ids::MemberId;
use potluck_core::rights::{Grantee, Rights};
use std::collections::BTreeMap;

impl Catalog {
    /// Returns what a member may do in a space by its grants; nothing where there is no such space.
    pub async fn rights(&self, member: MemberId, space: String) -> Result<Rights, Error> {
        self.read(move |db| grants::of_member(db, member, &space)).await
    }

    /// The spaces that a member may do something in by their grants, with what.
    pub async fn spaces_of(&self, member: MemberId) -> Result<BTreeMap<String, Rights>, Error> {
        self.read(move |db| grants::spaces_of(db, member)).await
    }

    /// All grants in a space.
    pub async fn grants(&self, space: String) -> Result<Vec<(Grantee, Rights)>, Error> {
        self.read(move |db| grants::in_space(db, &space)).await
    }

    /// Grants rights in a space beside those that were granted before; gives what was and what is granted.
    pub async fn grant(
        &self,
        space: String,
        to: Grantee,
        rights: Rights,
    ) -> Result<(Rights, Rights), Error> {
        let grant = move |db: &_| grants::change(db, &space, &to, |held| held.with(rights));
        self.write(Durability::Disk, grant).await
    }

    /// Takes rights in a space that were granted; gives what was and what is granted.
    pub async fn take_rights(
        &self,
        space: String,
        from: Grantee,
        rights: Rights,
    ) -> Result<(Rights, Rights), Error> {
        let take = move |db: &_| grants::change(db, &space, &from, |held| held.without(rights));
        self.write(Durability::Disk, take).await
    }

    /// All groups with their members, by name and number.
    pub async fn groups(&self) -> Result<BTreeMap<String, Vec<MemberId>>, Error> {
        self.read(groups::all).await
    }

    /// Makes a group without members.
    pub async fn create_group(&self, name: String) -> Result<(), Error> {
        self.write(Durability::Disk, move |db| groups::create(db, &name)).await
    }

    /// Removes a group, with all that was granted to it.
    pub async fn remove_group(&self, name: String) -> Result<(), Error> {
        self.write(Durability::Disk, move |db| groups::remove(db, &name)).await
    }

    /// Puts members into a group, and takes others out.
    pub async fn change_group(
        &self,
        group: String,
        add: Vec<MemberId>,
        remove: Vec<MemberId>,
    ) -> Result<(), Error> {
        self.write(Durability::Disk, move |db| groups::change(db, &group, &add, &remove)).await
    }
}
