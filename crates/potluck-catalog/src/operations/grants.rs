//! The rights of members in spaces, and the groups that members are in.

use crate::members::{
    grants::{self, SeenSpaces},
    groups,
};
use crate::{Catalog, Durability, Error};
use potluck_core::ids::MemberId;
use potluck_core::rights::{Grantee, Rights};
use std::collections::BTreeMap;

/// A change to a group of members.
#[derive(Debug)]
pub enum GroupEdit {
    /// The group begins to exist, without members.
    Create,
    /// The group ends, and with it all that was granted to it.
    Remove,
    /// Members are put in, and others taken out.
    Members {
        /// The members that are put in.
        add: Vec<MemberId>,
        /// The members that are taken out.
        remove: Vec<MemberId>,
    },
}

impl Catalog {
    /// Returns the rights that a member has by grants: in one space, or if none is named in all spaces in which it has
    /// any. In a space that is not there, it has none.
    pub async fn rights(
        &self,
        member: MemberId,
        space: Option<String>,
    ) -> Result<SeenSpaces, Error> {
        let rights = move |db: &_| match &space {
            Some(space) => Ok([(space.clone(), grants::of_member(db, member, space)?)].into()),
            None => grants::spaces_of(db, member),
        };
        self.read(rights).await.map(SeenSpaces::only)
    }

    /// Returns all grants in a space; none if it is not there.
    pub async fn grants(&self, space: String) -> Result<Vec<(Grantee, Rights)>, Error> {
        self.read(move |db| grants::in_space(db, &space)).await
    }

    /// Grants rights in a space beside those that were granted before, and takes others. Returns the rights that were
    /// granted before and those that are granted now.
    pub async fn change_rights(
        &self,
        space: String,
        of: Grantee,
        give: Rights,
        take: Rights,
    ) -> Result<(Rights, Rights), Error> {
        let change =
            move |db: &_| grants::change(db, &space, &of, |held| held.with(give).without(take));
        self.write(Durability::Disk, change).await
    }

    /// Returns all groups that were made, with their members, by name and number.
    pub async fn groups(&self) -> Result<BTreeMap<String, Vec<MemberId>>, Error> {
        self.read(groups::all).await
    }

    /// Makes a group, removes it with all that was granted to it, or changes its members.
    pub async fn edit_group(&self, name: String, edit: GroupEdit) -> Result<(), Error> {
        let edit = move |db: &_| match &edit {
            GroupEdit::Create => groups::create(db, &name),
            GroupEdit::Remove => groups::remove(db, &name),
            GroupEdit::Members { add, remove } => groups::change(db, &name, add, remove),
        };
        self.write(Durability::Disk, edit).await
    }
}
