//! The rows of the pool's members, and what becomes of them when memberships begin and end.

pub(crate) mod access_keys;
pub(crate) mod authority;
pub(crate) mod donor_names;
pub(crate) mod grantees;
pub(crate) mod grants;
pub(crate) mod groups;
pub(crate) mod quotas;
pub(crate) mod stored_member;
pub(crate) mod tokens;

use crate::error::Error;
use crate::members::stored_member::StoredMember;
use crate::pool_records::{donors, spaces};
use crate::sql::{Row, Tx, params};
use potluck_core::chunk::Digest;
use potluck_core::ids::{DonorId, MemberId};
use potluck_wire::token::Role;

const SELECT: &str = "SELECT id, role, name, fingerprint, revoked, joined_wall_ms, invited_by, \
                      seen_wall_ms FROM members";

/// Reads all members that ever were, by number.
pub(crate) fn all(db: &Tx) -> Result<Vec<StoredMember>, Error> {
    let mut rows = db.prepare(&format!("{SELECT} ORDER BY id"))?;
    let members = rows.query_map(params![], member)?.collect::<Result<_, _>>()?;
    Ok(members)
}

fn member(row: &Row<'_>) -> Result<StoredMember, Error> {
    Ok(StoredMember {
        id: MemberId(row.get(0)?),
        role: role(&row.get::<String>(1)?)?,
        name: row.get(2)?,
        fingerprint: Digest(row.get(3)?),
        revoked: row.get(4)?,
        joined_wall_ms: row.get(5)?,
        invited_by: row.get::<Option<u32>>(6)?.map(MemberId),
        seen_wall_ms: row.get(7)?,
    })
}

/// Returns the role that a row has as `text`.
///
/// Errors: [`Error::Damaged`] if the text is no role.
pub(crate) fn role(text: &str) -> Result<Role, Error> {
    text.parse().map_err(|why: String| Error::Damaged(format!("a role: {why}")))
}

/// Returns the member with a number, also one whose membership ended; `None` if there never was one.
pub(crate) fn get(db: &Tx, id: MemberId) -> Result<Option<StoredMember>, Error> {
    db.prepare(&format!("{SELECT} WHERE id = ?1"))?.query_one(params![id.0], member)
}

/// Returns whether a user or an admin, whose membership has not ended, has this name.
pub(crate) fn is_user(db: &Tx, name: &str) -> Result<bool, Error> {
    let mut users = all(db)?.into_iter().filter(|it| !it.revoked && it.role != Role::Donor);
    Ok(users.any(|user| user.name == name))
}

/// Writes a member down in the place of any row with its number, and ends the rights of one whose membership ended.
pub(crate) fn put(db: &Tx, member: &StoredMember) -> Result<(), Error> {
    db.prepare(
        "INSERT INTO members (id, role, name, fingerprint, revoked, joined_wall_ms,
             invited_by, seen_wall_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT (id) DO UPDATE SET
             role = excluded.role, name = excluded.name, fingerprint = excluded.fingerprint,
             revoked = excluded.revoked, joined_wall_ms = excluded.joined_wall_ms,
             invited_by = excluded.invited_by, seen_wall_ms = excluded.seen_wall_ms",
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
    match member.revoked {
        true => forget_rights(db, member),
        false => Ok(()),
    }
}

/// Skips `spare` numbers, so that no later member gets one of them.
pub(crate) fn skip(db: &Tx, spare: u32) -> Result<(), Error> {
    db.skip_numbers("members", spare)
}

/// Remembers when members were seen, in milliseconds of wall time. That alone is no change for the log: the next change
/// of a member takes it along.
pub(crate) fn seen(db: &Tx, seen: &[(MemberId, i64)]) -> Result<(), Error> {
    let mut update = db.prepare("UPDATE members SET seen_wall_ms = ?2 WHERE id = ?1")?;
    for (id, wall_ms) in seen {
        update.execute(params![id.0, wall_ms])?;
    }
    Ok(())
}

/// Returns the donors that were removed from the pool, or left it.
pub(crate) fn removed_donors(db: &Tx) -> Result<Vec<DonorId>, Error> {
    let mut select =
        db.prepare("SELECT id FROM members WHERE role = 'donor' AND revoked = 1 ORDER BY id")?;
    let donors = select.query_map(params![], |row| row.get(0).map(DonorId))?;
    donors.collect()
}

/// The most donors whose membership ended that are remembered, so that they are told so: a machine that joins and
/// leaves again and again takes no more.
const MOST_ENDED_DONORS: i64 = 256;

/// Forgets the donors whose membership ended before that of many others and whose copies are forgotten, with their
/// invitations; returns their numbers, which nobody gets again.
pub(crate) fn forget_ended_donors(db: &Tx) -> Result<Vec<MemberId>, Error> {
    let mut select = db.prepare(
        "SELECT m.id FROM members m WHERE m.role = 'donor' AND m.revoked = 1
             AND NOT EXISTS (SELECT 1 FROM placements p WHERE p.donor = m.id)
         ORDER BY m.id DESC LIMIT -1 OFFSET ?1",
    )?;
    let ended = select.query_map(params![MOST_ENDED_DONORS], |row| row.get(0).map(MemberId))?;
    let ended: Vec<MemberId> = ended.collect::<Result<_, _>>()?;
    for id in &ended {
        db.execute("DELETE FROM members WHERE id = ?1", params![id.0])?;
        db.execute("DELETE FROM tokens WHERE used_by = ?1", params![id.0])?;
    }
    Ok(ended)
}

/// Forgets what was granted to a member whose membership ended, who may have kept the keys of spaces, and the facts
/// about a donor.
fn forget_rights(db: &Tx, member: &StoredMember) -> Result<(), Error> {
    if member.role == Role::Donor {
        donors::forget(db, DonorId(member.id.0))?;
    } else {
        for space in grants::sealed_spaces_of(db, member.id, member.role == Role::Admin)? {
            spaces::expose(db, space)?;
        }
    }
    grantees::forget_member(db, member.id)
}
