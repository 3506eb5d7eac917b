//! Members.

use super::changes::{self, Op};
use super::error::Error;
use potluck_core::chunk::Digest;
use potluck_core::ids::MemberId;
use potluck_wire::token::Role;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

/// Somebody with a certificate of the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Their number.
    pub id: MemberId,
    /// What they may do.
    pub role: Role,
    /// What people call them.
    pub name: String,
    /// Their certificate's fingerprint.
    pub fingerprint: Digest,
    /// Whether their rights ended.
    pub revoked: bool,
    /// When they joined, wall time.
    pub joined_wall_ms: i64,
    /// Whose invitation it was; `None` for an admin that was made with the pool or at a restore.
    pub invited_by: Option<MemberId>,
    /// When a call of theirs came last, wall time, as far as it was saved.
    pub seen_wall_ms: Option<i64>,
}

/// Somebody who is about to become a member.
#[derive(Debug, Clone)]
pub struct NewMember<'a> {
    /// What they may do.
    pub role: Role,
    /// What people call them.
    pub name: &'a str,
    /// Wall time.
    pub joined_wall_ms: i64,
    /// Whose invitation it is.
    pub invited_by: Option<MemberId>,
}

const SELECT: &str = "SELECT id, role, name, fingerprint, revoked, joined_wall_ms, invited_by, \
                      seen_wall_ms FROM members";

/// All members that ever were, by number.
pub fn all(db: &Connection) -> Result<Vec<Member>, Error> {
    let mut rows = db.prepare_cached(&format!("{SELECT} ORDER BY id"))?;
    let members = rows.query_map([], member)?.collect::<Result<_, _>>()?;
    Ok(members)
}

fn member(row: &Row<'_>) -> rusqlite::Result<Member> {
    Ok(Member {
        id: MemberId(row.get(0)?),
        role: role(&row.get::<_, String>(1)?)?,
        name: row.get(2)?,
        fingerprint: Digest(row.get(3)?),
        revoked: row.get(4)?,
        joined_wall_ms: row.get(5)?,
        invited_by: row.get::<_, Option<u32>>(6)?.map(MemberId),
        seen_wall_ms: row.get(7)?,
    })
}

/// A role as it is written in a row.
pub(super) fn role(text: &str) -> rusqlite::Result<Role> {
    text.parse().map_err(|why: String| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, why.into())
    })
}

/// Adds a member, whose certificate `certify` makes once the number is known.
pub fn add(
    db: &Connection,
    new: NewMember<'_>,
    certify: impl FnOnce(MemberId) -> Result<Digest, Error>,
) -> Result<Member, Error> {
    // AUTOINCREMENT never gives a number twice, so a placement never changes its donor.
    let placeholder: [u8; 0] = [];
    let NewMember { role, name, joined_wall_ms, invited_by } = new;
    db.execute(
        "INSERT INTO members (role, name, fingerprint, joined_wall_ms, invited_by)
         VALUES (?1, ?2, ?3, ?4, ?5)",
        params![role.to_string(), name, placeholder, joined_wall_ms, invited_by.map(|by| by.0)],
    )?;
    let id = MemberId(db.last_insert_rowid() as u32);
    let fingerprint = certify(id)?;
    db.execute("UPDATE members SET fingerprint = ?2 WHERE id = ?1", params![id.0, fingerprint.0])?;
    changes::append(db, &Op::Member(id))?;
    let (name, revoked, seen_wall_ms) = (name.into(), false, None);
    Ok(Member { id, role, name, fingerprint, revoked, joined_wall_ms, invited_by, seen_wall_ms })
}

/// The member with a number, if there ever was one.
pub fn get(db: &Connection, id: MemberId) -> Result<Option<Member>, Error> {
    let found = db.prepare_cached(&format!("{SELECT} WHERE id = ?1"))?.query_row([id.0], member);
    Ok(found.optional()?)
}

/// Writes a member down who was one before, under the same number.
pub fn put(db: &Connection, member: &Member) -> Result<(), Error> {
    db.prepare_cached(
        "INSERT OR REPLACE INTO members (id, role, name, fingerprint, revoked, joined_wall_ms,
             invited_by, seen_wall_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        member.id.0,
        member.role.to_string(),
        member.name,
        member.fingerprint.0,
        member.revoked,
        member.joined_wall_ms,
        member.invited_by.map(|by| by.0),
        member.seen_wall_ms,
    ])?;
    Ok(())
}

/// Gives the next member a number beyond `spare` further ones.
pub fn skip(db: &Connection, spare: u32) -> Result<(), Error> {
    db.execute("UPDATE sqlite_sequence SET seq = seq + ?1 WHERE name = 'members'", [spare])?;
    Ok(())
}

/// Remembers when members were seen. No change for the log: it comes with every other one.
pub fn seen(db: &Connection, seen: &[(MemberId, i64)]) -> Result<(), Error> {
    let mut update = db.prepare_cached("UPDATE members SET seen_wall_ms = ?2 WHERE id = ?1")?;
    for (id, wall_ms) in seen {
        update.execute(params![id.0, wall_ms])?;
    }
    Ok(())
}

/// Ends a member's rights; gives the member. One whose rights ended before stays as they are.
pub fn revoke(db: &Connection, id: MemberId) -> Result<Member, Error> {
    let mut found = get(db, id)?.ok_or(Error::NoMember(id.0))?;
    if found.revoked {
        return Ok(found);
    }
    let admins: u32 = db.query_row(
        "SELECT count(*) FROM members WHERE role = 'admin' AND NOT revoked AND id <> ?1",
        [id.0],
        |row| row.get(0),
    )?;
    if found.role == Role::Admin && admins == 0 {
        return Err(Error::LastAdmin(id.0));
    }
    end(db, id)?;
    found.revoked = true;
    Ok(found)
}

/// Ends a member's rights, whoever is left.
pub fn end(db: &Connection, id: MemberId) -> Result<(), Error> {
    db.execute("UPDATE members SET revoked = 1 WHERE id = ?1", [id.0])?;
    changes::append(db, &Op::Member(id))
}
