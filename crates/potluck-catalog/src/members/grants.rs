//! Grants: who may do what in a space. Admins may do all, and need none.
//!
//! A look-up of a member's rights in a space reads, by key, the rows of that space for the member and its groups,
//! however many other grants there are.

use crate::error::Error;
use crate::members::grantees;
use crate::pool_records::spaces::{self, Space};
use crate::sql::{Tx, params};
use potluck_core::ids::{MemberId, SpaceId};
use potluck_core::path::{PoolPath, SYSTEM_SPACE};
use potluck_core::rights::{EVERYONE, Grantee, Right, Rights};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The grantees whose grants concern a member: `?1` and `?2`, the member and everybody, and the groups of the member
/// `?3`.
const THEIRS: &str = "SELECT ?1 UNION ALL SELECT ?2
     UNION ALL SELECT 'group:' || group_name FROM group_members WHERE member = ?3";

/// Returns the texts that stand in rows for a member and for everybody.
fn them(member: MemberId) -> [String; 2] {
    [Grantee::Member(member), Grantee::Group(EVERYONE.into())].map(|to| grantees::written(&to))
}

fn rights(number: u8) -> Result<Rights, Error> {
    Rights::from_number(number)
        .ok_or_else(|| Error::Damaged(format!("a grant of the rights {number}")))
}

/// Returns the rights of a member in the space called `space`, by all grants together; none if there is no such space.
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

/// Returns the rights granted to exactly this member or group in the space called `space`.
pub(crate) fn to(db: &Tx, space: &str, to: &Grantee) -> Result<Rights, Error> {
    let mut select = db.prepare(
        "SELECT g.rights FROM spaces s JOIN grants g ON g.space = s.id
         WHERE s.name = ?1 AND g.grantee = ?2",
    )?;
    let number: Option<u8> =
        select.query_one(params![space, grantees::written(to)], |row| row.get(0))?;
    number.map_or(Ok(Rights::NONE), rights)
}

/// Returns all grants in the space called `space`.
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

/// Sets the rights granted to exactly this member or group.
pub(crate) fn set(db: &Tx, space: &str, to: &Grantee, rights: Rights) -> Result<(), Error> {
    let before = self::to(db, space, to)?;
    let found = spaces::named(db, space)?;
    let space = found.id;
    if before.allow(Right::Read) && !rights.allow(Right::Read) {
        spaces::expose(db, found)?;
    }
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

/// Notes for all spaces that a grantee may read that it is to lose that right.
pub(crate) fn expose_spaces_of(db: &Tx, to: &Grantee) -> Result<(), Error> {
    let mut select = db.prepare("SELECT space, rights FROM grants WHERE grantee = ?1")?;
    let rows = select.query_map(params![grantees::written(to)], |row| {
        Ok((SpaceId(row.get(0)?), rights(row.get(1)?)?))
    })?;
    for (space, rights) in rows.collect::<Result<Vec<_>, _>>()? {
        if rights.allow(Right::Read)
            && let Some(space) = spaces::numbered(db, space)?
        {
            spaces::expose(db, space)?;
        }
    }
    Ok(())
}

/// Returns the sealed spaces whose present keys a member may have been given, for its own grants or those of groups, or
/// because it is an admin.
pub(crate) fn sealed_spaces_of(
    db: &Tx,
    member: MemberId,
    is_admin: bool,
) -> Result<Vec<Space>, Error> {
    let granted = spaces_of(db, member)?;
    let reads = |name: &str| granted.get(name).is_some_and(|rights| rights.allow(Right::Read));
    let mut all = spaces::all(db)?;
    all.retain(|space| space.keys.is_some() && (is_admin || reads(&space.name)));
    Ok(all)
}

/// The spaces that a caller who asks about the whole pool may know of, with the caller's rights in each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenSpaces(Option<Arc<BTreeMap<String, Rights>>>);

impl SeenSpaces {
    /// All spaces, with all rights.
    pub const ALL: Self = Self(None);

    /// Makes a value with these spaces and rights, and no other space.
    pub fn only(spaces: BTreeMap<String, Rights>) -> Self {
        Self(Some(Arc::new(spaces)))
    }

    /// Returns whether these are all spaces, with all rights.
    pub fn are_all(&self) -> bool {
        self.0.is_none()
    }

    /// Returns these spaces without those that `spaces` does not name, and in the others no more than `most`.
    pub fn within<'a>(&self, spaces: impl IntoIterator<Item = &'a String>, most: Rights) -> Self {
        let within = |space: &String| (space.clone(), self.rights(space).within(most));
        Self::only(spaces.into_iter().map(within).collect())
    }

    /// Returns the rights in the space called `space`.
    pub fn rights(&self, space: &str) -> Rights {
        match &self.0 {
            None => Rights::ALL,
            Some(spaces) => spaces.get(space).copied().unwrap_or_default(),
        }
    }

    /// Returns whether the space called `space` may be shown. That of the pool's own metadata may: callers that show
    /// names leave it out themselves, and every caller may ask how safe it is.
    pub fn has(&self, space: &str) -> bool {
        space == SYSTEM_SPACE || self.rights(space).allow(Right::List)
    }

    /// Returns whether what lies at `path`, relative to the root of the pool, may be shown.
    pub fn has_below_root(&self, path: &str) -> bool {
        path.split('/').next().is_some_and(|space| self.has(space))
    }

    /// Returns whether a listing of what is at `path` may leave spaces out.
    pub fn hides_some_of(&self, path: &PoolPath) -> bool {
        self.0.is_some() && path.space().is_empty()
    }
}
