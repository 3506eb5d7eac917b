//! The rights of members in spaces, and the groups that members are in.

use crate::log::{apply, records::Record};
use crate::members::{
    self,
    grants::{self, SeenSpaces},
    groups,
};
use crate::pool_records::spaces;
use crate::sql::Tx;
use crate::{Catalog, Durability, Error};
use potluck_core::ids::MemberId;
use potluck_core::path::SYSTEM_SPACE;
use potluck_core::rights::{EVERYONE, Grantee, Rights};
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
        let change = move |db: &_| change(db, &space, &of, |held| held.with(give).without(take));
        self.write(Durability::Disk, change).await
    }

    /// Returns all groups that were made, with their members, by name and number.
    pub async fn groups(&self) -> Result<BTreeMap<String, Vec<MemberId>>, Error> {
        self.read(groups::all).await
    }

    /// Makes a group, removes it with all that was granted to it, or changes its members.
    pub async fn edit_group(&self, name: String, edit: GroupEdit) -> Result<(), Error> {
        self.write(Durability::Disk, move |db| self::edit(db, &name, &edit)).await
    }
}

/// Grants or takes rights: `change` makes the new rights from the old ones. Returns the old and the new rights.
///
/// Errors: [`Error::NoSpaceNamed`] also for the space of the pool's own metadata, and what `check_there` refuses.
pub(crate) fn change(
    db: &Tx,
    space: &str,
    whom: &Grantee,
    change: impl FnOnce(Rights) -> Rights,
) -> Result<(Rights, Rights), Error> {
    if space == SYSTEM_SPACE {
        return Err(Error::NoSpaceNamed(space.into()));
    }
    spaces::named(db, space)?;
    check_there(db, whom)?;
    let before = grants::to(db, space, whom)?;
    let after = change(before);
    if after != before {
        let (space, to) = (space.into(), whom.clone());
        apply::write(db, Record::Grant { space, to, rights: after })?;
    }
    Ok((before, after))
}

/// Refuses a member whose membership ended, and a member or group that does not exist.
fn check_there(db: &Tx, whom: &Grantee) -> Result<(), Error> {
    match whom {
        Grantee::Member(id) => match members::get(db, *id)? {
            Some(member) if !member.revoked => Ok(()),
            _ => Err(Error::NoMember(id.0)),
        },
        Grantee::Group(name) if name == EVERYONE || groups::is_there(db, name)? => Ok(()),
        Grantee::Group(name) => Err(Error::NoGroup(name.clone())),
    }
}

/// Makes a group, removes it with all that was granted to it, or changes its members.
pub(crate) fn edit(db: &Tx, name: &str, edit: &GroupEdit) -> Result<(), Error> {
    let is_there = groups::is_there(db, name)?;
    if matches!(edit, GroupEdit::Create) {
        if name == EVERYONE || is_there {
            return Err(Error::GroupExists(name.into()));
        }
        // Rights are granted to members and to groups by name, so no two of them may share one.
        if members::is_user(db, name)? {
            return Err(Error::NameTaken { name: name.into(), holder: "a member" });
        }
    } else if !is_there {
        return Err(Error::NoGroup(name.into()));
    }
    let GroupEdit::Members { add, remove } = edit else {
        let there = matches!(edit, GroupEdit::Create);
        return apply::write(db, Record::Group { name: name.into(), there });
    };
    for (members, within) in [(add, true), (remove, false)] {
        for id in members {
            if within {
                check_there(db, &Grantee::Member(*id))?;
            }
            let (group, member) = (name.into(), *id);
            apply::write(db, Record::GroupMember { group, member, within })?;
        }
    }
    Ok(())
}
