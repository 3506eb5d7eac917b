//! Groups of members, to whom rights are granted together. Every member is in the group `everyone`, which has no row.

use crate::error::Error;
use crate::members::{grantees, grants};
use crate::sql::{Tx, params};
use potluck_core::ids::MemberId;
use potluck_core::rights::Grantee;
use std::collections::BTreeMap;

/// Returns whether a group called `name` was made; `everyone` was not.
pub(crate) fn is_there(db: &Tx, name: &str) -> Result<bool, Error> {
    db.prepare("SELECT 1 FROM member_groups WHERE name = ?1")?.exists(params![name])
}

/// Returns all groups that were made, with their members, by name and number.
pub(crate) fn all(db: &Tx) -> Result<BTreeMap<String, Vec<MemberId>>, Error> {
    let mut select = db.prepare(
        "SELECT g.name, m.member FROM member_groups g
         LEFT JOIN group_members m ON m.group_name = g.name ORDER BY g.name, m.member",
    )?;
    let mut rows = select.query(params![])?;
    let mut groups: BTreeMap<String, Vec<MemberId>> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let members = groups.entry(row.get(0)?).or_default();
        members.extend(row.get::<Option<u32>>(1)?.map(MemberId));
    }
    Ok(groups)
}

/// Adds the row of a group, or removes the group with its members and all that was granted to it.
pub(crate) fn put(db: &Tx, name: &str, there: bool) -> Result<(), Error> {
    if there {
        db.prepare("INSERT INTO member_groups (name) VALUES (?1) ON CONFLICT (name) DO NOTHING")?
            .execute(params![name])?;
        return Ok(());
    }
    grants::expose_spaces_of(db, &Grantee::Group(name.into()))?;
    grantees::forget_group(db, name)
}

/// Puts a member into a group, or takes it out.
///
/// Errors: [`Error::NoGroup`] when a member is put into a group that is not there.
pub(crate) fn put_member(
    db: &Tx,
    group: &str,
    member: MemberId,
    within: bool,
) -> Result<(), Error> {
    let sql = match within {
        true if !is_there(db, group)? => return Err(Error::NoGroup(group.into())),
        true => {
            "INSERT INTO group_members (member, group_name) VALUES (?1, ?2)
             ON CONFLICT (member, group_name) DO NOTHING"
        }
        false => "DELETE FROM group_members WHERE member = ?1 AND group_name = ?2",
    };
    let changed = db.prepare(sql)?.execute(params![member.0, group])?;
    if changed > 0 && !within {
        grants::expose_spaces_of(db, &Grantee::Group(group.into()))?;
    }
    Ok(())
}
