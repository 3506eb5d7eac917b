//! What members may do in spaces, and the groups that they are in.

use crate::members::{
    grants::{self, SeenSpaces},
    groups,
};
use crate::{Catalog, Durability, Error};
use potluck_core::ids::MemberId;
use potluck_core::rights::{Grantee, Rights};
use std::collections::BTreeMap;

/// The change that somebody makes to a group of members.
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
    /// What a member may do by its grants: in one space, or where none is named in all in which that is
    /// anything. There is nothing it may do in a space that is not there.
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

    /// All grants in a space.
    pub async fn grants(&self, space: String) -> Result<Vec<(Grantee, Rights)>, Error> {
        self.read(move |db| grants::in_space(db, &space)).await
    }

    /// Gives rights in a space beside those that were granted before, and takes others; gives what was and
    /// what is granted.
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

    /// All groups with their members, by name and number.
    pub async fn groups(&self) -> Result<BTreeMap<String, Vec<MemberId>>, Error> {
        self.read(groups::all).await
    }

    /// Makes a group, removes it with all that was granted to it, or changes who is in it.
    pub async fn edit_group(&self, name: String, edit: GroupEdit) -> Result<(), Error> {
        let edit = move |db: &_| match &edit {
            GroupEdit::Create => groups::create(db, &name),
            GroupEdit::Remove => groups::remove(db, &name),
            GroupEdit::Members { add, remove } => groups::change(db, &name, add, remove),
        };
        self.write(Durability::Disk, edit).await
    }
}
