//! Members and the tokens that make them.

use super::error::Error;
use super::journal::{self, Op};
use potluck_core::chunk::Digest;
use potluck_core::ids::{Epoch, MemberId};
use potluck_wire::token::Role;
use rusqlite::{Connection, OptionalExtension, Row, params};

/// Somebody with a certificate of the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
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
}

/// A moment on both clocks that a token's expiry is judged by.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// This life of the manager.
    pub epoch: Epoch,
    /// The pool's time.
    pub pool_ms: u64,
    /// Wall time.
    pub wall_ms: i64,
}

/// All members that ever were.
pub fn all(db: &Connection) -> Result<Vec<Member>, Error> {
    let mut rows =
        db.prepare_cached("SELECT id, role, name, fingerprint, revoked FROM members ORDER BY id")?;
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
    })
}

fn role(text: &str) -> rusqlite::Result<Role> {
    text.parse().map_err(|why: String| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, why.into())
    })
}

/// Adds a member, whose certificate `certify` makes once the number is known.
pub fn add(
    db: &Connection,
    role: Role,
    name: &str,
    certify: impl FnOnce(MemberId) -> Result<Digest, Error>,
) -> Result<Member, Error> {
    // AUTOINCREMENT never gives a number twice, so a placement never changes its donor.
    let placeholder: [u8; 0] = [];
    db.execute(
        "INSERT INTO members (role, name, fingerprint) VALUES (?1, ?2, ?3)",
        params![role.to_string(), name, placeholder],
    )?;
    let id = MemberId(db.last_insert_rowid() as u32);
    let fingerprint = certify(id)?;
    db.execute("UPDATE members SET fingerprint = ?2 WHERE id = ?1", params![id.0, fingerprint.0])?;
    journal::append(db, &Op::Member(id))?;
    Ok(Member { id, role, name: name.into(), fingerprint, revoked: false })
}

/// The member with a number, if there ever was one.
pub fn get(db: &Connection, id: MemberId) -> Result<Option<Member>, Error> {
    let found = db
        .prepare_cached("SELECT id, role, name, fingerprint, revoked FROM members WHERE id = ?1")?
        .query_row([id.0], member);
    Ok(found.optional()?)
}

/// Writes a member down who was one before, under the same number.
pub fn put(db: &Connection, member: &Member) -> Result<(), Error> {
    db.prepare_cached(
        "INSERT OR REPLACE INTO members (id, role, name, fingerprint, revoked)
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        member.id.0,
        member.role.to_string(),
        member.name,
        member.fingerprint.0,
        member.revoked,
    ])?;
    Ok(())
}

/// Gives the next member a number beyond `spare` further ones.
pub fn skip(db: &Connection, spare: u32) -> Result<(), Error> {
    db.execute("UPDATE sqlite_sequence SET seq = seq + ?1 WHERE name = 'members'", [spare])?;
    Ok(())
}

/// Ends a member's rights; gives the member.
pub fn revoke(db: &Connection, id: MemberId) -> Result<Member, Error> {
    let mut found = get(db, id)?.ok_or(Error::NoMember(id.0))?;
    let admins: u32 = db.query_row(
        "SELECT count(*) FROM members WHERE role = 'admin' AND NOT revoked AND id <> ?1",
        [id.0],
        |row| row.get(0),
    )?;
    if found.role == Role::Admin && admins == 0 {
        return Err(Error::LastAdmin(id.0));
    }
    db.execute("UPDATE members SET revoked = 1 WHERE id = ?1", [id.0])?;
    journal::append(db, &Op::Member(id))?;
    found.revoked = true;
    Ok(found)
}

/// The hash a token is known by. The secret has 256 random bits, so a fast hash keeps it.
fn token_hash(secret: &Digest) -> [u8; 32] {
    blake3::derive_key("potluck 2026-11 join token", &secret.0)
}

/// Remembers a token that is good for `ttl_ms`.
pub fn add_token(
    db: &Connection,
    secret: &Digest,
    role: Role,
    now: Moment,
    ttl_ms: u64,
) -> Result<(), Error> {
    db.execute(
        "DELETE FROM tokens WHERE expires_ms + 86400000 < ?1", // a day on, nobody asks why
        [now.pool_ms as i64],
    )?;
    db.execute(
        "INSERT INTO tokens (hash, role, epoch, expires_ms, expires_wall_ms)
         VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            token_hash(secret),
            role.to_string(),
            now.epoch.0 as i64,
            now.pool_ms.saturating_add(ttl_ms) as i64,
            now.wall_ms.saturating_add(ttl_ms as i64),
        ],
    )?;
    Ok(())
}

/// Uses a token up for the member that `join` makes of its role. Nothing is used up when `join`
/// fails.
///
/// The pool's time judges the expiry. It stands still while no manager runs, so a token of an
/// earlier life must also be good by the wall clock: a wrong clock can then cost a new invitation
/// across a restart, and nothing else.
pub fn use_token(
    db: &Connection,
    secret: &Digest,
    now: Moment,
    join: impl FnOnce(Role) -> Result<Member, Error>,
) -> Result<Member, Error> {
    let hash = token_hash(secret);
    let (text, epoch, expires_ms, expires_wall_ms, used_by): (String, i64, i64, i64, Option<u32>) =
        db.query_row(
            "SELECT role, epoch, expires_ms, expires_wall_ms, used_by FROM tokens WHERE hash = ?1",
            [hash],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)),
        )
        .optional()?
        .ok_or(Error::UnknownToken)?;
    if used_by.is_some() {
        return Err(Error::UsedToken);
    }
    let other_life = epoch as u64 != now.epoch.0;
    if now.pool_ms as i64 >= expires_ms || (other_life && now.wall_ms >= expires_wall_ms) {
        return Err(Error::ExpiredToken);
    }
    let member = join(role(&text)?)?;
    db.execute("UPDATE tokens SET used_by = ?2 WHERE hash = ?1", params![hash, member.id.0])?;
    Ok(member)
}
