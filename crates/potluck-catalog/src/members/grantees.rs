//! Grantees in the form that rows have, and the removal of rows when a space, a group or a member is no more: a later
//! one of the same name or number gets none of the earlier rights.

use crate::error::Error;
use crate::sql::{Tx, params};
use potluck_core::ids::{MemberId, SpaceId};
use potluck_core::rights::Grantee;

/// Returns the text that stands for a grantee in rows.
pub(crate) fn written(to: &Grantee) -> String {
    match to {
        Grantee::Member(member) => format!("member:{member}"),
        Grantee::Group(name) => format!("group:{name}"),
    }
}

/// Returns the grantee that a row has as `text`.
///
/// Errors: [`Error::Damaged`] if the text is no grantee.
pub(crate) fn read(text: &str) -> Result<Grantee, Error> {
    let damaged = || Error::Damaged(format!("a grant to “{text}”"));
    match text.split_once(':').ok_or_else(damaged)? {
        ("member", number) => Ok(Grantee::Member(MemberId(number.parse().map_err(|_| damaged())?))),
        ("group", name) => Ok(Grantee::Group(name.into())),
        _ => Err(damaged()),
    }
}

fn forget_grants(db: &Tx, to: &Grantee) -> Result<(), Error> {
    db.prepare("DELETE FROM grants WHERE grantee = ?1")?.execute(params![written(to)])?;
    Ok(())
}

fn forget_quota(db: &Tx, of: &str) -> Result<(), Error> {
    db.prepare("DELETE FROM quotas WHERE quota_of = ?1")?.execute(params![of])?;
    Ok(())
}

/// Forgets what was granted in a space that is removed, and its quota.
pub(crate) fn forget_space(db: &Tx, space: SpaceId) -> Result<(), Error> {
    db.prepare("DELETE FROM grants WHERE space = ?1")?.execute(params![space.0])?;
    forget_quota(db, &format!("space:{space}"))
}

/// Forgets a group that is removed, with its members and all that was granted to it.
pub(crate) fn forget_group(db: &Tx, name: &str) -> Result<(), Error> {
    db.prepare("DELETE FROM member_groups WHERE name = ?1")?.execute(params![name])?;
    db.prepare("DELETE FROM group_members WHERE group_name = ?1")?.execute(params![name])?;
    forget_grants(db, &Grantee::Group(name.into()))
}

/// Takes a member whose membership ended out of all groups, and forgets its grants and its quota.
pub(crate) fn forget_member(db: &Tx, member: MemberId) -> Result<(), Error> {
    db.prepare("DELETE FROM group_members WHERE member = ?1")?.execute(params![member.0])?;
    forget_quota(db, &format!("member:{member}"))?;
    forget_grants(db, &Grantee::Member(member))
}
