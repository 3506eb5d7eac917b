//! Grants: who may do what in a space. Admins may do all, and need none.
//!
//! A question touches the rows of one space for one member and the groups that they are in, by their keys,
//! however many other grants there are.

use crate::error::Error;
use crate::log::{changes, records::Record};
use crate::members;
use crate::members::{grantees, groups};
use crate::pool_records::spaces;
use crate::sql::{Tx, params};
use potluck_core::ids::MemberId;
use potluck_core::path::{PoolPath, SYSTEM_SPACE};
use potluck_core::rights::{EVERYONE, Grantee, Right, Rights};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The grantees whose grants concern a member: `?1` and `?2`, who are themselves and everybody, and the groups
/// of the member `?3`.
const THEIRS: &str = "SELECT ?1 UNION ALL SELECT ?2
     UNION ALL SELECT 'group:' || group_name FROM group_members WHERE member = ?3";

/// A member and everybody, as rows have them.
fn them(member: MemberId) -> [String; 2] {
    [Grantee::Member(member), Grantee::Group(EVERYONE.into())].map(|to| grantees::written(&to))
}

fn rights(number: u8) -> Result<Rights, Error> {
    Rights::from_number(number)
        .ok_or_else(|| Error::Damaged(format!("a grant of the rights {number}")))
}

/// Returns what a member may do in the space called `space`, by all grants together; nothing where there
/// is no such space.
pub(crate) fn of_member(db: &Tx, member: MemberId, space: &str) -> Result<Rights, Error> {
    let mut select = db.prepare(&format!(
        "SELECT g.rights FROM spaces s JOIN grants g ON g.space = s.id
         WHERE s.name = ?4 AND g.grantee IN ({THEIRS})"
    ))?;
    let [own, everyone] = them(member);
    let mut rows = select.query(params![own, everyone, member.0, space])?;
    let mut all = Rights::NONE;
    while let Some(row) = rows.next()? {
        all = all.with(rights(row.get(0)?)?);
    }
    Ok(all)
}

/// Returns the spaces in which a member has rights, with these rights.
pub(crate) fn spaces_of(db: &Tx, member: MemberId) -> Result<BTreeMap<String, Rights>, Error> {
    let mut select = db.prepare(&format!(
        "SELECT s.name, g.rights FROM grants g JOIN spaces s ON s.id = g.space
         WHERE g.grantee IN ({THEIRS})"
    ))?;
    let [own, everyone] = them(member);
    let mut rows = select.query(params![own, everyone, member.0])?;
    let mut found: BTreeMap<String, Rights> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let granted = found.entry(row.get(0)?).or_default();
        *granted = granted.with(rights(row.get(1)?)?);
    }
    Ok(found)
}

/// Returns what is granted to a member or group themselves in the space called `space`.
pub(crate) fn to(db: &Tx, space: &str, to: &Grantee) -> Result<Rights, Error> {
    let mut select = db.prepare(
        "SELECT g.rights FROM spaces s JOIN grants g ON g.space = s.id
         WHERE s.name = ?1 AND g.grantee = ?2",
    )?;
    let number: Option<u8> =
        select.query_one(params![space, grantees::written(to)], |row| row.get(0))?;
    number.map_or(Ok(Rights::NONE), rights)
}

/// All grants in the space called `space`.
pub(crate) fn in_space(db: &Tx, space: &str) -> Result<Vec<(Grantee, Rights)>, Error> {
    let mut select = db.prepare(
        "SELECT g.grantee, g.rights FROM spaces s JOIN grants g ON g.space = s.id
         WHERE s.name = ?1 ORDER BY g.grantee",
    )?;
    let rows = select.query_map(params![space], |row| {
        Ok((grantees::read(&row.get::<String>(0)?)?, rights(row.get(1)?)?))
    })?;
    rows.collect()
}

/// Sets what is granted to a member or group themselves.
pub(crate) fn set(db: &Tx, space: &str, to: &Grantee, rights: Rights) -> Result<(), Error> {
    let space = spaces::named(db, space)?.id;
    if rights.is_none() {
        db.prepare("DELETE FROM grants WHERE space = ?1 AND grantee = ?2")?
            .execute(params![space.0, grantees::written(to)])?;
        return Ok(());
    }
    db.prepare(
        "INSERT INTO grants (space, grantee, rights) VALUES (?1, ?2, ?3)
         ON CONFLICT (space, grantee) DO UPDATE SET rights = excluded.rights",
    )?
    .execute(params![space.0, grantees::written(to), rights.to_number()])?;
    Ok(())
}

/// Grants or takes rights: `change` makes the new rights of the old ones. Returns the old and the new.
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
    let before = to(db, space, whom)?;
    let after = change(before);
    if after != before {
        set(db, space, whom, after)?;
        let (space, to) = (space.into(), whom.clone());
        changes::tell(db, Record::Grant { space, to, rights: after })?;
    }
    Ok((before, after))
}

/// Refuses to grant rights to a member whose membership ended, or to a member or group that never was.
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

/// The spaces that whoever asks about the whole pool may know of, with their rights there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenSpaces(Option<Arc<BTreeMap<String, Rights>>>);

impl SeenSpaces {
    /// All spaces, with all rights.
    pub const ALL: Self = Self(None);

    /// These spaces with these rights, and no other space.
    pub fn only(spaces: BTreeMap<String, Rights>) -> Self {
        Self(Some(Arc::new(spaces)))
    }

    /// Returns the rights in the space called `space`.
    pub fn rights(&self, space: &str) -> Rights {
        match &self.0 {
            None => Rights::ALL,
            Some(spaces) => spaces.get(space).copied().unwrap_or_default(),
        }
    }

    /// Whether the space called `space` may be shown. The pool's own metadata is left out where names are
    /// shown, and looked at by everybody who asks how the pool is.
    pub fn has(&self, space: &str) -> bool {
        space == SYSTEM_SPACE || self.rights(space).allow(Right::List)
    }

    /// Whether what lies at `path`, relative to the root of the pool, may be shown.
    pub fn has_below_root(&self, path: &str) -> bool {
        path.split('/').next().is_some_and(|space| self.has(space))
    }

    /// Whether a listing of what is at `path` leaves spaces out.
    pub fn hides_some_of(&self, path: &PoolPath) -> bool {
        self.0.is_some() && path.space().is_empty()
    }
}
